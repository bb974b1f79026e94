"""A strategy that sends over the host link is one file: priced, searched, explained, refused."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import SYSTEM

import oracle
from oracle.ask.explain.explanation import explain
from oracle.commands.cli import main
from oracle.executor.supported import unsupported
from oracle.plan.plan import parse
from oracle.plan.strategies import strategies
from oracle.predict.defaults import options_for
from oracle.show.explanation import explanation_text

FILE = '''
"""Spill: what the backward pass wants waits in the memory of the host."""

from dataclasses import dataclass

import numpy as np

from oracle.network.collectives import Message
from oracle.plan.strategies.base import Strategy, words


@dataclass(frozen=True)
class Spill(Strategy):
    """Copy what is kept to the host, and back when it is wanted.

        T_comm = 2 D/B Σ (α + B |kept| δβ)      over the host link
    """

    what: float = words("nothing", "activations")

    source = "chen2016, made up for a test"
    nearness = 10
    bound = ""
    limited_by = ("host link",)
    multiplies = False
    degrees = False

    def limit(self, model, batch):
        return np.inf

    @classmethod
    def spares(cls, model):
        return {"what": 1.0}

    def split(self, shard):
        return shard.but(kept=shard.kept * np.where(self.says("what", "activations"), 0.05, 1.0))

    def talk(self, shard):
        gone = self.says("what", "activations") * np.ones_like(shard.model.y)
        each = 19 * shard.micro * shard.kept * shard.delta
        return [
            Message("activations out", "copy", each, (), gone, when="forward", over="host"),
            Message("activations back", "copy", each, (), gone, when="backward", over="host"),
        ]
'''
GPT = ["gpt2", "dgx-a100", "--batch", "64"]


@pytest.fixture(scope="module")
def spill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The strategy, as its one file makes it, for the tests of this file."""
    path = tmp_path_factory.mktemp("spill") / "spill.py"
    path.write_text(FILE)
    spec = importlib.util.spec_from_file_location("spill_by_one_file", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["spill_by_one_file"] = module
    spec.loader.exec_module(module)
    del module
    yield
    del sys.modules["spill_by_one_file"]
    from oracle.plan import plan

    plan._parse.cache_clear()
    gc.collect()
    assert "spill" not in strategies(), "other tests would meet it"


def test_it_is_priced_over_the_host_link(spill: None) -> None:
    plans = ["data:8", "data:8 spill:activations"]
    found = oracle.estimate("gpt2", "dgx-a100", plans, batch=64)
    assert found.seconds[1] > found.seconds[0]
    assert found.memory_kinds["activations"][1] < 0.5 * found.memory_kinds["activations"][0]
    sent = {one["what"]: one for one in found.exchange[1]}
    out, back = sent["spill: activations out"], sent["spill: activations back"]
    model, link = oracle.model("gpt2"), 25e9  # of a port of the DGX
    nbytes = 8 * 2 * float(model.repeat @ model.kept) * 0.95
    calls = float(model.repeat[model.kept > 0].sum())
    assert out["seconds"] == pytest.approx(nbytes / link + calls * 1e-5, rel=0.05)
    assert back["seconds"] == pytest.approx(out["seconds"])
    assert (out["op"], out["algorithm"], out["group"]) == ("copy", "copy", 1)
    assert out["origin"] == "datasheet"


def test_it_is_searched(spill: None) -> None:
    leanest = oracle.recommend("gpt2", "dgx-a100", devices=2, batch=64, only=["data", "spill"],
                               objective="memory").fastest  # fmt: skip
    assert "spill:activations" in leanest.plans[0]
    room = float(leanest.memory[0]) * 1.01
    found = oracle.recommend("gpt2", "dgx-a100", devices=2, batch=64, only=["data", "spill"],
                             max_memory=room, risk=0.5)  # fmt: skip
    assert "spill:activations" in found.best.plan


def test_it_is_explained(spill: None, capsys: Any) -> None:
    assert main(["explain", "spill"]) == 0
    assert "over the host link" in capsys.readouterr().out
    model, system = oracle.model("gpt2"), oracle.system("dgx-a100")
    found = explain(model, system, "data:8 spill:activations", 64, options_for(model, system))
    text = explanation_text(found, full=True)
    assert "host link" in text
    assert "spill: activations out" in text
    total = sum(factor.seconds for factor in found.own.factors)
    assert total == pytest.approx(float(found.own.shown.seconds[0]))


def test_the_executor_refuses_it(spill: None) -> None:
    why = unsupported(oracle.model("gpt2"), parse("data:2 spill:activations", 8))
    assert "the strategy `spill` is priced but not run" in why


@pytest.mark.parametrize("form", ["deepspeed", "megatron", "torchtitan"])
def test_exporters_that_have_no_word_for_it_refuse_it(
    spill: None, form: str, capsys: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    plan = {"torchtitan": "data:8,zero=3"}.get(form, "data:8")
    line = ["export", form, *GPT, "--plan", f"{plan} spill:activations", "-o", str(folder)]
    assert main(line) == 2
    assert "is not told `spill` what=activations" in capsys.readouterr().err
    assert not folder.exists()


def test_torchrun_carries_the_whole_plan(spill: None, capsys: Any, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    line = ["export", "torchrun", *GPT, "--plan", "data:8 spill:activations", "-o", str(folder)]
    assert main(line) == 0
    assert 'PLAN = "data:8 spill:activations"' in (folder / "mesh.py").read_text()


def test_a_message_over_a_link_that_nobody_prices_is_an_error(spill: None) -> None:
    from oracle.network.host import LINKS

    link = LINKS.pop("host")
    try:
        with pytest.raises(NotImplementedError, match="over `host`, which nothing prices"):
            oracle.estimate("gpt2", "dgx-a100", "data:8 spill:activations", batch=64)
    finally:
        LINKS["host"] = link


def test_a_faster_link_is_never_slower(spill: None) -> None:
    tree: Any = {**SYSTEM, "device": {**SYSTEM["device"], "host_link": "1 GB/s"}}
    fast: Any = {**SYSTEM, "device": {**SYSTEM["device"], "host_link": "64 GB/s"}}
    slow, quick = (
        oracle.estimate("gpt2", oracle.system(each), "data:2 spill:activations", batch=8)
        for each in (tree, fast)
    )
    assert np.all(quick.seconds < slow.seconds)

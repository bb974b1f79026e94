"""Explanations: every strategy and code; a plan's parts add up; flips really flip."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import oracle
from oracle.ask.explain import factors, flips
from oracle.ask.explain.explanation import explain
from oracle.ask.ties import doubts, settling, tied
from oracle.commands.cli import main
from oracle.network import contention
from oracle.plan.strategies import strategies
from oracle.predict.defaults import options_for
from oracle.predict.estimate import estimate as predict
from oracle.show import bibliography, manual
from oracle.show.first_screen import ranking_text
from oracle.spec.document import CODES

TABLE = {
    "useful computation", "gradient exchange", "layer-wise exchange", "point-to-point cost",
    "congestion", "I/O", "memory redundancy", "fragmentation", "weight update",
    "workload balance", "computation redundancy", "number of devices", "host-bound launches",
    "unequal devices", "failures",
}  # fmt: skip
PLANS = [
    ("resnet50", "abci", "data:64", 4096),
    ("resnet50", "abci", "data:16 filter:4", 1024),
    ("resnet50", "abci", "data:4 channel:4", 256),
    ("cosmoflow-512", "abci", "data:2 spatial:2x2x2", 4),
    ("gpt2-xl", "dgx-a100", "pipeline:4,segments=8 data:2 tensor:4", 64),
    ("gpt3-175b", "dgx-a100", "data:64,zero=3 tensor:8,sequence=on recompute:full", 512),
]


def said(capsys: pytest.CaptureFixture[str], *line: str) -> tuple[int, str]:
    code = main(["explain", *line])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("name", strategies())
def test_every_strategy_is_explained_from_its_own_docstring(name, capsys):
    code, text = said(capsys, name)
    assert code == 0
    told = manual.strategy(name)
    assert told["equations"]
    assert all(equation in text for equation in told["equations"])
    assert "source" in text
    for source in told["source"]:
        key = re.search(r"\((\w+)[,;)]", source)
        assert key is not None, source
        assert re.search(r"(19|20)\d\d", source)
    for knob in told["knobs"]:
        assert f"{knob['knob']}=" in text
    code, text = said(capsys, name, "--json")
    assert json.loads(text)["strategy"] == name


@pytest.mark.parametrize("code", CODES)
def test_every_error_code_has_a_meaning(code, capsys):
    done, text = said(capsys, code.lower())
    assert done == 0
    assert CODES[code][:30] in " ".join(text.split())


def test_a_wrong_word_gets_the_nearest(capsys):
    assert main(["explain", "filtr"]) == 2
    assert "did you mean `filter`?" in capsys.readouterr().err
    assert main(["explain", "--plan", "data:4", "resnet50"]) == 2
    assert main(["explain", "resnet50", "abci", "--batch", "64"]) == 2
    assert main(["explain"]) == 0


def test_every_source_is_readable():
    for key in bibliography.bibliography():
        text = bibliography.citation(key)
        assert not re.search(r"[{}\\]", text), text
        assert text.count(": ") >= 1


@pytest.mark.parametrize(("model", "system", "plan", "batch"), PLANS)
def test_causes_add_up_to_the_step_and_speak_the_tables_words(model, system, plan, batch):
    what, where = oracle.model(model), oracle.system(system)
    found = factors.anatomy(what, where, plan, batch, options_for(what, where))
    total = float(found.shown.seconds[0])
    assert sum(f.seconds for f in found.factors) == pytest.approx(total, rel=1e-6)
    assert all(f.seconds >= -1e-9 * total for f in found.factors)
    assert {f.name for f in (*found.factors, *found.notes)} <= TABLE


def test_links_that_are_full_are_named():
    what, where = oracle.model("resnet50"), oracle.system("abci")
    found = factors.anatomy(what, where, "data:16 filter:4", 1024, options_for(what, where))
    assert any("4 groups leave each node over 2 ports: φ = 2" in t.sentence for t in found.talks)
    (whole,) = found.whole
    assert whole["strategy"] == "filter"
    assert whole["kinds"]["norm"] == 53


@pytest.mark.slow
@pytest.mark.parametrize("model", ["resnet50", pytest.param("vgg16", marks=pytest.mark.slow)])
def test_a_flip_flips(model):
    """On the far side of the factor the winner leads, on the near side it does not."""
    what, where = oracle.model(model), oracle.system("ethernet-pair")
    options = options_for(what, where)
    found = explain(what, where, "data:8", 64, options)
    assert found.against is not None
    assert found.against.flips
    for flip in found.against.flips[:2]:
        machine = flips.machines(where, options)[flip.cause]
        lead = {}
        for side, factor in (("near", flip.factor**0.8), ("far", flip.factor**1.2)):
            other, lines = machine(factor)
            times = predict(what, other, [flip.winner, flip.loser], 64, options, lines).seconds
            lead[side] = bool(times[0] < times[1])
        assert lead == {"near": False, "far": True}, flip


def test_a_faster_network_is_a_faster_network():
    """Scaling the prices is scaling the links: the same as a system with other numbers."""
    what, where = oracle.model("resnet50"), oracle.system("abci")
    options = options_for(what, where)
    other, lines = flips.machines(where, options)["network"](4.0)
    base = predict(what, where, ["data:4 filter:4"], 256, options)
    fast = predict(what, other, ["data:4 filter:4"], 256, options, lines)
    for slow, quick in zip(base.exchange[0], fast.exchange[0], strict=True):
        assert quick["seconds"] == pytest.approx(slow["seconds"] / 4)
    offer = contention.lines(where, "allreduce", ((16, 1),), 16)
    assert offer
    assert replace(offer[0]).start > 0


def test_shared_doubts_are_not_open():
    assert settling({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 0.5}) == ("b", 1.0)
    assert settling({"a": 1.0}, {"a": 1.0}) is None


def test_plans_are_tied_where_the_best_is_not_likely_enough():
    plans = "a", "b", "c"
    assert tied(plans, np.array([0.4, 0.25, 0.35])) == ("a", "c")
    assert tied(plans, np.array([0.6, 0.4, 0.0])) == ()
    assert tied(("a",), np.array([0.3])) == ()


def test_doubts_add_up_to_the_prediction_s_own():
    shown = oracle.estimate("resnet50", "abci", ["data:16 filter:4", "data:64"], batch=1024,
                            software="pytorch-ddp", any_plan=True)  # fmt: skip
    for row in (0, 1):
        parts = doubts(shown, row)
        assert "conv kernels at the local shapes" in parts
        assert any(key.startswith("allreduce among") for key in parts)
        each = [one["deviation"] for one in shown.exchange[row]]
        rest = parts["conv kernels at the local shapes"]
        assert rest**2 + sum(d**2 for d in each) == pytest.approx(shown.deviation[row] ** 2)


@pytest.mark.slow
def test_a_ranking_says_what_it_cannot_tell_and_what_would():
    """In Python, as JSON and on the screen; and it is the doubt that is measured away."""
    found = oracle.recommend("gpt3-175b", "dgx-a100", devices=1024, batch=1536, fastest=True)
    assert 0 < found.likely_best()[0] < 0.6
    assert found.tied[0] == found.best.plan
    what, share = found.measure
    assert 0 < share <= 1
    other = found.estimate.plans.index(found.tied[1])
    open_ = [doubts(found.estimate, row).get(what, 0.0) for row in (0, other)]
    assert open_[0] != open_[1]
    data = found.to_dict()
    assert data["tied"] == list(found.tied)
    assert data["measure"] == {"what": what, "share": share}
    text = " ".join(ranking_text(found).split())
    assert f"1 and {other + 1} are too close to call" in text
    assert f"too close to call: measure {what} to decide" in text
    sure = oracle.recommend("resnet50", "abci", devices=64, batch=1024, only=["data", "filter"])
    assert sure.tied == ()
    assert sure.measure is not None
    assert "the best of all with" in ranking_text(sure)
    lean = oracle.recommend("bert-large", "dgx-a100", devices=16, batch=256, objective="memory")
    assert lean.tied == ()
    assert "the fastest of all with" in ranking_text(lean)
    ideal = oracle.recommend("bert-large", "dgx-a100", devices=16, batch=256, ideal=True)
    assert (ideal.tied, ideal.measure) == ((), None)


def test_a_memory_that_is_nearly_full_is_said_with_a_way_out():
    """The fastest plan that fits may fit by a hair: that is said, and which has more room."""
    roomy = oracle.recommend("bert-large", "dgx-a100", devices=16, batch=256)
    assert "tight" not in ranking_text(roomy)
    most = 1.02 * float(roomy.estimate.memory[0])
    full = oracle.recommend(
        "bert-large", "dgx-a100", devices=16, batch=256, max_memory=most, risk=0.5
    )
    text = " ".join(ranking_text(full).split())
    assert full.best.plan == roomy.best.plan
    assert "free: tight" in text
    held = full.estimate.memory / most
    room = 1 + np.flatnonzero(held <= 0.9)
    assert f"free: tight, {room[0]} has" in text


@pytest.mark.slow
@pytest.mark.parametrize(("model", "system", "plan", "batch"), [
    *PLANS[1:2], pytest.param(*PLANS[4], marks=pytest.mark.slow)
])  # fmt: skip
def test_a_plan_is_explained_on_one_screen_and_as_data(model, system, plan, batch, capsys):
    line = ("--plan", plan, model, system, "--batch", str(batch))
    code, text = said(capsys, *line)
    assert code in (0, 1)
    for word in ("Where the time goes", "What bounds it", "What would change the choice"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 80
    _, text = said(capsys, *line, "--full")
    for word in ("Links", "Where the numbers come from"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 80
    code, text = said(capsys, *line, "--json")
    data = json.loads(text)
    assert data["schema"] == 1
    assert data["bottleneck"] in TABLE
    assert sum(f["share"] for f in data["factors"]) == pytest.approx(1)


def test_ideal_assumptions_are_explained_too(capsys):
    code, text = said(capsys, "--plan", "data:4 filter:4", "resnet50", "abci", "--batch", "256",
                      "--ideal")  # fmt: skip
    assert code in (0, 1)
    assert "layer-wise exchange" in text

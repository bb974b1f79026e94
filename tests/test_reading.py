"""Reading beside a step: what waits is in its seconds, the best way is the best, all add up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import oracle
from oracle.ask.explain.factors import anatomy
from oracle.commands.cli import main
from oracle.predict.defaults import options_for
from oracle.spec.storage import Disk, Host, SharedFiles, Storage
from oracle.storage import MODES

PLANS = ["data:64", "data:32 spatial:2", "data:16 filter:4", "pipeline:2,segments=8 data:32",
         "sharded:64", "data:8 spatial:8"]  # fmt: skip


def where(capacity: float = 4e12, memory: float = 384e9, **shared: Any) -> Any:
    """ABCI with a file system that takes its time, and disks."""
    files = SharedFiles(**{"bandwidth": 100e9, "write": 50e9, "per_node": 1.2e9, "streams": 16,
                           "open": 0.5e-3, "metadata": 30e3, **shared})  # fmt: skip
    disk = Disk(3.2e9, 1e9, capacity, 30e-6)
    return replace(oracle.system("abci"), storage=Storage("made", files, disk),
                   host=Host(memory, 40, "made", bandwidth=256e9))  # fmt: skip


HERE = where()


def asked(plans: Any = "data:64", system: Any = HERE, batch: int = 4096, **more: Any) -> Any:
    return oracle.estimate("resnet50", system, plans, batch, **more)


def test_what_waits_is_in_the_seconds() -> None:
    """4,096 pictures, each opened at 10,000 files a second: 410 ms of a step of 184."""
    none, read = asked(reading="none"), asked(reading="shared")
    assert none.reading == (None,)
    one = read.reading[0]
    assert one["bound_by"] == "metadata"
    assert "4,096 opens at 10 k/s" in one["cause"]
    assert one["seconds"] == pytest.approx(0.4096)
    assert float(read.seconds[0]) == pytest.approx(0.4096)
    assert one["exposed"] == pytest.approx(0.4096 - float(none.seconds[0]))
    assert one["files_per_second"] == pytest.approx(10e3)
    assert float(read.epoch[0]) == pytest.approx(0.4096 * (1281167 / 4096 + 1))


@pytest.mark.parametrize("more", [
    {}, {"reading": "shared"}, {"reading": "striped"}, {"shuffle": "partial:0.2"},
    {"epochs": 2}, {"epochs": 90},
], ids=str)  # fmt: skip
def test_a_plan_reads_alone_as_in_a_table(more: Any) -> None:
    found = asked(PLANS, **more)
    for row, plan in enumerate(PLANS):
        alone = asked(plan, **more)
        for what in ("seconds", "seconds_low", "seconds_high", "epoch"):
            one, other = getattr(alone, what)[0], getattr(found, what)[row]
            assert float(one) == pytest.approx(float(other), rel=1e-12), (plan, what)
        assert alone.reading[0]["mode"] == found.reading[row]["mode"]


def test_where_some_plans_cut_samples_and_some_do_not() -> None:
    """One plan's way to read is none of another's."""
    plans = ["data:96", "data:24 spatial:4"]
    found = oracle.estimate("deepcam", "summit", plans, 192)
    assert found.reading[0]["mode"] != "spatial"
    for row, plan in enumerate(plans):
        alone = oracle.estimate("deepcam", "summit", plan, 192)
        assert alone.reading[0] == found.reading[row]
        assert float(alone.seconds[0]) == pytest.approx(float(found.seconds[row]), rel=1e-12)
    forced = oracle.estimate("deepcam", "summit", plans, 192, reading="spatial")
    assert forced.broken[0][0] == "reading spatial: every rank needs whole samples"
    assert not any("reading" in words for words in forced.broken[1])


def test_reading_only_adds_and_the_best_way_is_the_best() -> None:
    least, best = asked(PLANS, reading="none"), asked(PLANS)
    assert (best.seconds >= least.seconds * (1 - 1e-12)).all()
    for name in MODES:
        other = asked(PLANS, reading=name)
        able = other.feasible
        assert (best.seconds <= other.seconds * (1 + 1e-3))[able].all(), name
        assert (other.seconds >= least.seconds * (1 - 1e-12)).all(), name
        for row, one in enumerate(best.reading):  # what it says of others is what they are
            (told,) = [a for a in [*one["alternatives"], {**one, "step": best.seconds[row]}]
                       if a["mode"] == name]  # fmt: skip
            if able[row]:
                assert float(told["step"]) == pytest.approx(float(other.seconds[row]), rel=1e-12)


@pytest.mark.parametrize("epochs", [1, 2, 3, 10, 90])
def test_epochs_decide_what_is_worth_doing_once(epochs: int) -> None:
    """The least of that many epochs with staging, by each way asked for by name."""

    def run(name: str) -> float:
        found = asked(reading=name, epochs=epochs)
        steps = 1281167 / 4096
        return float(found.reading[0]["once"] + epochs * steps * found.seconds[0])

    chosen = asked(epochs=epochs).reading[0]["mode"]
    totals = {name: run(name) for name in ("shared", "cached", "staged", "striped")}
    assert totals[chosen] == pytest.approx(min(totals.values()), rel=1e-9)
    assert chosen == ("shared" if epochs == 1 else "striped")


def test_disks_that_are_too_small_are_said() -> None:
    """140 GB on each of 16 nodes, or 8.75 GB each."""
    small = where(capacity=100e9)
    found = asked(system=small, reading="staged")
    assert not found.feasible[0]
    assert found.broken[0] == ("reading staged: the disks of each node lack 37.3 GiB",)
    assert asked(system=small, reading="staged", shuffle="local").feasible[0]
    assert asked(system=small).feasible[0]
    assert asked(system=small, reading="striped").feasible[0]


def test_what_nobody_says_makes_the_interval_wide() -> None:
    known, unknown = asked(reading="shared"), asked(
        reading="shared", system=where(metadata=None, per_node=None, open=None))  # fmt: skip
    assert known.reading[0]["assumed"] == []
    assert "storage.shared.metadata" in unknown.reading[0]["assumed"]
    widths = [float(np.log(e.seconds_high / e.seconds_low)[0]) for e in (known, unknown)]
    assert widths[1] > 1.3 * widths[0]
    hidden, none = asked(), asked(reading="none")
    assert float(hidden.seconds_low[0]) == pytest.approx(float(none.seconds_low[0]), rel=1e-3)


def test_factors_add_up_to_the_step() -> None:
    model = oracle.model("resnet50")
    for reading in ("best", "shared", "striped"):
        options = options_for(model, HERE, reading=reading)
        for plan in ("data:64", "data:32 spatial:2"):
            found = anatomy(model, HERE, plan, 4096, options)
            seconds = float(found.shown.seconds[0])
            assert sum(one.seconds for one in found.factors) == pytest.approx(seconds, rel=1e-9)
            alone = oracle.estimate(model, HERE, plan, 4096, reading=reading)
            assert float(alone.seconds[0]) == seconds


def test_a_search_finds_what_an_estimate_says() -> None:
    for more in ({}, {"reading": "shared"}):
        ranking = oracle.recommend(
            "resnet50", HERE, 64, 4096, top=2, only=["data", "spatial"], **more
        )
        shown = ranking.estimate
        again = asked(list(shown.plans), **more)
        assert again.seconds.tolist() == pytest.approx(shown.seconds.tolist(), rel=1e-12)
    assert float(shown.seconds[0]) >= 0.4096


def test_exchange_and_readers_share_the_ports() -> None:
    """Of a step that waits for exchange, samples from other nodes' disks make more."""
    slow = replace(HERE, levels=tuple(
        replace(level, bandwidth=level.bandwidth / 40) for level in HERE.levels))  # fmt: skip
    none, read = (asked(system=slow, reading=r) for r in ("none", "striped"))
    nbytes = read.reading[0]["bytes"] / 16 * 15 / 16
    sent = nbytes / (2 * HERE.levels[HERE.inside].bandwidth / 40)
    assert 0.1 * sent < read.reading[0]["exposed"] < 1.5 * sent
    assert float(read.seconds[0]) < float(none.seconds[0]) + 1.5 * sent


def test_the_first_screen_says_how_samples_are_read(tmp_path: Any, capsys: Any) -> None:
    line = ["estimate", "resnet50", "dgx-a100", "--plan", "data:64", "--batch", "4096"]
    for more, said in (([], "reads staged: "), (["--reading", "shared"], "I/O-bound (metadata"),
                       (["--reading", "none"], "reads not counted, as asked")):  # fmt: skip
        assert main([*line, *more]) == 0
        assert said in " ".join(capsys.readouterr().out.split())
    assert main(["estimate", "resnet50", "dgx-2", "--plan", "data:8", "--batch", "64"]) == 0
    assert "not counted: dgx-2 says nothing of its storage" in capsys.readouterr().out
    with pytest.raises(oracle.SpecError, match="no way to read is called `sharde`"):
        asked(reading="sharde")
    with pytest.raises(oracle.SpecError, match="0 epochs"):
        asked(epochs=0)

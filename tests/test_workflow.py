"""Many trainings on so many nodes: values by hand, laws over every kind of search, the verb."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from command_line import ROOT, closed, told
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from benchmarks.trainings import search as published
from oracle.ask.combined import combined
from oracle.ask.trials import opened
from oracle.ask.workflow import campaign, room
from oracle.run.searches import searches
from oracle.run.searches.genetic import Genetic
from oracle.run.searches.halving import Halving
from oracle.run.searches.transfer import Transfer
from oracle.run.sharing import shared
from oracle.run.waves import makespan, slowest
from oracle.run.workflow import Workflow, workflow
from oracle.show import contract

KINDS = sorted(searches())
ASKED = ["workflow", "resnet50", "abci", "--nodes", "4", "--trials", "32", "--epochs", "90",
         "--batch", "128", "--plan", "data:2"]  # fmt: skip
WORK = 7200.0  # seconds of a made-up trial on one device


class Scaled:
    """Trials whose time is of Amdahl's law, in place of predicted ones."""

    def __init__(self, asked: Workflow, serial: float, node: int) -> None:
        self.asked, self.serial = asked, serial
        self.system = SimpleNamespace(node=node)

    def beside(self, devices: int, _: int) -> Any:
        seconds = WORK * (self.serial + (1 - self.serial) / devices)
        took = SimpleNamespace(seconds=seconds, low=seconds, high=seconds)
        return SimpleNamespace(devices=devices, training=took)


def asked_of(kind: str, trials: int | None, **settings_: Any) -> Workflow:
    return workflow({"model": "resnet50", "search": {"kind": kind, **settings_},
                     **({} if trials is None else {"trials": trials})}, epochs=90,
                    max_batch=1024)  # fmt: skip


def took(kind: str, trials: int | None, nodes: int, serial: float = 0.1, node: int = 4,
         **settings_: Any) -> float:  # fmt: skip
    asked: Any = Scaled(asked_of(kind, trials, **settings_), serial, node)
    return campaign(asked, nodes, alone=False).seconds


# --- by hand -----------------------------------------------------------------------------------


def test_waves_by_hand() -> None:
    assert [makespan(272, c) for c in (1, 16, 272, 500)] == [272, 17, 1, 1]
    assert makespan(5, 4) == 2
    # E[max of 2] = 1 + σ/√π of normals; a lognormal of little spread is nearly one
    assert slowest(2, 0.01) == pytest.approx(1 + 0.01 / math.sqrt(math.pi), abs=1e-5)
    assert slowest(64, 0.1) < 1 + 0.1 * math.sqrt(2 * math.log(64))
    assert slowest(1, 0.5) == pytest.approx(1, abs=1e-4)


def test_rungs_by_hand() -> None:
    """27 trials, η = 3: 27, 9, 3 and 1 trained to 1/27, 1/9, 1/3 and all of the way."""
    found = Halving().stages(27, 9)
    assert [one.trials for one in found] == [27, 9, 3, 1]
    assert [one.share for one in found] == pytest.approx([1 / 27, 2 / 27, 2 / 9, 2 / 3])
    fresh = Halving(fresh=True).stages(27, 9)
    assert [one.share for one in fresh] == pytest.approx([1 / 27, 1 / 9, 1 / 3, 1])
    assert [one.trials for one in Halving(eta=2, rungs=2).stages(9, 9)] == [9, 4]
    assert took("halving", 27, 9, serial=1.0, node=1) == pytest.approx(WORK * (3 / 27 + 26 / 27))


def test_generations_by_hand() -> None:
    """56.3 · 11^(-0.356) = 23.97 generations of 11 are 264 trials; 12 at a time would be 288."""
    (one,) = Genetic().stages(272, 128)
    assert (one.trials, one.times) == (11, 24)
    (one,) = Genetic(population=16).stages(272, 128)
    assert (one.trials, one.times) == (16, 17)
    (one,) = Genetic(per_worker=1.69).stages(None, 64)
    assert (one.trials, one.times) == (108, 11)  # as published of 64 nodes
    assert took("genetic", 272, 1, node=1, serial=1.0) == pytest.approx(WORK * 24 * 11)


def test_a_parent_has_all_nodes_and_children_share_them() -> None:
    asked: Any = Scaled(asked_of("transfer", 8, share=0.25), 0.0, 1)
    parent, children = campaign(asked, 16).parts
    assert (parent.trial.devices, parent.at_once) == (16, 1)
    assert parent.seconds == pytest.approx(WORK / 16)
    assert children.seconds == pytest.approx(0.25 * WORK * 8 / 16)
    assert Transfer().stages(3, 1)[0].share == 1


def test_room_by_hand() -> None:
    assert [room(d, 8, 4) for d in (1, 2, 4, 8, 12, 6)] == [32, 16, 8, 4, 2, 4]


def test_what_trials_share() -> None:
    where = oracle.system("abci")
    assert shared(where, 1) is where
    one = shared(where, 8, 4)
    assert one.storage.shared.bandwidth == where.storage.shared.bandwidth / 8
    assert (one.host.cores, one.host.memory) == (10, where.host.memory)
    assert one.storage.local.read == 0.8e9


# --- laws --------------------------------------------------------------------------------------

some = settings(max_examples=25, deadline=None)


@pytest.mark.parametrize("kind", KINDS)
@some
@given(trials=st.integers(100, 400), nodes=st.integers(1, 60), more=st.integers(0, 60),
       serial=st.floats(0, 1), node=st.sampled_from([1, 4]))  # fmt: skip
def test_more_nodes_are_never_slower(
    kind: str, trials: int, nodes: int, more: int, serial: float, node: int
) -> None:
    few, many = (took(kind, trials, n, serial, node) for n in (nodes, nodes + more))
    assert many <= few * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@some
@given(trials=st.integers(100, 400), nodes=st.integers(1, 60), serial=st.floats(0, 1))
def test_nothing_is_faster_than_its_work_dealt_out_evenly(
    kind: str, trials: int, nodes: int, serial: float
) -> None:
    asked: Any = Scaled(asked_of(kind, trials), serial, 4)
    found = campaign(asked, nodes, alone=False)
    stages = asked.asked.search.search.stages(trials, found.main.at_once)
    work = sum(one.trials * one.share * one.times for one in stages) * WORK
    assert found.seconds * nodes * 4 >= work * (1 - 1e-9)
    assert 0 < found.busy <= 1
    assert found.seconds >= max(one.share for one in stages) * WORK / (nodes * 4)


@some
@given(trials=st.integers(1, 400), nodes=st.integers(1, 60), serial=st.floats(0, 1),
       eta=st.sampled_from([2.0, 3.0, 4.0]))  # fmt: skip
def test_halving_takes_no_longer_than_the_grid(
    trials: int, nodes: int, serial: float, eta: float
) -> None:
    grid = took("grid", trials, nodes, serial)
    rungs = took("halving", trials, nodes, serial, eta=eta)
    assert rungs <= grid * (1 + 1e-9)
    assert took("halving", trials, nodes, serial, eta=eta, regroup=True) <= rungs * (1 + 1e-9)
    fresh = took("halving", trials, nodes, serial, eta=eta, fresh=True)
    assert rungs <= fresh * (1 + 1e-9)
    assert fresh <= grid * eta / (eta - 1) * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["ensemble", "random", "grid", "halving"])
def test_one_of_them_is_one_training(kind: str) -> None:
    assert took(kind, 1, 8) == pytest.approx(WORK * (0.1 + 0.9 / 32))


def test_many_at_once_wait_for_the_slowest() -> None:
    for trials, workers in ((16, 16), (272, 64), (5, 4)):
        assert all(makespan(trials, workers, spread) >= trials / workers
                   for spread in (0.0, 0.1, 0.2, 0.4))  # fmt: skip
    rows = [makespan(64, workers, 0.2) for workers in (1, 2, 4, 8, 16, 32, 64)]
    assert rows == sorted(rows, reverse=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_says_what_it_is(kind: str) -> None:
    new, known = searches()[kind], (ROOT / "oracle" / "citations.bib").read_text(encoding="utf-8")
    assert f"{{{new.source.split(',')[0]}," in known
    assert "=" in (new.__doc__ or ""), "its docstring has the equation"
    assert [one.trials for one in new().stages(200, 8)]


# --- published ---------------------------------------------------------------------------------


def test_the_published_search_beyond_its_fitted_rows() -> None:
    found = published.table(quick=True)["figures"]
    assert found["genetic.beyond"]["value"] <= 0.15
    assert found["genetic.beyond_by_generations"]["value"] <= 0.15
    assert found["genetic.shipped_mean"]["value"] <= 0.1
    assert found["combined.product"]["value"] <= 0.05
    assert found["closed_form.worst"]["value"] <= 0.05


def test_the_shipped_law_is_that_of_all_rows() -> None:
    first, shrink = published.generations(published.published())
    assert (Genetic().first, Genetic().shrink) == pytest.approx((first, shrink), rel=1e-3)


def test_data_by_model_by_population() -> None:
    """16 × 8 × 16 = 2,048 nodes of one device."""
    found = oracle.workflow("mnist-genetic", "piz-daint", 2048, plan="data:16 filter:8",
                            search="genetic,population=16")  # fmt: skip
    assert (found.main.at_once, found.main.trial.devices, found.idle) == (16, 128, 0)
    assert found.main.stage.times == 21  # 56.3 · 16^(-0.356) = 20.98


# --- predicted ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_member_is_one_training_of_the_fastest_plan() -> None:
    found = oracle.workflow(
        "resnet50", "abci", 4, search="ensemble", trials=1, epochs=90, batch=512
    )
    best = oracle.recommend("resnet50", "abci", devices=16, batch=512, epochs=90).estimate
    one = found.main.trial
    assert (one.plan, one.devices) == (best.plans[0], 16)
    steps = one.training.length.steps * float(best.seconds[0])
    rest = best.reading[0]["once"] + (one.training.evaluation or 0.0)
    assert found.seconds == pytest.approx(steps + rest)
    assert found.costs.device_hours == pytest.approx(found.seconds * 16 / 3600)


@pytest.mark.slow
def test_the_product_says_too_much_where_batches_end() -> None:
    """One trial at a time has to spread its batch ever more thinly; the product does not know."""
    trials = opened("resnet50", "abci", {"search": "ensemble", "trials": 2, "batch": 1024,
                                         "epochs": 90}, [64])  # fmt: skip
    few, many = combined(trials, [1, 64]).lines
    assert few.overstated == pytest.approx(1, abs=0.05)
    assert many.overstated is not None
    assert many.overstated > 1.2
    assert many.cause == "steps"
    assert many.overstated == pytest.approx(math.prod(many.losses.values()))
    assert all(each.campaign.main.trial.batch <= 1024 for each in (few, many))


# --- the verb ----------------------------------------------------------------------------------


def test_the_first_line_answers(capsys: Any) -> None:
    code, out, err = told(capsys, *ASKED)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert ": 8 trials at once on 2 devices each, " in lines[0]
    assert lines[-1].startswith("next: oracle explain resnet50 abci --plan data:2 ")
    assert "32 trials in 4 waves of 8" in out
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    code, table, _ = told(capsys, *ASKED, "--nodes", "1..1024", "--search", "halving")
    assert code == 0
    assert len(table.splitlines()) <= 24
    assert max(map(len, table.splitlines())) <= 80


@pytest.mark.parametrize("more", [[], ["--table"]])
def test_each_format(capsys: Any, more: list[str]) -> None:
    found = json.loads(told(capsys, *ASKED, *more, "--json")[1])
    schema = contract.answer("workflow")
    jsonschema.validate(found, schema)
    jsonschema.validate(found, closed(schema))
    one = found["campaigns"][-1]
    assert (one["nodes"], one["at_once"], one["nodes_each"]) == (4, 8, 0.5)
    assert one["speedup"] == pytest.approx(one["one_node"] / one["seconds"])
    assert "spread" in one["unknown"]
    rows = told(capsys, *ASKED, *more, "--format", "csv")[1].splitlines()
    assert len(rows) == (4 if more else 2)


def test_a_file_asks_what_a_line_asks(capsys: Any, tmp_path: Any) -> None:
    (tmp_path / "own.yaml").write_text(
        "name: own\nsource: me\nmodel: resnet50\nsearch: grid\ntrials: 32\nepochs: 90\n"
        "max_batch: 512\nplan: data:2\n"
    )
    file = str(tmp_path / "own.yaml")
    line = ["workflow", file, "abci", "--nodes", "4", "--search", "random", "--batch", "128"]
    of_file, of_line = told(capsys, *line)[1], told(capsys, *ASKED)[1]
    assert of_file.partition("\nnext: ")[0] == of_line.partition("\nnext: ")[0]
    assert workflow(file, batch=64).max_batch is None
    assert workflow(file, steps=10, batch=64).epochs is None
    assert told(capsys, "specs", "check", file)[0] == 0


def test_what_is_wrong_is_said_at_once(capsys: Any, tmp_path: Any) -> None:
    (tmp_path / "bad.yaml").write_text(
        "name: bad\nmodel: resnet50\nsearch: {kind: halving, etta: 3}\ntrials: 0\nepoks: 9\n"
        "spread: 7\n"
    )
    code, out, err = told(capsys, "workflow", str(tmp_path / "bad.yaml"), "abci", "--nodes", "4")
    assert (code, out) == (2, "")
    for word in ("bad.yaml:3:", "did you mean `eta`", "bad.yaml:4:", "did you mean `epochs`",
                 "bad.yaml:6:"):  # fmt: skip
        assert word in err, word


@pytest.mark.parametrize(("more", "says"), [
    (["--trials", "0"], "whole number from 1 on"),
    (["--search", "gentic"], "did you mean `genetic`?"),
    (["--search", "genetic,populaton=3"], "did you mean `population`?"),
    (["--search", "halving,rungs=9"], "at most 4"),
    (["--search", "genetic"], "32 trials are too few"),
    (["--nodes", "2..4096"], "4096 nodes, but abci has 1088"),
    (["--nodes", ""], "no number of nodes"),
    (["--nodes", "few"], "cannot read `few`"),
    (["--plan", "data:64"], "a trial of 64 devices, on 16"),
    (["--plan", "data:foo"], "`foo` is not a degree"),
    (["--spread", "2"], "a spread from 0 to 1"),
    (["--max-batch", "64"], "not allowed with argument"),
    (["--precision", "fp64"], "fp64"),
])  # fmt: skip
def test_odd_words_are_refused(capsys: Any, more: list[str], says: str) -> None:
    code, out, err = told(capsys, *ASKED, *more)
    assert (code, out) == (2, "")
    assert says in err


def test_what_nobody_says_is_asked_for(capsys: Any) -> None:
    code, _, err = told(capsys, "workflow", "vgg16", "abci", "--nodes", "5000", "--trials", "4")
    assert code == 2
    for word in ("nobody says how long vgg16", "--max-batch", "abci has 1088"):
        assert word in err


@pytest.mark.slow
def test_nothing_fits_is_an_answer(capsys: Any) -> None:
    code, out, _ = told(capsys, "workflow", "llama3-405b", "abci", "--nodes", "1", "--trials", "2",
                        "--tokens", "1B", "--batch", "8")  # fmt: skip
    assert code == 1
    assert out.startswith("Nothing fits on 1 node\n")
    assert "needs" in out
    _, out, _ = told(capsys, *ASKED[:3], "--nodes", "2", "--trials", "2", "--epochs", "9",
                     "--batch", "4096", "--plan", "data:4")  # fmt: skip
    assert "4 devices, data:4: needs" in out


def test_where_one_node_is_too_small_nothing_is_said_of_it() -> None:
    found = oracle.workflow("gpt2-xl", "abci", 16, trials=2, tokens=1e9, batch=64,
                            plan="data:4 tensor:4 pipeline:2,segments=16")  # fmt: skip
    assert found.parts
    assert (found.one_node, found.speedup) == (None, None)

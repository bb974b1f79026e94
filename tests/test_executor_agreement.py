"""Replicas that compress, serve or average really do so, and send the words that are priced."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from oracle.executor.local.graph import graph
from oracle.executor.ranks import records
from oracle.executor.ranks.launch import DONE, Host, launch
from oracle.network.collectives import named
from oracle.network.collectives.sparse import switched
from oracle.plan.plan import parse

# ranks wait for each other, and for the machine
pytestmark = [pytest.mark.slow, pytest.mark.flaky(reruns=1)]
HERE = Path(__file__).parent
RANKS, LENGTH, COUNT, STEPS, BATCH = 4, 4096, 64, 12, 8
MODEL = {
    "name": "small", "source": "made up", "input": [8, 8, 8],
    "layers": [
        {"conv": {"filters": 16, "kernel": 3, "padding": 1}}, "relu", "flatten",
        {"dense": 32}, "relu", {"dense": 16},
    ],
}  # fmt: skip
LOSSY = [
    "data:4,compress=topk,density=0.1", "data:4,compress=topk,density=0.1,sparse=pairwise",
    "data:4,compress=topk,density=0.1,sparse=gtopk",
    "data:4,compress=topk,density=0.1,sparse=oktopk",
    "data:4,compress=topk,density=0.1,sparse=switching",
    "data:4,compress=powersgd,rank=2", "data:4,compress=onebit", "data:4,compress=fp16",
    "data:4,sync=4", "data:4,compress=topk,density=0.1,feedback=off",
]  # fmt: skip
EXACT = ["data:4,servers=1", "data:4,servers=2", "data:4,servers=4"]
PLANS = [("serial", ""), ("data:4", ""), ("data:4", "torus2d:2"),
         *((plan, "") for plan in (*LOSSY, *EXACT))]  # fmt: skip


@pytest.fixture(scope="module")
def proved(tmp_path_factory: Any) -> Any:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("agreement")
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    arguments = {"length": LENGTH, "count": COUNT, "servers": [1, 2, 4], "rows": [2],
                 "plans": PLANS, "model": MODEL, "batch": BATCH, "steps": STEPS,
                 "rate": 0.05}  # fmt: skip
    host = Host(environment=lambda rank: {"PYTHONPATH": path})
    outcome = launch("agreement_tasks:prove", arguments, folder, ranks=RANKS, timeout=180,
                     trust=True, host=host, backend="ordered")  # fmt: skip
    assert outcome.code == DONE, outcome.message
    return records.of_all_ranks(folder, RANKS)


@pytest.mark.slow
def test_words_of_each_algorithm_are_those_of_its_closed_form(proved: Any) -> None:
    chosen = COUNT * (8 + 4.0)  # values of 64 bits and places
    p = RANKS
    for name in ("pairwise", "gtopk", "oktopk", "switching", "allgather"):
        ranks = proved[name]
        one_way = max(max(each["sent"], each["heard"]) for each in ranks)
        both = max(each["sent"] + each["heard"] for each in ranks)
        if name == "allgather":
            assert one_way == named("allgather", "ring").volume(p) * p * chosen
        elif name == "switching":  # places are independent here: the mean over ranks comes near
            dense = 8.0 * LENGTH
            due = named("sparse_allreduce", name).volume(p) * dense
            due *= switched(COUNT / LENGTH, p, 4 / 8).mean()
            mean = sum(each["sent"] for each in ranks) / p
            assert mean == pytest.approx(due, rel=0.03)
        elif name == "oktopk":
            mean = sum(each["sent"] for each in ranks) / p
            assert mean == pytest.approx(
                named("sparse_allreduce", name).volume(p) * chosen, rel=0.05
            )
        else:  # a send and a receive each have a step of their own
            assert both == named("sparse_allreduce", name).volume(p) * chosen
    for k in (1, 2, 4):
        one_way = max(max(each["sent"], each["heard"]) for each in proved[f"servers:{k}"])
        pushed = named("allreduce", f"servers:{k}").volume(p) * LENGTH * 8 / 2
        server = (p - 1) / k + (k - 1) / k  # hears workers push, and other servers answer
        assert one_way == pytest.approx(server * LENGTH * 8)
        assert one_way >= pushed
    grid = max(each["sent"] for each in proved["torus2d:2"])
    assert grid == named("allreduce", "torus2d:2").volume(p) * LENGTH * 8


@pytest.mark.slow
def test_sums_are_sums(proved: Any) -> None:
    for name in ("allgather", "pairwise", "switching"):  # the sum of what each selected
        assert len({round(each["sum"], 9) for each in proved[name]}) == 1
        assert {each["entries"] for each in proved[name]} == {proved["allgather"][0]["entries"]}
        assert proved[name][0]["sum"] == pytest.approx(proved["allgather"][0]["sum"])
    for name in ("gtopk", "oktopk"):  # no more than were asked for, the same on all
        assert len({round(each["sum"], 9) for each in proved[name]}) == 1
        assert {each["entries"] for each in proved[name]} == {COUNT}
    for name in ("servers:1", "servers:2", "servers:4", "torus2d:2"):
        assert max(each["error"] for each in proved[name]) < 1e-12


def loss(proved: Any, plan: str, by: str = "") -> list[float]:
    ranks = [each for each in proved[f"{plan} {by}"] if each["loss"]]
    return [sum(each["loss"][step] for each in ranks) for step in range(STEPS)]


@pytest.mark.parametrize("plan", [*EXACT, "data:4", "torus"])
def test_what_loses_nothing_trains_as_one_device(proved: Any, plan: str) -> None:
    told = ("data:4", "torus2d:2") if plan == "torus" else (plan, "")
    assert loss(proved, *told) == pytest.approx(loss(proved, "serial"), rel=1e-9)
    serial = proved["serial "][0]["weights"]
    for each in proved[" ".join(told)]:
        assert each["weights"] == pytest.approx(serial, rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("plan", LOSSY)
def test_what_loses_something_still_learns(proved: Any, plan: str) -> None:
    found, dense = loss(proved, plan), loss(proved, "data:4")
    assert found[-1] < found[0]
    gained = (found[0] - found[-1]) / (dense[0] - dense[-1])
    assert gained > (0.3 if "feedback=off" in plan else 0.5)
    ranks = proved[f"{plan} "]
    for each in ranks[1:]:  # replicas stay replicas
        assert each["weights"] == pytest.approx(ranks[0]["weights"], rel=1e-9, abs=1e-12)


def test_feedback_gives_back_what_was_left_out(proved: Any) -> None:
    with_rest, without = (loss(proved, f"data:4,compress=topk,density=0.1{word}")[-1]
                          for word in ("", ",feedback=off"))  # fmt: skip
    assert with_rest < without


@pytest.mark.parametrize("plan", [*LOSSY, *EXACT, "data:4"])
def test_bytes_are_those_of_talk(proved: Any, plan: str) -> None:
    from oracle.executor.messages.expected import expected_messages  # which loads torch

    ranks = proved[f"{plan} "]
    sent: dict[str, float] = {}
    for each in ranks:
        for what, (_, _, nbytes) in each["sent"].items():
            sent[what] = sent.get(what, 0.0) + nbytes / STEPS
    stages = [tuple(stage) for stage in ranks[0]["stages"]]
    talk = expected_messages(graph(MODEL), parse(plan, BATCH), 8.0, stages)
    due = {each.label: each.nbytes for each in talk}
    assert set(sent) == set(due)
    # entries are whole, signs come in bytes; how sums fill up depends on what is selected
    near = 0.25 if "switching" in plan else 0.01
    for what, nbytes in due.items():
        assert sent[what] == pytest.approx(nbytes, rel=near), what

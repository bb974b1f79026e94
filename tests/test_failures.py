"""Goodput in the hours of a training: by hand, by law, on the command line."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from conftest import SYSTEM, TRANSFORMER
from hypothesis import given as draws
from hypothesis import settings
from hypothesis import strategies as st

import oracle
from oracle.ask.ending import first_to_end
from oracle.ask.explain.failing import of_failing
from oracle.commands.cli import main
from oracle.run.checkpoints import Saving, State, saving, state_of
from oracle.run.failures import goodput_of
from oracle.run.target import given, training
from oracle.spec.running import Checkpoint, Reliability, Slow
from oracle.spec.told import as_said

HOUR, DAY = 3600.0, 86400.0
STORED = {
    "storage": {
        "source": "made up",
        "shared": {"bandwidth": "20 GB/s", "write": "10 GB/s", "per_node": "1 GB/s",
                   "metadata": "100 M/s", "open": "1 us", "streams": 4},
        "local": {"read": "4 GB/s", "write": "2 GB/s", "capacity": "1 TB", "open": "1 us"},
    },
    "host": {"memory": "512 GB", "cores": 32, "bandwidth": "100 GB/s", "source": "made up"},
    "reliability": {
        "mtbf": "2 kh", "restart": "10 min", "detect": "2 min", "repair": "5 h", "spares": 0.05,
        "preempted": "1/day", "notice": "2 min", "slow": {"share": 0.001, "factor": 1.5},
        "factor": 3, "source": "made up",
    },
    "checkpoint": {"how": "sharded", "every": "20 min"},
}  # fmt: skip


def made(**changed: Any) -> Any:
    """A system that says everything; `reliability=…` and others in place of what it says."""
    tree = {**copy.deepcopy(SYSTEM), **copy.deepcopy(STORED), **changed}
    tree["device"] = {**tree["device"], "host_link": "10 GB/s"}
    return oracle.system(tree)


def shown(where: Any, plan: str = "data:16", batch: int = 64, **more: Any) -> Any:
    return oracle.estimate(TRANSFORMER, where, plan, batch, precision="bf16", optimizer="adam",
                           **more)  # fmt: skip


def trained(where: Any, plan: str = "data:16", steps: float = 1e7, **more: Any) -> Any:
    found = shown(where, plan, **more)
    return training(found, 0, given(found, steps=steps))


# --- bytes and seconds by hand ---------------------------------------------------------------


@pytest.mark.parametrize(("plan", "held", "part"), [
    ("data:8", 1, 8), ("data:8,zero=3", 8, 8), ("data:4 tensor:2", 2, 8),
    ("data:8,zero=1", 14 / (2 + 12 / 8), 8), ("serial", 1, 1),
])  # fmt: skip
def test_state_by_hand(plan: str, held: float, part: float) -> None:
    """8,030,261,248 weights of Llama-3 8B at 14 bytes; what replicas share they write in turn."""
    found = oracle.estimate("llama3-8b", "dgx-h100", plan, 64, any_plan=True)
    state, whole = state_of(found), 14 * 8_030_261_248
    assert state.whole == whole
    assert state.each == pytest.approx(14)
    assert state.held == pytest.approx(whole / held, rel=0.001)
    assert state.part == pytest.approx(whole / part, rel=0.001)


@pytest.mark.parametrize(("model", "options", "each"), [
    ("resnet50", {}, 8), ("resnet50", {"optimizer": "adam"}, 12),
    ("resnet50", {"optimizer": "sgd"}, 4), ("gpt2", {"precision": "fp32"}, 12),
    ("gpt2", {"software": "pytorch-fsdp"}, 12), ("gpt2", {"optimizer": "sgd"}, 6),
    ("deepseek-v3", {"software": "hai-llm", "precision": "fp8"}, 10),
])  # fmt: skip
def test_bytes_a_parameter_are_those_of_optimizer_and_software(
    model: str, options: dict[str, str], each: float
) -> None:
    """fp32: 4 and the optimizer's; mixed: 2, a master of 4, moments; HAI-LLM's moments are 16-bit.

    Copies in 8 bits are made anew.
    """
    found = oracle.estimate(model, "dgx-h100", "data:8", 64, any_plan=True, **options)
    assert state_of(found).each == pytest.approx(each, rel=0.01)


def test_adapters_alone_are_saved() -> None:
    whole, adapters = (
        state_of(oracle.estimate(name, "dgx-h100", "data:8", 64, any_plan=True))
        for name in ("llama3-8b", "llama3-8b,train=lora:16")
    )
    assert adapters.whole < 0.01 * whole.whole
    assert adapters.each == pytest.approx(14)


# 64 GB of a job of 16 devices on four nodes, 4 GB each; node ports of 24 GB/s
STATE = State(64e9, 64e9, 4e9, 16.0, 64e9 / 14)
WAYS = {
    # copied at 10 GB/s a device; four nodes write 4 GB/s; then each node reads all of it
    ("sharded", "shared"): (0.4 + 16.0, 0.0), ("async", "shared"): (0.4, 16.0),
    # all there is: copied in 6.4 s, written by one node
    ("rank0", "shared"): (6.4 + 64.0, 0.0),
    # twice 16 GB to a node's disks at 2 GB/s; 16 GB over its ports
    ("sharded", "local"): (0.4 + 16.0, 0.0), ("async", "local"): (0.4, 16.0),
    ("sharded", "host"): (0.4 + 16 / 24, 0.0), ("async", "host"): (0.4, 16 / 24),
}  # fmt: skip


@pytest.mark.parametrize(("how", "to"), WAYS)
def test_seconds_of_a_checkpoint_by_hand(how: Any, to: Any) -> None:
    seconds, later = WAYS[how, to]
    found = Saving.of(made(), STATE, Checkpoint(how, to))
    assert found.seconds == pytest.approx(seconds, rel=1e-3)
    assert found.safe_after == pytest.approx(later, rel=1e-3)
    assert not found.unknown
    assert not found.lacks
    # one replica's nodes read 64 GB at 4 GB/s and pass it on, sooner than each all of it
    back = {"shared": 64 / 24 + (64 if how == "rank0" else 16), "host": 64 / 24,
            "local": max(16 / 4, 64 / 24)}[to]  # fmt: skip
    assert found.load == pytest.approx(back + 6.4, rel=1e-3)


def test_what_has_no_room_is_said() -> None:
    small = made(host={**STORED["host"], "memory": "20 GB"})
    assert (
        "hosts of 18.6 GiB lack room" in Saving.of(small, STATE, Checkpoint("async", "host")).lacks
    )
    assert not Saving.of(small, STATE, Checkpoint("async")).lacks
    kept = Saving.of(made(), STATE, Checkpoint("sharded", "local", keep=40))
    assert "disks of 931 GiB a node lack room for 1.16 TiB" in kept.lacks
    alone = Saving.of(made(), replace(STATE, devices=4.0), Checkpoint("async", "host"))
    assert alone.lacks == "what lies on the only node is lost with it"
    found = trained(as_said(small, checkpoint="async,to=host,keep=9999"))
    assert found.goodput.to_dict()["impossible"]
    assert found.seconds == trained(as_said(made(), "none")).seconds / found.goodput.slow**-1


# --- hours -----------------------------------------------------------------------------------


def test_hours_by_hand() -> None:
    """16 devices of 2 kh: a failure in 125 h; 12 min and the load until a job goes on."""
    where = made(reliability={"mtbf": "2 kh", "restart": "10 min", "detect": "2 min",
                              "source": "made up"})  # fmt: skip
    found, plain = trained(where), trained(as_said(where, "none"))
    told = found.goodput.to_dict()
    assert told["failures_per_hour"] == pytest.approx(1 / 125)
    assert told["interval"] == 1200
    load = saving(shown(where)).load
    assert told["restart_seconds"] == pytest.approx(720 + load)
    seconds = saving(shown(where)).seconds
    lost = (1200 + seconds) / 2 / (125 * HOUR)  # first order
    share = 1200 / (1200 + seconds) * (1 - lost - (720 + load) / (125 * HOUR))
    assert told["progress"] == pytest.approx(share, rel=1e-4)
    assert found.seconds == pytest.approx(plain.seconds / told["progress"])
    assert found.device_hours == pytest.approx(16 * found.seconds / 3600)
    assert sum(told[name] for name in ("progress", "checkpoints", "lost", "restarts", "waiting",
                                       "away")) == pytest.approx(1)  # fmt: skip
    assert found.low < found.seconds < found.high
    assert found.high / found.seconds > plain.high / plain.seconds


def test_a_step_is_the_shortest_interval() -> None:
    """Where it would be shorter otherwise, and where it is asked to be."""
    where = as_said(made(checkpoint={"how": "async"}), "3 h,restart=1 s,preempted=0.001/h")
    one = shown(where, "data:8", batch=2**17)
    step = goodput_of(one).step
    assert step > 15
    for way in ("to=host", "to=host,every=1 s"):
        other = replace(one, system=as_said(where, None, way))
        assert goodput_of(other).to_dict()["interval"] == step


def test_failures_of_nodes_and_in_1000_node_days() -> None:
    nodes = Reliability("", mtbf=1000 * DAY, per="node")
    often = Reliability("", per_1000_node_days=1.0)
    assert nodes.rate(16, 8) == pytest.approx(2 / (1000 * DAY)) == often.rate(16, 8)
    assert Reliability("", mtbf=1000 * DAY).rate(16, 8) == pytest.approx(16 / (1000 * DAY))


def test_what_nobody_says_is_unknown() -> None:
    """The hours are then those without failures."""
    where = oracle.system(SYSTEM)
    found = trained(where).goodput
    assert found.unknown == ("reliability.mtbf", "reliability.restart", "storage.shared")
    told = found.to_dict()
    assert told["progress"] is told["checkpoint_seconds"] is told["interval"] is None
    assert told["checkpoint_bytes"] > 0
    assert found.times == 1
    half = trained(as_said(where, "50 kh", "async,to=host"))
    assert half.goodput.unknown == ("reliability.restart",)
    assert half.seconds == trained(where).seconds
    assert trained(as_said(where, "50 kh,restart=1 h", "to=local")).goodput.unknown == (
        "storage.local",
    )
    ideal = shown(made(), ideal=True)
    assert goodput_of(ideal).to_dict()["progress"] is None


def test_slow_devices_by_hand() -> None:
    """Of 16 devices each with 0.1 % slow by 1.5: 1.0079 of the work, and nothing of the rest."""
    where = made(reliability={"slow": {"share": 0.001, "factor": 1.5}, "source": "made up"})
    found, one = goodput_of(shown(where)), shown(where)
    work = sum(float(one.compute[part][0]) for part in ("forward", "backward", "update"))
    expected = 1 + work / float(one.seconds[0]) * 0.5 * (1 - 0.999**16)
    assert found.slow == pytest.approx(expected)
    assert trained(where).seconds == pytest.approx(
        expected * trained(made(reliability=None)).seconds
    )
    words = dict(of_failing(one))
    assert "one at least with 2%" in words["unequal devices"]
    every = goodput_of(shown(made(reliability={"slow": {"share": 1.0, "factor": 1.5},
                                               "source": "made up"})))  # fmt: skip
    assert every.slow == pytest.approx(1 + 0.5 * work / float(one.seconds[0]))
    assert every.spread(1.0) == (0.0, 0.0)


def test_elastic_wants_replicas() -> None:
    where = as_said(made(), "elastic,spares=0,repair=1 day,mtbf=200 h", "every=10 min")
    found = trained(where, "data:16").goodput.to_dict()
    assert found["away"] > 0
    assert found["waiting"] < 1e-6
    stops = trained(where, "tensor:8").goodput.to_dict()
    assert stops["away"] == 0
    assert stops["waiting"] > 0.1


def test_notice_saves_work() -> None:
    hasty, told = (
        trained(as_said(made(reliability=None), f"2 kh,restart=10 min,preempted=6/day,notice={t}",
                        "every=3 h")).goodput.to_dict()
        for t in ("0 s", "1 h")
    )  # fmt: skip
    assert told["progress"] > hasty["progress"] + 0.1
    assert told["failures_per_hour"] == hasty["failures_per_hour"]


# --- laws ------------------------------------------------------------------------------------


def turned(tree: Any, path: tuple[str, ...], by: float) -> Any:
    """The tree with a number of it multiplied."""
    found = copy.deepcopy(tree)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    value = inner[path[-1]]
    number, _, unit = str(value).partition(" ")
    inner[path[-1]] = f"{float(number) * by:g} {unit}".strip() if unit else value * by
    return found


NUMBERS = [
    *(("reliability", key) for key in ("mtbf", "restart", "detect", "repair", "spares", "factor")),
    ("reliability", "slow", "share"), ("reliability", "slow", "factor"), ("checkpoint", "every"),
    ("storage", "shared", "write"), ("storage", "shared", "per_node"),
]  # fmt: skip
WORDS = {
    "reliability": ({"per": "node"}, {"preempted": "2/day"}, {"notice": "0 s"}, {"elastic": True},
                    {"mtbf": None, "per_1000_node_days": 6.5}, {"of": "another"}),
    "checkpoint": ({"how": "async"}, {"how": "rank0"}, {"to": "host"}, {"to": "local"},
                   {"to": "local", "keep": 10**6}),
}  # fmt: skip


def answer(tree: Any, plan: str = "data:64 tensor:2") -> str:
    where = oracle.system(tree)
    one = trained(where, plan)
    return json.dumps([one.to_dict(), one.low, one.high])


def whole() -> Any:
    tree = {**copy.deepcopy(SYSTEM), **copy.deepcopy(STORED)}
    tree["reliability"]["mtbf"] = "200 h"
    tree["device"]["host_link"] = "10 GB/s"
    return tree


@pytest.mark.parametrize("path", NUMBERS, ids=".".join)
def test_every_number_counts(path: tuple[str, ...]) -> None:
    tree = whole()
    assert any(answer(turned(tree, path, by)) != answer(tree) for by in (4.0, 0.25))


@pytest.mark.parametrize("block", WORDS)
def test_every_word_counts(block: str) -> None:
    before = answer(whole())
    for changed in WORDS[block]:
        tree = whole()
        tree[block].update(changed)
        tree[block] = {key: value for key, value in tree[block].items() if value is not None}
        assert answer(tree) != before, changed


def test_every_key_is_tried() -> None:
    tried = {path[1] for path in NUMBERS if len(path) > 1}
    tried |= {key for each in WORDS.values() for one in each for key in one}
    for kind in (Reliability, Checkpoint):
        assert set(kind.__dataclass_fields__) - tried <= {"slow", "source", "shorthand"}
    assert set(Slow.__dataclass_fields__) == {"share", "factor"}


@settings(max_examples=25, deadline=None)
@draws(st.floats(1e2, 1e6), st.floats(1.0, 2e4), st.floats(0.0, 2e5), st.sampled_from(
    ["sharded", "async", "rank0"]), st.sampled_from([0.0, 0.05]), st.booleans())  # fmt: skip
def test_more_devices_and_slower_storage_never_help(
    hours: float, restart: float, repair: float, how: Any, spares: float, elastic: bool
) -> None:
    said = Reliability("", mtbf=hours * HOUR, restart=restart, repair=repair, spares=spares,
                       elastic=elastic)  # fmt: skip
    where = replace(made(), reliability=said, checkpoint=Checkpoint(how))
    found = {p: goodput_of(FOUND[p]) for p in FOUND}
    shares = {}
    for p, one in found.items():
        save = replace(one.saving, system=where, way=where.checkpoint)
        shares[p] = replace(one, saving=save, reliability=said).progress
    assert 0 < shares[16] <= 1
    assert 0 <= shares[64] <= shares[16] * (1 + 1e-9)
    save = replace(found[16].saving, system=where, way=where.checkpoint)
    worse = replace(save, machine=save.machine.turned("storage.shared.per_node", 0.5))
    slower = replace(found[16], saving=worse, reliability=said).progress
    assert slower <= shares[16] * (1 + 1e-9)


FOUND = {p: shown(made(), f"data:{p}") for p in (16, 64)}


# --- plans and words -------------------------------------------------------------------------


def test_plans_are_ranked_by_when_they_end() -> None:
    """Rank 0 gathers and writes all of it, which shows where checkpoints are frequent."""
    ranking = oracle.recommend(TRANSFORMER, made(), 64, 256, top=10, precision="bf16")
    often = as_said(ranking.estimate.system, "40 h,restart=1 s,detect=0 s,spares=0", "rank0")
    hard = replace(ranking, estimate=replace(ranking.estimate, system=often))
    ends = lambda one, row: given(one, row, steps=1e6)  # noqa: E731
    found = first_to_end(hard, ends, 5)
    hours = [training(found.estimate, row, ends(found.estimate, row)).seconds for row in range(5)]
    assert hours[0] <= min(hours) * 1.01
    assert len(found) == 5
    assert set(found.estimate.plans) | set(found.rivals.plans) == (
        set(ranking.estimate.plans) | set(ranking.rivals.plans)
    )
    plain = replace(often, reliability=None)
    same = first_to_end(replace(hard, estimate=replace(hard.estimate, system=plain)), ends, 10)
    assert same.estimate.plans == ranking.estimate.plans


LINE = ["estimate", "llama3-8b", "dgx-h100", "--plan", "data:64,zero=1 tensor:2", "--batch",
        "1024", "--tokens", "15T"]  # fmt: skip


def told(capsys: Any, *line: str) -> tuple[int, str, str]:
    code = main(list(line))
    out, err = capsys.readouterr()
    return code, " ".join(out.split()), err


def test_answers_in_text_and_json(capsys: Any) -> None:
    _, out, _ = told(capsys, *LINE, "--failures", "50 kh,restart=10 min", "--checkpoint",
                     "async,every=30 min")  # fmt: skip
    assert "checkpoints (async to shared, 105 GiB in " in out
    assert "ms, each 30 min), " in out
    assert "a failure each 16.3 days, restarts of 10 min" in out
    _, out, _ = told(capsys, *LINE, "--json")
    one = json.loads(out)["plans"][0]["training"]["goodput"]
    assert one["of"] == "Meta's H100"
    assert one["failures_per_hour"] == pytest.approx(128 / 50.7e3)
    assert one["unknown"] == []
    _, out, _ = told(capsys, *LINE, "--failures", "none")
    assert "failures not counted: reliability.mtbf, reliability.restart unknown" in out
    _, out, _ = told(capsys, "explain", *LINE[1:-2], "--failures", "50 kh,restart=10 min",
                     "--full")  # fmt: skip
    assert "%: a checkpoint every" in out
    assert "14 B a parameter, stops training for" in out


@pytest.mark.parametrize(("words", "said"), [
    (["--checkpoint", "asinc"], "did you mean `async`?"),
    (["--checkpoint", "async,evry=3 min"], "did you mean `every`?"),
    (["--checkpoint", "async,to=disk"], "`shared`, `local`, `host`"),
    (["--checkpoint", "async,every=3"], "a number needs its unit here"),
    (["--checkpoint", "async,every=0 s"], "no time is left to train"),
    (["--checkpoint", "rank0,to=host"], "a checkpoint of rank 0 alone is lost with its node"),
    (["--checkpoint", "async,,keep=2"], "nothing stands between two commas"),
    (["--failures", "50"], "a number needs its unit here: write `50 s`"),
    (["--failures", "50 kh,restrat=4 s"], "did you mean `restart`?"),
    (["--failures", "50 kh,elastc"], "did you mean `elastic`?"),
    (["--failures", "50 kh,elastic"], "nobody says how long what failed is away"),
    (["--failures", "0 s"], "nothing fails all the time"),
    (["--failures", "50 kh,per_1000_node_days=3"], "is said twice"),
    (["--failures", "50 kh,per=rack"], "`device`, `node`"),
])  # fmt: skip
def test_what_cannot_be_read_is_refused(words: list[str], said: str, capsys: Any) -> None:
    code, out, err = told(capsys, *LINE, *words)
    assert (code, out) == (2, "")
    assert said in err


def test_what_is_said_replaces_where_it_was_counted() -> None:
    where = oracle.system("dgx-h100")
    assert where.reliability.of == "Meta's H100"
    found = as_said(where, "40 kh").reliability
    assert (found.of, found.factor, found.mtbf) == ("", 2.0, 40e3 * HOUR)
    assert found.restart == where.reliability.restart
    assert as_said(where, "restart=1 h").reliability.of == "Meta's H100"
    assert as_said(where, "none").reliability is None
    rsc = as_said(oracle.system("dgx-a100"), "40 kh").reliability
    assert rsc.per_1000_node_days is None


def test_sixteen_thousand_h100_fail_every_three_hours() -> None:
    """And still train nine tenths of the time [grattafiori2024, section 3.3.4]."""
    where = as_said(oracle.system("dgx-h100").of_size(16384, grow=True), checkpoint="async")
    found = goodput_of(oracle.estimate("llama3-405b", where, "pipeline:16,segments=16 data:128,"
                                       "zero=1 tensor:8", 2048))  # fmt: skip
    assert found.to_dict()["failures_per_hour"] == pytest.approx(1 / 3.09, rel=0.01)
    assert found.progress > 0.9

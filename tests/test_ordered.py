"""The ordered backend lets pass what NCCL brings to an end, and names two ranks where it hangs."""

from __future__ import annotations

import ast
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from equality_cases import GPT, VGG

from oracle.executor.ranks import records
from oracle.executor.ranks.launch import DONE, Host, launch
from oracle.executor.ranks.peers import Peer, device_index, refuse_unlike
from oracle.executor.ranks.world import WorldError
from oracle.executor.steps.border_order import Crossing, arrivals, neighbours
from oracle.executor.steps.schedule import Pass, passes

pytestmark = pytest.mark.flaky(reruns=1)  # ranks wait for each other, and for the machine
HERE = Path(__file__).parent
PLANS = [("spatial:2", "vgg"), ("context:2", "gpt"), ("pipeline:2,segments=4", "vgg")]
WAITS = {  # what both ranks are told, of whatever they wait in
    "receive first": "receive of 4 float32 from rank",
    "send first": "send of 4 float32 to rank",
    "other order": "allreduce of 4 float32 by SUM",
    "sendrecv": "receive of 16 float32 from rank",
    "halo": "receive of 16 float32 from rank",
    "spatial:2": "receive of",
    "context:2": "receive of",
    "pipeline:2,segments=4": "receive of",
}
WRONG = {
    "other kinds": "allreduce of 4 float32 by SUM",
    "other sizes": "receives 3 numbers of 4 bytes",
    "from anyone": "from a named rank only",
    "with gaps": "without gaps",
}


@pytest.fixture(scope="module")
def proved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("ordered")
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    outcome = launch("ordered_tasks:prove", {"plans": PLANS, "models": {"vgg": VGG, "gpt": GPT}},
                     folder, ranks=2, timeout=180, trust=True, backend="ordered",
                     host=Host(environment=lambda rank: {"PYTHONPATH": path}))  # fmt: skip
    assert outcome.code == DONE, outcome.message
    found = records.of_all_ranks(folder, 2)
    return {name: [rank["said"] for rank in ranks] for name, ranks in found.items()}


@pytest.mark.parametrize("name", ["swapped", "in order", "late"])
def test_what_nccl_brings_to_an_end_passes(proved: Any, name: str) -> None:
    assert proved[name] == ["", ""]


@pytest.mark.parametrize("name", WAITS)
def test_what_would_wait_for_ever_names_two_ranks_and_their_calls(proved: Any, name: str) -> None:
    """The last five as the executor sent them once: each passes on gloo."""
    for said in proved[name]:
        assert said.startswith("NCCL would wait for ever: rank ")
        assert "rank 0 waits in" in said
        assert "rank 1 waits in" in said
        assert WAITS[name] in said


def test_a_send_where_the_other_adds_up_is_seen(proved: Any) -> None:
    for said in proved["send or sum"]:
        assert "rank 0 waits in allreduce of 4 float32 by SUM" in said
        assert "rank 1 waits in send of 4 float32 to rank 0" in said


@pytest.mark.parametrize("name", WRONG)
def test_calls_that_nccl_does_not_take_are_refused(proved: Any, name: str) -> None:
    assert all(WRONG[name] in said for said in proved[name])


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_a_stage_knows_the_order_in_which_another_sends(schedule: str, chunks: int) -> None:
    """All that crosses arrives once, in the order of the sender's passes."""
    stages, micro = 3, 6
    last = stages * chunks - 1
    every = [*(Crossing(k + 1, k, k) for k in range(last)), Crossing(last, 0, 0)]  # and a skip
    turns = [passes(schedule, stage, stages, micro, chunks) for stage in range(stages)]
    count = 0
    for stage, to in neighbours(every, stages):
        found = [*arrivals(every, turns[stage], stage, stages, to)]
        assert len(set(found)) == len(found)
        sent = []
        for this, number in found:
            one = every[number]
            assert this.chunk * stages + to == (one.target if this.forward else one.source)
            from_ = one.source if this.forward else one.target
            assert from_ % stages == stage
            sent.append(turns[stage].index(Pass(this.forward, from_ // stages, this.micro_batch)))
        assert sent == sorted(sent)
        count += len(found)
    assert count == 2 * micro * sum(one.source % stages != one.target % stages for one in every)


def test_a_task_takes_the_device_that_it_sees() -> None:
    assert [device_index(local, 8) for local in range(8)] == list(range(8))
    assert [device_index(local, 1) for local in range(8)] == [0] * 8
    with pytest.raises(WorldError, match="--gpus-per-task=1"):
        device_index(0, 0)
    with pytest.raises(WorldError, match="local rank 4 sees 4 GPUs"):
        device_index(4, 4)


@pytest.mark.parametrize(("change", "says"), [
    ({"torch": "2.6.0"}, "rank 0 on a has torch 2.7.1, rank 2 on b has 2.6.0"),
    ({"oracle": "0.1.0"}, "rank 0 on a has oracle 1.0, rank 2 on b has 0.1.0"),
    ({"nccl": "(2, 21, 5)"}, "rank 0 on a has nccl (2, 26, 2), rank 2 on b has (2, 21, 5)"),
    ({"device": "one", "host": "a"}, "ranks 0 and 2 on a have the same GPU"),
])  # fmt: skip
def test_ranks_that_do_not_go_together_are_refused(change: dict[str, str], says: str) -> None:
    one = Peer("a", "one", "2.7.1", "1.0", "(2, 26, 2)")
    peers = [one, replace(one, device="two"), replace(one, host="b")]
    refuse_unlike(peers)
    refuse_unlike([replace(peer, device="") for peer in peers])
    with pytest.raises(WorldError) as caught:
        refuse_unlike([*peers[:2], replace(peers[2], **change)])
    assert says in str(caught.value)


ELSEWHERE = {  # tests that start ranks on another backend, and why
    "test_launch.py": "what ranks are told and how they end; they exchange barriers",
    "test_engines.py": "PyTorch's own classes choose their messages",
    "test_checkpoints.py": "the same; checkpoints of our own engine are kept on this one",
}


def test_every_exchange_between_ranks_is_tested_in_the_order_of_nccl() -> None:
    """Whoever starts several ranks in a test says which backend, and it is this one."""
    starting, otherwise = ("launch", "run", "measure_collectives", "measure_compute"), {}
    for path in sorted(HERE.glob("test_*.py")):
        every = [*ast.walk(ast.parse(path.read_text()))]
        refused = {id(call) for one in every if isinstance(one, ast.With) and "raises" in
                   ast.unparse(one.items[0]) for call in ast.walk(one)}  # fmt: skip
        for call in every:
            named = isinstance(call, ast.Call) and getattr(call.func, "id", "") in starting
            if not named or id(call) in refused:
                continue
            said = {word.arg: getattr(word.value, "value", None) for word in call.keywords}
            several = "ranks" in said and said["ranks"] != 1
            if several and said.get("backend") != "ordered" and None not in said:
                otherwise.setdefault(path.name, set()).add(call.lineno)
    assert set(otherwise) == set(ELSEWHERE), otherwise

"""Every strategy, and hybrids of them, trains exactly as one device does, and says what was priced.

Ranks are started once and run all cases. A case trains three steps with updates, split and alone;
losses, every gradient and every weight must agree, and the bytes sent must be those of `talk`.
Cases that show a model, a strategy or a knob first are quick, all others are slow.
"""

import os
from functools import cache
from pathlib import Path

import pytest
from equality_cases import FEW, cases, shown, telling, words_of

from oracle.executor.local.graph import graph
from oracle.executor.ranks import records
from oracle.executor.ranks.launch import DONE, Host, launch
from oracle.plan.plan import parse

pytestmark = pytest.mark.flaky(reruns=1)  # ranks wait for each other, and for the machine
HERE = Path(__file__).parent
CASES = {case["name"]: case for case in cases()}
QUICK = set(telling(CASES.values()))
TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "bfloat16": 2**-7, "float16": 2**-10}
# of gradients times that: sums of numbers of 16 bits, made in another order
SUMS = {"bfloat16": 16, "float16": 16}
UNEVEN = {  # parts differ in size: the largest is priced, padding is sent
    "odd", "rising spatial:3x1", "llama tensor:2,sequence=on", "llama context",
    "llama data:2 context",
    "mixture data:2 tensor:2,sequence=on expert:2", "groups pipeline:2",  # of copies of tokens
    # whole gradients leave once, as of Megatron-LM; of `plain` they are priced each time
    "gpt data:2,accumulate=2 offload", "gpt pipeline:2,segments=4 data:2,zero=1 offload",
}  # fmt: skip
UNPRICED = {  # small exchanges that no strategy speaks of
    "filter: loss",
    "tensor: loss",
    "tensor: norms of cut tensors",
    "filter: norms of cut tensors",
    "data: norms",  # of lars and lamb: two numbers a tensor
    "sharded: norms",
    "filter: norms",
    "channel: norms",
    "expert: norms",
    "expert: counts",  # of tokens that come
    "tensor: counts",
    "context: first token",
    "tensor: first token",
    "tensor: norms",
    "tensor: borders gathered",
    "all: overflow",  # of fp16: whether one has a gradient that is no number
    "offload: state back",  # the other way of a link that has both
}


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    pytest.importorskip("torch")
    path = os.pathsep.join([str(HERE), str(HERE.parent)])

    @cache
    def ran(quick):
        folder, ranks = tmp_path_factory.mktemp("proof"), FEW if quick else 8
        mine = [case | {"units": words_of(case)} for name, case in CASES.items()
                if (name in QUICK) == quick]  # fmt: skip
        outcome = launch(
            "equality_tasks:prove",
            {"cases": mine},
            folder,
            ranks=ranks,
            timeout=180,
            trust=True,
            backend="ordered",  # gloo, and whatever NCCL would not bring to its end is an error
            host=Host(environment=lambda rank: {"PYTHONPATH": path}),
        )
        assert outcome.code == DONE, outcome.message
        return records.of_all_ranks(folder, ranks)

    return lambda name: ran(name in QUICK)[name]


def each(names):
    """A parameter for each case, slow but for a few."""
    return pytest.mark.parametrize("name", [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names
    ])  # fmt: skip


def ranks_of(proved, name):
    found = proved(name)
    errors = [rank["error"] for rank in found if "error" in rank]
    assert not errors, errors[0]
    return [rank for rank in found if rank["loss"]]


def test_few_cases_show_all_that_any_shows():
    of_few, of_all = ({what for name in names for what in shown(CASES[name])}
                      for names in (QUICK, CASES))  # fmt: skip
    assert of_few == of_all


@each(CASES)
def test_split_training_equals_serial(proved, name):
    case, ranks = CASES[name], ranks_of(proved, name)
    bound = TOLERANCE[case.get("dtype", "float64")]
    for step in range(case["steps"]):
        loss = sum(rank["loss"][step] for rank in ranks if rank["counts"])
        assert loss == pytest.approx(ranks[0]["serial"][step], rel=bound)
    assert ranks[0]["serial"][0] != ranks[0]["serial"][-1]
    sums = bound * SUMS.get(case.get("dtype", "float64"), 1)
    assert max(rank["gradients"] for rank in ranks) < sums
    assert max(rank["weights"] for rank in ranks) < bound


PRICED = [n for n in CASES if not any(n.startswith(u) for u in UNEVEN) and not n.endswith("unit")]
PRICED += [n for n in CASES if n.endswith("even")]


@each(PRICED)
def test_bytes_sent_are_those_of_talk(proved, name):
    case, ranks = CASES[name], ranks_of(proved, name)
    from oracle.executor.messages.expected import expected_messages  # which loads torch

    plan, layers = parse(case["plan"], case["batch"]), graph(case["model"])
    width = {"float64": 8.0, "float32": 4.0}.get(case.get("dtype", "float64"), 2.0)
    sent = {}
    for rank in ranks:
        for what, (op, _, nbytes) in rank["sent"].items():
            if op != "received" and what != "to look at" and what not in UNPRICED:
                sent[what] = sent.get(what, 0.0) + nbytes / case["steps"]
    stages = [tuple(stage) for stage in ranks[0]["stages"]]
    talk = {e.label: e.nbytes for e in expected_messages(
        layers, plan, width, stages, words_of(case),
        case.get("optimizer", "momentum"))}  # fmt: skip
    # of norms and of attention a few numbers a token leave too, which is no activation's bytes
    few = 0.03 if case["model"]["name"] == "gpt" and "activations" in case["plan"] else 1e-9
    assert sent == pytest.approx(talk, rel=few)


@each(CASES)
def test_account_misses_no_byte(proved, name):
    """The executor's own account against a recorder around torch.distributed."""
    for rank in ranks_of(proved, name):
        told = {k: v for k, v in rank["sent"].items()
                if k != "to look at" and v[0] not in ("received", "copy")}  # fmt: skip
        assert rank["raw"] == pytest.approx(sum(nbytes for _, _, nbytes in told.values()))

"""Checkpoints: a training that was read back goes on as if nothing had been; damage is found."""

import os
from pathlib import Path

import pytest
from equality_cases import GPT, RESNET, VGG

from oracle.executor import records
from oracle.executor.launch import DONE, Host, launch
from oracle.models.model import model
from oracle.spec.options import SLOTS

HERE = Path(__file__).parent
DROPPED = {**VGG, "name": "dropped", "layers": [*VGG["layers"][:-2], {"dropout": 0.5},
                                                *VGG["layers"][-2:]]}  # fmt: skip
CASES = [
    {"name": f"{what['name']} {plan} {optimizer} {way}", "model": what, "plan": plan, "batch": 8,
     "optimizer": optimizer, "way": way}
    for what, plan, optimizer, way in [
        (VGG, "serial", "adam", "rank0"),
        (VGG, "data:4", "momentum", "sharded"),
        (VGG, "data:3", "momentum", "rank0"),
        (VGG, "data:4,zero=1", "adam", "sharded"),
        (VGG, "data:2,zero=2,accumulate=2", "momentum", "async"),
        (VGG, "data:4,zero=3", "adam", "rank0"),
        (VGG, "data:2,zero=3", "adam", "async"),
        (VGG, "sharded:2 data:2", "adam", "sharded"),
        (GPT, "tensor:2", "adam", "sharded"),
        (GPT, "data:2,zero=1 tensor:2,sequence=on", "adam", "async"),
        (GPT, "data:2 context:2", "momentum", "sharded"),
        (RESNET, "filter:2 channel:2", "momentum", "sharded"),
        (RESNET, "data:2 filter:2", "adam", "rank0"),
        (VGG, "data:2,zero=1 spatial:2", "adam", "sharded"),
        (RESNET, "channel:2", "adam", "async"),
        (RESNET, "pipeline:2,segments=2 data:2", "momentum", "rank0"),
        (VGG, "pipeline:2,segments=4,interleave=3", "sgd", "sharded"),
        (DROPPED, "data:2", "lars", "sharded"),
    ]
]  # fmt: skip


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("proof")
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    outcome = launch(
        "checkpoint_tasks:prove", {"cases": CASES, "folder": str(folder)}, folder / "parts",
        ranks=4, trust=True, host=Host(environment=lambda rank: {"PYTHONPATH": path}),
    )  # fmt: skip
    assert outcome.code == DONE, outcome.message
    return records.of_all_ranks(folder / "parts", 4)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_training_goes_on_bit_by_bit(proved, case):
    ranks = proved[case["name"]]
    assert not [rank["error"] for rank in ranks if "error" in rank]
    assert all(rank["same"] and rank["step"] == 2 and rank["kept"] == 1 for rank in ranks)
    assert sum(rank["trained"] for rank in ranks) in (1, 2, 3, 4)
    state = 4 * (1 + SLOTS[case["optimizer"]]) * model(case["model"]).parameters
    assert sum(rank["bytes"] for rank in ranks) == state  # each element once
    assert sum(rank["read"] for rank in ranks) >= state

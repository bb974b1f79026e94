"""FSDP2 under a pipeline of PyTorch's: what is whole until the last micro-batch, counted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import oracle

RANKS, SIZE, MICRO_BATCHES = 2, 64, 4
MODEL = {"name": "small", "source": "made for this count", "transformer": {
    "layers": 4, "hidden": 256, "heads": 4, "vocab": 512, "sequence": 64}}  # fmt: skip


def counted(rank: int, folder: str) -> None:
    """Run a stage's micro-batches; write bytes a weight before and after gradients are reduced."""
    from torch.distributed import device_mesh, fsdp, pipelining

    store = torch.distributed.FileStore(f"{folder}/store", RANKS)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=RANKS, store=store)
    mesh = device_mesh.init_device_mesh("cpu", (1, RANKS), mesh_dim_names=("pipeline", "data"))
    network = nn.Sequential(*[
        nn.Sequential(nn.Linear(SIZE, SIZE), nn.GELU(), nn.Linear(SIZE, SIZE)) for _ in range(3)
    ])  # fmt: skip
    weights = sum(weight.numel() for weight in network.parameters())
    policy = fsdp.MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for module in (*network, network):
        fsdp.fully_shard(module, mesh=mesh["data"], mp_policy=policy, reshard_after_forward=False)
    stage = pipelining.PipelineStage(
        network, 0, 1, torch.device("cpu"), group=mesh["pipeline"].get_group()
    )
    found: list[float] = []

    def reduced(scale: int, reduce=stage.perform_reduce_grad) -> None:
        groups = [group for module in network.modules() if isinstance(module, fsdp.FSDPModule)
                  for group in module._get_fsdp_state()._fsdp_param_groups]  # fmt: skip
        held = [weight for group in groups for weight in group.fsdp_params]
        gathered = [part for weight in held for part in weight.all_gather_outputs]
        whole = [weight.unsharded_accumulated_grad for weight in held]
        found.extend(sum(map(size, parts)) / weights for parts in (gathered, whole))
        reduce(scale)
        shards = [weight.grad.to_local() for weight in network.parameters()]
        found.append(sum(map(size, shards)) / weights)

    stage.perform_reduce_grad = reduced
    pipelining.Schedule1F1B(stage, MICRO_BATCHES, loss_fn=nn.functional.mse_loss).step(
        torch.randn(8, SIZE), target=torch.randn(8, SIZE)
    )
    if rank == 0:
        Path(folder, "counted").write_text(" ".join(map(str, found)))
    torch.distributed.destroy_process_group()


def size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


@pytest.mark.slow
def test_weights_and_gradients_are_whole_until_the_last_micro_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks: 2 bytes a weight gathered, 4 of its gradient; after the step shards of 4."""
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
    torch.multiprocessing.spawn(counted, (str(tmp_path),), RANKS)
    assert [*map(float, (tmp_path / "counted").read_text().split())] == [2, 4, 4 / RANKS]


@pytest.mark.parametrize("zero", [2, 3])
def test_a_pipeline_of_torchtitan_keeps_them_whole(zero: int) -> None:
    """Beside fp32 shards; alone each micro-batch's gradients are scattered."""
    plan = f"data:4,zero={zero} pipeline:2,segments=4,schedule=1f1b"
    whole, by_unit = (
        oracle.estimate(MODEL, "dgx-a100", plan, 16, precision="bf16", optimizer="adam",
                        software=software, any_plan=True)
        for software in ("torchtitan", "torchtitan,gather.pipelined=units")
    )  # fmt: skip
    weights = whole.memory_kinds["optimizer"][0] / 8 * 4  # two moments of 4 bytes, a quarter each
    assert whole.memory_kinds["weights"][0] == pytest.approx(4 * weights / 4 + 2 * weights)
    assert whole.memory_kinds["gradients"][0] == pytest.approx(4 * weights)
    assert by_unit.memory_kinds["gradients"][0] == pytest.approx(4 * weights / 4)
    words = [message["what"] for message in whole.exchange[0]]
    assert "data: gradients scattered last" in words, words

"""Mixed precision trains as a plain program of it does, and keeps the bytes that are priced."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from equality_cases import GPT, LLAMA8, RESNET, VGG

import oracle
from oracle.executor.engines import engines
from oracle.executor.local.graph import graph
from oracle.executor.measure.clock import Timer
from oracle.executor.plan_run import DTYPES, PlanRun
from oracle.executor.run import refusals
from oracle.plan.launchable import software
from oracle.plan.plan import parse
from oracle.spec.options import RUN
from oracle.spec.precision import MIXED

MODELS = {"vgg": VGG, "gpt": GPT, "llama": LLAMA8, "resnet": RESNET}
NARROW = [name for name in DTYPES if name in MIXED]
RANKS, STEPS = 4, 12
# steps so small that weights of 16 bits would not notice most of them
RATES = {"sgd": 0.0004, "momentum": 0.00002, "adam": 0.000002}


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture
def ranks(torch: Any) -> Any:
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from oracle.executor.messages import mesh

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    yield torch
    dist.destroy_process_group()
    mesh._PROCESS_GROUPS.clear()


def trainer(model: Any, text: str, precision: str, optimizer: str, device: str, rate: float) -> Any:
    import torch

    from oracle.executor.local.local_model import LocalModel
    from oracle.executor.messages.mesh import DeviceMesh
    from oracle.executor.messages.wire import Wire
    from oracle.executor.steps.optimizer import Optimizer
    from oracle.executor.steps.trainer import Trainer

    plan, dtype = parse(text, 8), getattr(torch, DTYPES[precision])
    wire = Wire(DeviceMesh(plan, 0, RANKS), timer=Timer())
    local = LocalModel(graph(model), plan, wire, device=device, dtype=dtype, seed=0)
    return Trainer(local, Optimizer(optimizer, rate))


@pytest.mark.parametrize(("name", "precision", "optimizer"), [
    ("vgg", "bf16", "momentum"), ("gpt", "bf16", "adam"), ("llama", "fp16", "sgd"),
    ("resnet", "bf16", "sgd"), ("gpt", "fp16", "momentum"), ("vgg", "fp16", "adam"),
])  # fmt: skip
def test_it_trains_as_a_plain_program_of_mixed_precision(
    torch: Any, name: str, precision: str, optimizer: str
) -> None:
    """Masters of 32 bits move as far, the same way; weights are what 16 bits can say of them."""
    from plain_programs import PROGRAMS, weights

    from oracle.executor.local.batch import inputs

    program, rate = PROGRAMS[name], RATES[optimizer]
    dtype = getattr(torch, DTYPES[precision])
    x, target = inputs(graph(MODELS[name]), 8, 0, dtype)
    w = weights(program.shapes, torch.float32)
    start = {key: value.detach().clone() for key, value in w.items()}
    told = {"lr": rate} | ({"momentum": 0.9} if optimizer == "momentum" else {})
    update = (torch.optim.Adam if optimizer == "adam" else torch.optim.SGD)(w.values(), **told)
    scale = 2.0**12 if precision == "fp16" else 1.0
    train = trainer(MODELS[name], "serial", precision, optimizer, "cpu", rate)
    if train.scale:
        train.scale.value.fill_(scale)
    for _ in range(STEPS):
        update.zero_grad()
        loss = program.loss({key: value.to(dtype) for key, value in w.items()}, x, target) / 8
        (loss.float() * scale).backward()
        for value in w.values():
            value.grad /= scale
        update.step()
        assert float(train.step(x, target)) == pytest.approx(float(loss.detach()), rel=0.02)
    (bundle,) = train.local.bundles
    far, apart, stuck = 0.0, 0.0, 0
    for held in bundle.held_weights:
        key = f"{held.op.index}.{held.name}"
        own = bundle.masters[held.offset : held.offset + held.value.numel()].view(held.shape)
        assert torch.equal(held.value.detach(), own.to(dtype))
        moved = w[key].detach() - start[key]
        far += float(moved.square().sum())
        apart += float((own - start[key] - moved).square().sum())
        stuck += int((held.value.detach() == start[key].to(dtype)).sum())
    assert (apart / far) ** 0.5 < 0.1
    assert stuck > 0.2 * bundle.size  # which masters know have moved


@pytest.mark.parametrize(("precision", "optimizer", "zero"), [
    *itertools.product([name for name in DTYPES if name != "fp64"], RUN, range(4))
])  # fmt: skip
def test_bytes_of_each_weight_are_those_that_are_priced(
    ranks: Any, precision: str, optimizer: str, zero: int
) -> None:
    from oracle.executor.local.batch import inputs

    plan = f"data:{RANKS},zero={zero}"
    train = trainer(GPT, plan, precision, optimizer, "meta", 0.01)
    train.step(*inputs(graph(GPT), 8, 0, train.local.dtype))
    bundles, said = train.local.bundles, software("executor")
    held = {
        "weights": sum((b.weights if b.has_weights else b.shard).nbytes for b in bundles),
        "gradients": sum((b.gradients if b.allocated else b.summed).nbytes for b in bundles),
        "optimizer": sum(t.nbytes for b in bundles for t in (b.masters, *b.slots)),
    }
    found = oracle.estimate(GPT, "abci", plan, 8, precision=precision, optimizer=optimizer,
                            software="executor")  # fmt: skip
    priced = {kind: float(found.memory_kinds[kind][0]) for kind in held}
    if zero == 3:  # when most is there a unit's are gathered, too
        parameters = sum(b.size for b in bundles)
        gathered = priced["weights"] - said.state.kept(precision, True, False) * parameters / RANKS
        assert 0 < gathered < priced["weights"]
        priced["weights"] -= gathered
    assert held == pytest.approx(priced, rel=1e-12)


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_one_kernel_updates_as_the_written_out_one(torch: Any, name: str, dtype: str) -> None:
    from oracle.executor.steps.optimizer import Optimizer

    one = Optimizer(name, 0.1)
    random = torch.Generator().manual_seed(1)
    w, g = (torch.randn(101, generator=random, dtype=getattr(torch, dtype)) for _ in range(2))
    both = [[w.clone(), *(torch.zeros_like(w) for _ in range(one.slots))] for _ in range(2)]
    for step in (1, 2, 3):
        one.update(both[0][0], g, both[0][1:], step, lambda w, u: u)
        one._update(both[1][0], g, both[1][1:], step, lambda w, u: u)
    for fused, plain in zip(*both, strict=True):
        assert torch.allclose(fused, plain, rtol=1e-5 if dtype == "float32" else 1e-12)
    assert not torch.equal(both[0][0], w)


@pytest.mark.parametrize("name", RUN)
def test_an_update_is_left_out_where_a_gradient_is_no_number(torch: Any, name: str) -> None:
    from oracle.executor.steps.loss_scale import DOUBLED_AFTER, FIRST, LossScale
    from oracle.executor.steps.optimizer import Optimizer

    one, scale = Optimizer(name, 0.1), LossScale(torch.device("cpu"))
    w = torch.ones(8)
    slots = [torch.zeros(8) for _ in range(one.slots)]
    fine, over = torch.full((8,), FIRST), torch.full((8,), torch.inf)
    for gradients, skips in ((fine, 0.0), (over, 1.0), (fine.clone(), 0.0)):
        before = [each.clone() for each in (w, *slots)]
        scale.heard(scale.unscale([gradients]))
        assert float(scale.overflow) == skips
        one.update(w, gradients, slots, 1, lambda w, u: u, scale.overflow)
        same = all(torch.equal(a, b) for a, b in zip(before, (w, *slots), strict=True))
        assert same is bool(skips)
        assert bool(torch.isfinite(w).all())
    assert float(scale.value) == FIRST / 2
    for _ in range(DOUBLED_AFTER):
        scale.heard(torch.zeros(()))
    assert float(scale.value) == FIRST


@pytest.mark.parametrize("precision", NARROW)
def test_what_is_not_run_in_it_is_refused(torch: Any, precision: str) -> None:
    job = PlanRun(GPT, "offload:optimizer", 8, precision=precision)
    assert "state beside the device is not run in mixed precision" in refusals(job)
    kept = PlanRun(GPT, "serial", 8, precision=precision, checkpoint={"way": "sharded"})
    assert bool(refusals(kept)) is (precision == "fp16")
    assert engines()["native"].software == "executor"

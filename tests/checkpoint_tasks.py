"""What ranks do in the proof of checkpoints: train on, and train on from what was read back."""

import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from checkpoint_damage import damage

from oracle.executor.checkpointing.keeping import Keeping
from oracle.executor.checkpointing.loader import restore
from oracle.executor.checkpointing.pieces import NativeState
from oracle.executor.checkpointing.saver import Saver
from oracle.executor.engines import engines
from oracle.executor.loading.throttle import Throttle
from oracle.executor.local.batch import inputs
from oracle.executor.local.graph import graph
from oracle.executor.local.local_model import LocalModel
from oracle.executor.messages.mesh import DeviceMesh
from oracle.executor.messages.wire import Wire
from oracle.executor.plan_run import PlanRun
from oracle.executor.steps.optimizer import Optimizer
from oracle.executor.steps.trainer import Trainer
from oracle.plan.plan import parse

BEFORE, AFTER = 2, 2  # steps


def prove(rank, arguments):
    """All cases; one that raises is a result as well, alike on all ranks."""
    for number, case in enumerate(arguments["cases"]):
        rank.enter("measure", case["name"])
        try:
            found = one(rank, case, Path(arguments["folder"]) / str(number))
        except Exception:
            found = {"error": traceback.format_exc()[-1500:]}
        rank.record(case["name"], **found)
        dist.barrier()


def dtype_of(case):
    return getattr(torch, case.get("dtype", "float32"))


def trainer_of(rank, case, seed):
    if engine := case.get("engine"):
        job = PlanRun(
            case["model"], case["plan"], case["batch"], optimizer=case["optimizer"], seed=seed,
            engine=engine, checkpoint={"way": case["way"], "folder": ""},
        )  # fmt: skip
        steps = engines()[engine].steps(rank, job)
        for group in steps.training.optimizer.param_groups if steps.training else ():
            group["lr"] = 0.005
        return steps if steps.training else None
    layers, plan = graph(case["model"]), parse(case["plan"], case["batch"])
    wire = Wire(DeviceMesh(plan, rank.rank, rank.size))
    local = LocalModel(layers, plan, wire, dtype=dtype_of(case), seed=seed)
    return Trainer(local, Optimizer(case["optimizer"], 0.005)) if wire.mesh.taking_part else None


def state_of(trainer):
    return NativeState(trainer) if isinstance(trainer, Trainer) else trainer and trainer.state


def train(trainer, case, steps):
    losses = []
    for step in steps:
        if trainer:
            x, target = inputs(graph(case["model"]), case["batch"], step, dtype_of(case))
            if not isinstance(trainer, Trainer):
                x, target, trained = (
                    *map(trainer.setting.held_part, (x, target)),
                    trainer.training,
                )
            else:
                trained = trainer
            losses.append(float(trained.step(x, target)))
    return losses


def state(trainer):
    if not trainer:
        return []
    if not isinstance(trainer, Trainer):
        return [piece.values.clone() for piece in trainer.state.pieces_held()]
    parts = []
    for bundle in trainer.local.bundles:
        weights = bundle.weights if bundle.has_weights else bundle.shard
        parts += [weights.detach().clone(), *(slot.clone() for slot in bundle.slots)]
    return parts


def one(rank, case, folder):
    """Whether a training that was read back goes on bit by bit as the one that never stopped."""
    if rank.rank == 0:
        folder.mkdir()
    dist.barrier()
    trainer = trainer_of(rank, case, seed=3)
    how = Keeping(case["way"], str(folder))
    saver = Saver(rank, state_of(trainer), how, Throttle(), {"question": {}})
    train(trainer, case, range(BEFORE))
    kept = [*saver.save(BEFORE)]
    losses = train(trainer, case, range(BEFORE, BEFORE + AFTER))
    kept += [*saver.finish()]
    dist.barrier()
    again = trainer_of(rank, case, seed=9)  # other weights, until they are read back
    torch.manual_seed(rank.rank)
    if case.get("damage"):  # of a later one, which must not be taken
        train(trainer, case, range(9, 10))
        kept += [*saver.save(9), *saver.finish()]
        dist.barrier()
        if rank.rank == 0:
            damage(sorted((folder / "step-00000009").glob("*.state"))[-1])
        dist.barrier()
        trainer = trainer_of(rank, case, seed=3)
        train(trainer, case, range(BEFORE + AFTER))
    step, load = restore(rank, state_of(again), folder, Throttle())
    same = train(again, case, range(BEFORE, BEFORE + AFTER)) == losses
    pairs = list(zip(state(trainer), state(again), strict=True))
    apart = max((float((a - b).abs().max()) for a, b in pairs if a.numel()), default=0.0)
    return {
        "step": step, "same": same and all(torch.equal(a, b) for a, b in pairs),
        "trained": bool(losses), "bytes": kept[0]["bytes"], "read": load["bytes"],
        "apart": apart, "kept": len(kept), "passed": load["passed"],
    }  # fmt: skip

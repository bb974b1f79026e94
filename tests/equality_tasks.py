"""What ranks do in the proof of equality: run a case split and serial, and compare."""

import case_tasks
import torch
import torch.distributed as dist

from oracle.executor.local.batch import inputs
from oracle.executor.local.cuts import Cuts
from oracle.executor.local.graph import graph
from oracle.executor.local.local_model import GhostNorm, LocalModel
from oracle.executor.local.parts import deal
from oracle.executor.messages.mesh import DeviceMesh
from oracle.executor.messages.wire import Wire
from oracle.executor.steps.optimizer import Optimizer
from oracle.executor.steps.trainer import Trainer
from oracle.plan.plan import parse

torch.use_deterministic_algorithms(True)


def prove(rank, arguments):
    """Run all cases."""
    case_tasks.prove(rank, arguments["cases"], one)


def one(rank, case):
    dtype = getattr(torch, case.get("dtype", "float64"))
    layers = graph(case["model"])
    plan = parse(case["plan"], case["batch"])
    mesh = DeviceMesh(plan, rank.rank, rank.size)
    wire = Wire(mesh)
    optimizer = Optimizer(case.get("optimizer", "momentum"), case.get("rate", 0.005))
    routing = case.get("routing", "learned")
    local = LocalModel(layers, plan, wire, dtype=dtype, seed=3, units=case.get("units", ()),
                       routing=routing)  # fmt: skip
    if not mesh.taking_part:
        return {"sent": {}, "loss": [], "serial": [], "weights": 0.0, "gradients": 0.0}
    serial, alone = lone(layers, plan, mesh, case["batch"], dtype, optimizer, routing)
    trainer = Trainer(local, optimizer)
    losses, of_serial, gradients, heard = [], [], 0.0, raw(wire)
    for step in range(case["steps"]):
        x, target = inputs(layers, case["batch"], step, dtype)
        with heard:
            losses.append(float(trainer.step(x, target)))
        of_serial.append(float(alone.step(x, target)))
        gradients = max(gradients, worst_gradient(local, serial))
    account = {what: [s.op, s.calls, s.nbytes] for what, s in wire.traffic.items()}
    trainer.gathered()
    weights = max((distance(held, serial) for held in local.held_weights), default=0.0)
    return {
        "sent": account,
        "raw": heard.nbytes,
        "loss": losses,
        "serial": of_serial,
        "gradients": gradients,
        "weights": weights,
        "stages": local.stages,
        "counts": not any(mesh.at[axis] for axis in ("filter", "channel", "tensor")),
    }


def lone(layers, plan, mesh, batch, dtype, optimizer, routing):
    """The serial run, its norms over the parts of batch and extents that the split run has."""
    single = parse("serial", batch)
    cuts = Cuts.from_plan(layers, plan, mesh)
    wire = Wire(DeviceMesh(single, 0, 1))
    parts = [(0, batch)]
    for axis in mesh.degrees:
        if axis in ("data", "sharded"):
            parts = [i for a, b in parts for i in deal(b - a, mesh.degree(axis), a)]
    segments = int(plan.axis("pipeline").segments[0, 0] * plan.axis("data").accumulate[0, 0])
    parts = [i for a, b in parts for i in deal(b - a, segments, a)]
    ghost = GhostNorm(tuple(parts), cuts.grid, [bool(cut) for cut in cuts.spaced])
    local = LocalModel(layers, single, wire, dtype=dtype, seed=3, ghost=ghost, routing=routing)
    late = plan.axis("offload").word("delayed") == "on"
    return local, (Late if late else Trainer)(local, optimizer)


class Late(Trainer):
    """Updates with the gradients of the step before; the first step with none."""

    before = None

    def _update(self):
        (bundle,) = self.local.bundles  # of a model without experts
        now, before = bundle.gradients.clone(), self.before
        self.before = now
        if before is not None:
            self.optimizer.update(bundle.weights.detach(), before, bundle.slots, self.steps - 1,
                                  None)  # fmt: skip


def relative(own, whole):
    if not own.numel():
        return 0.0
    return float((own - whole).abs().max()) / (float(whole.abs().max()) + 1e-30)


def distance(held, serial):
    whole = serial.weight_of[held.op.index, held.name].value.detach()
    return relative(held.value.detach(), held.cut(whole))


def worst_gradient(local, serial):
    """Where gradients are sharded, of the elements that are held here."""
    worst = 0.0
    for bundle in local.bundles:
        whole = torch.cat(
            [held.cut(serial.weight_of[held.op.index, held.name].gradient).flatten()
             for held in bundle.held_weights] or [torch.zeros(0, dtype=bundle.wide)]
        )  # fmt: skip
        whole = torch.nn.functional.pad(whole, (0, bundle.size - whole.numel()))
        kept = bundle.shard_slice if local.zero else slice(None)
        worst = max(worst, relative(bundle.summed, whole[kept]))
    return worst


class raw:
    """Counts what reaches torch.distributed, below the executor's own account."""

    NAMES = ("all_reduce", "batch_isend_irecv", "all_gather_single", "all_gather_into_tensor",
             "reduce_scatter_single", "reduce_scatter_tensor", "all_to_all_single")  # fmt: skip

    def __init__(self, wire):
        self.nbytes = 0.0

    def __enter__(self):
        self.originals = {n: getattr(dist, n) for n in self.NAMES if hasattr(dist, n)}
        for name, call in self.originals.items():
            setattr(dist, name, self.counting(name, call))

    def __exit__(self, *_):
        for name, call in self.originals.items():
            setattr(dist, name, call)

    def counting(self, name, call):
        buffer = 1 if name.startswith(("reduce_scatter", "all_to_all")) else 0

        def counted(*args, **kwargs):
            sent = [args[buffer]]
            if name == "batch_isend_irecv":
                sent = [one.tensor for one in args[0] if one.op is dist.isend]
            self.nbytes += sum(tensor.numel() * tensor.element_size() for tensor in sent)
            return call(*args, **kwargs)

        return counted

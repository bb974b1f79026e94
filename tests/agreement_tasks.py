"""What ranks do in the proofs of agreement: sums of the largest entries, grids, short trainings."""

import torch

from oracle.executor.agreement.agreement import served
from oracle.executor.agreement.grid import over_grid
from oracle.executor.agreement.largest import WAYS
from oracle.executor.agreement.links import Links
from oracle.executor.local.batch import inputs
from oracle.executor.local.graph import graph
from oracle.executor.local.local_model import LocalModel
from oracle.executor.messages.mesh import DeviceMesh
from oracle.executor.messages.wire import Wire
from oracle.executor.steps.optimizer import Optimizer
from oracle.executor.steps.trainer import Trainer
from oracle.plan.plan import parse


def prove(rank, arguments):
    """Words of each algorithm, sums of grids and servers, and trainings under each plan."""
    mesh = DeviceMesh(parse(f"data:{rank.size}", rank.size), rank.rank, rank.size)
    group = mesh.group(("data",))
    vectors = [torch.randn(arguments["length"], generator=torch.Generator().manual_seed(place),
                           dtype=torch.float64) for place in range(rank.size)]  # fmt: skip
    mine, total = vectors[rank.rank], sum(vectors)
    for name, way in WAYS.items():
        links = Links(group)
        found, own = way(mine.clone(), arguments["count"], links)
        rank.record(name, sent=links.sent, heard=links.heard, entries=int((found != 0).sum()),
                    kept=len(own[0]), sum=float(found.sum()),
                    right=float((found - total)[found != 0].abs().max()))  # fmt: skip
    for k in arguments["servers"]:
        links = Links(group)
        error = float((served(mine.clone(), k, links) - total).abs().max())
        rank.record(f"servers:{k}", sent=links.sent, heard=links.heard, error=error)
    for row in arguments["rows"]:
        links = Links(group)
        error = float((over_grid(mine.clone(), row, links) - total).abs().max())
        rank.record(f"torus2d:{row}", sent=links.sent, heard=links.heard, error=error)
    for plan, by in arguments["plans"]:
        rank.enter("measure", plan)
        rank.record(f"{plan} {by}", **trained(rank, plan, by, arguments))


def trained(rank, text, by, arguments):
    """Losses of some steps on one batch, what was sent, and weights at the end."""
    layers, plan = graph(arguments["model"]), parse(text, arguments["batch"])
    wire = Wire(DeviceMesh(plan, rank.rank, rank.size), by=by)
    local = LocalModel(layers, plan, wire, dtype=torch.float64, seed=3)
    if not wire.mesh.taking_part:
        return {"loss": [], "sent": {}, "weights": [], "stages": []}
    trainer = Trainer(local, Optimizer("sgd", arguments["rate"]))
    x, target = inputs(layers, arguments["batch"], 0, torch.float64)
    losses = [float(trainer.step(x, target)) for _ in range(arguments["steps"])]
    sent = {what: [s.op, s.calls, s.nbytes] for what, s in wire.traffic.items()}
    weights = torch.cat([held.value.detach().flatten() for held in local.held_weights])
    return {"loss": losses, "sent": sent, "weights": weights[::97].tolist(),
            "stages": local.stages}  # fmt: skip

"""What ranks do where engines are held against plain programs: train a case, and compare."""

import case_tasks
import torch
from plain_programs import trained

from oracle.executor.engines import engines
from oracle.executor.local.batch import inputs
from oracle.executor.local.graph import graph
from oracle.executor.local.local_model import LocalModel
from oracle.executor.messages.mesh import DeviceMesh
from oracle.executor.messages.wire import Wire
from oracle.executor.plan_run import PlanRun
from oracle.executor.proof import equality
from oracle.executor.pytorch.modules import Convolution
from oracle.executor.pytorch.network import Network, loss_of, without_loss
from oracle.executor.pytorch.setting import DTYPES
from oracle.executor.steps.optimizer import Optimizer
from oracle.executor.steps.trainer import Trainer
from oracle.plan.plan import parse


def prove(rank, arguments):
    """Run all cases."""
    case_tasks.prove(rank, arguments["cases"], one)


def one(rank, case):
    job = PlanRun(case["model"], case["plan"], case["batch"], engine=case["engine"],
                  optimizer=case["optimizer"], precision=case["precision"],
                  software=case["software"])  # fmt: skip
    steps = engines()[job.engine].steps(rank, job)
    if not steps.training:
        return {}
    training = steps.training
    for group in training.optimizer.param_groups:
        group["lr"] = 0.05
    last, losses = watched(training.networks), []
    for _ in range(case["steps"]):
        steps.wire.traffic = {}
        losses.append(float(training.step(steps.x_held, steps.target)))
    own = training.full_weights()
    dtype = DTYPES[job.precision]
    x, target = inputs(graph(job.model), job.batch, 0, dtype)
    parts = len(training.setting.micro_batches) * training.replicas
    expected, weights = trained(case["program"], x, target, case["steps"], parts,
                                job.optimizer, dtype)  # fmt: skip
    worst = {
        n: float((v - weights[n]).abs().max() / weights[n].abs().max()) for n, v in own.items()
    }
    return {
        "kept": training.kept_bytes(), "weights": list(weights), "loss": losses,
        "expected": expected,
        "worst": worst, "last": last,
        "flash": any(op.shape.flash for each in training.networks for op, _ in each.rows()),
        "sent": {what: [one.op, one.calls, one.nbytes] for what, one in steps.wire.traffic.items()},
    }  # fmt: skip


def watched(networks):
    """Whether channels stand last in weights of convolutions, and in what the last one made."""
    found = {}

    def stands(tensor):
        return tensor.is_contiguous(memory_format=torch.channels_last)

    for network in networks:
        for _, row in network.rows():
            if isinstance(row, Convolution) and max(row.op.shape.window) > 1:  # of one pixel: both
                found["weights"] = stands(row.weight)
                row.register_forward_hook(lambda _, __, y: found.update(made=stands(y)))
    return found


def both(model, last=False):
    """The loss of modules and of the native rows, and how far each gradient is off."""
    layers, plan = graph(model), parse("serial", 4)
    local = LocalModel(layers, plan, Wire(DeviceMesh(plan, 0, 1)), dtype=torch.float64, seed=0)
    x, target = inputs(layers, 4, 0, torch.float64)
    native = float(Trainer(local, Optimizer("sgd", 0.0)).step(x, target))
    rest, loss = without_loss(layers)
    network = Network(rest, (0, rest.units), seed=0, dtype=torch.float64, last=last)
    network.lay_weights()
    own = loss_of(loss, network(x), target, 4)
    own.backward()
    wanted = {(op.index, name): local.weight_of[op.index, name].value.grad
              for op, name, _ in network.weights()}  # fmt: skip
    # a bias before a norm of each sample has none but for rounding
    least = 1e-3 * max(float(one.abs().max()) for one in wanted.values())
    worst = {}
    for op, name, weight in network.weights():
        one = wanted[op.index, name]
        worst[op.label, name] = float((one - weight.grad).abs().max()) / max(
            float(one.abs().max()), least
        )
    return float(own.detach()), native, worst


def beside_one_device(rank, arguments):
    """Train each case beside one device of the executor's; the last at another rate."""
    cases = arguments["cases"]
    for number, case in enumerate(cases):
        if number == len(cases) - 1:
            equality.Optimizer = lambda name, rate: Optimizer(name, 2 * rate)
        rank.record(str(number), **equality.trained_by(rank, *case))


def reads(rank, arguments):
    """Of each case the samples of two steps, as this rank's part of an engine has them."""
    for number, case in enumerate(arguments["cases"]):
        engine, model, plan, mode = case
        data = {"folder": arguments["folders"][model["name"]], "mode": mode}
        job = PlanRun(model, plan, 8, engine=engine, data=data)
        steps = engines()[engine].steps(rank, job)
        steps.begin()
        seen = []
        for _ in range(2 if steps.training else 0):
            steps.step()
            seen.append(steps.x_held.flatten(1).tolist())
        steps.close()
        rank.record(str(number), seen=seen, files=steps.read.get("files", 0))

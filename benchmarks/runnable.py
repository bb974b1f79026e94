"""Which recommended plans the executor runs as they stand: `python -m benchmarks.runnable`.

    python -m benchmarks.runnable [--only gpt2-xl …] [--quick] [--json]

Of ten models the five best plans on 16 devices are asked for, each for the software that it is
recommended for. Every plan then trains two steps on at most 8 ranks of this machine, by the
executor's own engine or else the first of PyTorch's that runs it: its widest axes are halved until
they are so few, with few micro-batches and chunks, of a model with the same kinds of layers that is
narrow and short. It trains in double precision and must end as one device
does. A plan counts as run only then; of the others the reason is told. `--quick` asks only what
the executor refuses, and starts nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.table import Table, figure, text
from oracle.api import recommend
from oracle.executor.engines import engines
from oracle.executor.local.graph import graph
from oracle.executor.plan_run import PlanRun
from oracle.executor.ranks import records
from oracle.executor.ranks.launch import DONE, Host, launch
from oracle.executor.run import refusals
from oracle.executor.supported import unsupported
from oracle.models.layers import Norm
from oracle.models.model import model
from oracle.plan.plan import Plan, parse
from oracle.spec.catalogue import document
from oracle.spec.document import Node

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank

DEVICES, BEST = 16, 5
RANKS, FEW = 8, 4  # of this machine, and for volumes, which take more memory
MOST = {"segments": 4, "accumulate": 4, "interleave": 2}
QUESTIONS = (  # model, system, batch
    ("resnet50", "abci", 1024), ("vgg16", "abci", 512), ("unet3d-kits19", "dgx-a100", 32),
    ("bert-large", "dgx-a100", 256), ("vit-l16", "dgx-a100", 1024), ("gpt2-xl", "dgx-a100", 128),
    ("llama2-7b", "dgx-h100", 64), ("llama3-8b", "dgx-h100", 64), ("llama3-70b", "dgx-h100", 64),
    ("mixtral-8x7b", "dgx-h100", 64),
)  # fmt: skip
WIDTH, TOKENS, WORDS, NARROW = 4, 16, 64, 16
PIXELS, VOXELS = (64, 64), (64, 64, 32)  # norms want two at the bottom of a U-Net, on either half
# Of a replica's micro-batch at least, or as many as a sample has parts, where norms are over them.
# Two values become -1 and 1, however near they are: one device whose weights are changed by 1e-15
# then ends 0.1 away from itself.
SAMPLES = 2
BOUND = 1e-8  # of a loss and of a tensor's largest weight: what rounding does not explain


def shrunk(name: str, plan: Plan) -> dict[str, Any]:
    """A shipped model with the same layers, narrow and short, with a block for each chunk."""
    node, _, _ = document(name, "models")
    said = ("name", "input", "layers", "transformer")
    found: dict[str, Any] = {key: _plain(node.entries[key]) for key in said if key in node.entries}
    found["source"] = "shrunk"
    pipeline = plan.axis("pipeline")
    blocks = max(2, int(pipeline.degree[0, 0] * pipeline.interleave[0, 0]))
    if family := found.get("transformer"):
        hidden = family["heads"] * WIDTH
        family |= {"hidden": hidden, "ffn": 2 * hidden, "vocab": WORDS, "sequence": TOKENS,
                   "layers": blocks}  # fmt: skip
        return found
    channels, *extents = found["input"]
    found["input"] = [channels, *(PIXELS if len(extents) == 2 else voxels(plan))]
    shorter = PIXELS[0] / extents[0]
    found["layers"] = [_narrow(layer, blocks, shorter) for layer in found["layers"]]
    return found


def voxels(plan: Plan) -> tuple[int, int, int]:
    """Extents of a volume: longer along the last where more devices have parts of it."""
    *others, last = VOXELS
    return (*others, last * max(1, int(plan.axis("spatial").degree[0, 0]) // 2))


def smaller(text_: str, ranks: int) -> str:
    """The same axes on few ranks: the widest is halved, and what is dealt along it with it."""
    degrees = {axis: int(wide) for axis, wide in re.findall(r"(\w+):(\d+)", text_)}
    experts = degrees.pop("expert", 1)
    while math.prod(degrees.values()) > ranks:
        widest = max(degrees, key=lambda axis: degrees[axis])
        degrees[widest] //= 2
        experts = max(experts // 2, min(experts, 2))
    for axis, wide in {**degrees, "expert": experts}.items():
        text_ = re.sub(rf"\b{axis}:\d+", f"{axis}:{wide}", text_)
    return re.sub(r"(segments|accumulate|interleave)=(\d+)",
                  lambda said: f"{said[1]}={min(int(said[2]), MOST[said[1]])}", text_)  # fmt: skip


def _narrow(layer: Any, blocks: int, shorter: float) -> Any:
    if not isinstance(layer, dict):
        return layer
    found = dict(layer)
    for key, said in layer.items():
        if key == "repeat":
            found[key] = blocks if "attention" in json.dumps(layer) else 1
        elif key in ("filters", "ffn") or (key == "dense" and isinstance(said, int)):
            found[key] = max(said // NARROW, 2)
        elif key == "to":
            wide, *rest = said
            found[key] = [wide // NARROW, *(round(n * shorter**2) for n in rest)]
        elif isinstance(said, dict):
            found[key] = _narrow(said, blocks, shorter)
        elif key == "layers":
            found[key] = [_narrow(one, blocks, shorter) for one in said]
    return found


def _plain(node: Node) -> Any:
    """The content of a spec's node."""
    if node.kind == "mapping":
        return {key: _plain(one) for key, one in node.entries.items()}
    if node.kind == "sequence":
        return [_plain(one) for one in node.items]
    if re.fullmatch(r"-?\d+", node.text):
        return int(node.text)
    return {"true": True, "false": False}.get(node.text, node.text)


def of_volumes(name: str) -> bool:
    """Whether samples of a model are volumes."""
    first = model(name).rows[0].given
    return not first.tokens and len(first.extents) == 3


def over_batch(spec: dict[str, Any]) -> bool:
    """Whether norms of a model are over its batch."""
    return any(
        isinstance(op.layer, Norm) and op.layer.op == "batch" for op in graph(spec).operations
    )


def asked(only: list[str]) -> list[dict[str, Any]]:
    """The best plans of each question, each with a small model to try it on."""
    found = []
    for name, system, batch in QUESTIONS:
        if only and name not in only:
            continue
        ranking = recommend(name, system, devices=DEVICES, batch=batch)
        for text_ in ranking.estimate.plans[:BEST]:
            fewer = smaller(text_, FEW if of_volumes(name) else RANKS)
            plan = parse(fewer, batch)
            pieces = math.prod(
                int(each[0, 0]) for each in (
                    plan.axis("data").degree, plan.axis("sharded").degree,
                    plan.axis("pipeline").segments, plan.axis("data").accumulate)
            )  # fmt: skip
            small = shrunk(name, plan)
            parts = int(plan.axis("spatial").degree[0, 0])
            pieces *= max(SAMPLES, parts) if over_batch(small) else 1
            engine, why = runner((name, text_, batch), (small, fewer, pieces))
            small = small if engine == "native" else undropped(small)
            found.append({"model": name, "spec": small, "plan": text_, "run": fewer,
                          "batch": pieces, "engine": engine, "why": why})  # fmt: skip
    return found


def undropped(spec: Any) -> Any:
    """Without dropout, of which PyTorch's own classes draw other masks on each device."""
    if isinstance(spec, list):
        return [undropped(one) for one in spec]
    if not isinstance(spec, dict):
        return spec
    return {key: 0.0 if key == "dropout" else undropped(one) for key, one in spec.items()}


def runner(*runs: tuple[Any, str, int]) -> tuple[str, str]:
    """The first engine that refuses none of these models under their plans; else native's why."""
    refused = {}
    for name in engines():
        # what is left to a search is chosen by turns, of one's own units
        why = [reason for what, plan, batch in runs for reason in
               (unsupported(model(what), parse(plan, batch)) if name == "native" else
                refusals(PlanRun(what, plan, batch, engine=name, precision="fp64")))]  # fmt: skip
        if not why:
            return name, ""
        refused[name] = "; ".join(dict.fromkeys(why))
    return "native", refused["native"]


def task(rank: Rank, arguments: Mapping[str, Any]) -> None:
    """Train each plan beside one device; what one raises all do, for they see the same shapes."""
    import torch.distributed as dist

    from oracle.executor.proof.equality import trained, trained_by

    for number, one in enumerate(arguments["plans"]):
        rank.enter("measure", one["run"])
        try:
            what = one["spec"], one["run"], one["batch"]
            if one["engine"] == "native":
                said = trained(rank, *what, one["units"])
            else:
                said = trained_by(rank, one["engine"], *what)
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}", "at": traceback.format_exc()}
        rank.record(str(number), **said)
        dist.barrier()


def units(one: Mapping[str, Any]) -> list[str]:
    """Units that keep, and are made again or sent out, by turns, where a plan leaves it open."""
    words = ["keep"]
    words += ["recompute"] if "recompute:best" in one["plan"] else []
    words += ["offload"] if "activations" in one["plan"] else []
    count = len(model(one["spec"]).units[1])
    return [words[at % len(words)] for at in range(count)] if len(words) > 1 else []


def tried(plans: list[dict[str, Any]]) -> None:
    """Run them all; say of each how far from one device it ends, or what it raised."""
    wanted = [one | {"units": units(one)} for one in plans if not one["why"]]
    with TemporaryDirectory() as folder:
        here = str(Path(__file__).parent.parent)
        outcome = launch("benchmarks.runnable:task", {"plans": wanted}, Path(folder), ranks=RANKS,
                         timeout=300, trust=True,
                         host=Host(environment=lambda _: {"PYTHONPATH": here}))  # fmt: skip
        if outcome.code != DONE:
            raise RuntimeError(outcome.message)
        from oracle.executor.proof.equality import difference

        by_key = records.of_all_ranks(Path(folder), RANKS)
    left = iter(range(len(wanted)))
    for one in plans:
        if one["why"]:
            continue
        ranks = by_key[str(next(left))]
        raised = [rank["error"] for rank in ranks if "error" in rank]
        one["apart"] = math.inf if raised else difference(ranks)
        one["why"] = raised[0] if raised else "" if one["apart"] < BOUND else "ends elsewhere"


def table(only: list[str], quick: bool) -> Table:
    """A row a plan, and the share that runs."""
    plans = asked(only)
    if not quick:
        tried(plans)
    runs = sum(not one["why"] for one in plans)
    what = "not refused" if quick else "run, and equal to one device"
    return {
        "title": f"runnable: the {BEST} best plans of each model on {DEVICES} devices, {what}",
        "rows": [{"model": one["model"], "plan": one["plan"], "by": one["engine"],
                  "runs": "no" if one["why"] else "yes",
                  "apart": f"{one['apart']:.0e}" if "apart" in one else "", "why not": one["why"]}
                 for one in plans],
        "figures": {"plans": figure(len(plans), "", ""),
                    "share": figure(runs / max(len(plans), 1), "", "≥ 0.95")},
        "notes": ["a plan is run by the first engine that does not refuse it; mixtures, attention "
                  "and norms are what the executor makes of them; dropout has the same masks on "
                  "one device, and under engines of PyTorch's none"],
    }  # fmt: skip


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runnable",
                                     description=(__doc__ or "").splitlines()[0])  # fmt: skip
    parser.add_argument("--only", action="append", default=[], metavar="MODEL")
    parser.add_argument("--quick", action="store_true", help="ask what is refused; start nothing")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = table(given.only, given.quick)
    print(json.dumps(found) if given.json else text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

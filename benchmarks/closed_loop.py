"""Closed loop: calibrate a lab of hosts, predict plans on it, run them, and compare.

    python -m benchmarks.closed_loop [--quick] [--known machine,one,own] [--engine ddp,fsdp2]
                                     [--settings 0,2] [--json] [--out DIR]

The lab is this machine cut into hosts (tests/lab). Collectives are calibrated from
`measure collectives`, and no time of a whole step is used. Of compute --known says what is known:

| `machine` | kernels that `measure machine` times, and nothing of any model |
| `one`     | beside them rows of each model's first plan (`measure compute`), for its others |
| `own`     | the rows of every plan |

Steps of a plan and steps that time rows take turns on the same ranks (`benchmarks.turns`): who
shares the processors of a virtual machine makes the same step take a tenth more or less from one
minute to the next. With --engine PyTorch's own classes run plans of theirs, each predicted under
the shipped spec of its software.

In settings 0 to 5 links are narrow, so that messages bound steps. In 6 they are ten times as wide;
in 7 batches are an eighth as large too, so that what messages and kernels take to start does; in 8
one host of four is slower than the others. It needs root and torch, and half a minute for each
plan; --quick takes one setting and three plans.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1])]

import oracle  # noqa: E402 (the path above comes first)
from benchmarks import hooks, turns  # noqa: E402
from benchmarks.closeness import KNOWN, Row, figures, table  # noqa: E402
from benchmarks.turns import Found  # noqa: E402
from oracle.calibration import machine as machines  # noqa: E402
from oracle.calibration.calibrate import calibrate  # noqa: E402
from oracle.executor.engines import engines  # noqa: E402
from oracle.executor.measure import machine as at_hand  # noqa: E402
from oracle.executor.measure.collectives import measure_collectives  # noqa: E402
from oracle.executor.messages.calls import GroupShape  # noqa: E402
from oracle.executor.plan_run import PlanRun  # noqa: E402
from oracle.executor.ranks.launch import Host  # noqa: E402
from oracle.kernels.profile import Profile  # noqa: E402
from oracle.models.model import model as read_model  # noqa: E402
from oracle.plan.launchable import software  # noqa: E402
from oracle.plan.plan import Plan, parse  # noqa: E402
from oracle.predict import evaluate  # noqa: E402
from oracle.predict.estimate import Estimate  # noqa: E402
from oracle.predict.estimate import estimate as priced  # noqa: E402
from oracle.readers.logs import read  # noqa: E402
from oracle.spec import catalogue  # noqa: E402
from oracle.spec.device import Curve, Device  # noqa: E402
from oracle.spec.system import System  # noqa: E402
from tests.lab.network import Lab, Wiring, missing  # noqa: E402

MACHINE = 60  # seconds of `measure machine`


def _conv(filters: int, **more: Any) -> dict[str, Any]:
    return {"conv": {"filters": filters, "kernel": 3, "padding": 1, **more}}


def _network(name: str, shape: list[int], layers: list[Any]) -> dict[str, Any]:
    return {"name": name, "source": "made for the lab", "input": shape, "layers": layers}


def _residual(filters: int, stride: int) -> list[Any]:
    """A basic block with a projection."""
    return [{"layers": [
        _conv(filters, stride=stride, bias=False), {"norm": "batch"}, "relu",
        _conv(filters, bias=False), {"norm": {"name": "branch"}},
        {"conv": {"from": ["block"], "filters": filters, "kernel": 1, "stride": stride,
                  "bias": False}},
        {"norm": {"name": "projection"}}, {"add": {"from": ["branch", "projection"]}}, "relu",
    ]}]  # fmt: skip


MODELS = {
    "vgg": _network("vgg", [3, 32, 32], [
        _conv(32), "relu", _conv(32), "relu", {"pool": {"kernel": 2}},
        _conv(64), "relu", _conv(64), "relu", {"pool": {"kernel": 2}},
        _conv(128), "relu", _conv(128), "relu", {"pool": {"kernel": 2}},
        "flatten", {"dense": 256}, "relu", {"dense": 16}, "loss"]),
    "resnet": _network("resnet", [3, 32, 32], [
        _conv(32, bias=False), {"norm": "batch"}, "relu", *_residual(32, 1), *_residual(64, 2),
        *_residual(128, 2), {"pool": {"kernel": "global", "op": "mean"}}, "flatten",
        {"dense": 16}, "loss"]),
    "cubes": _network("cubes", [2, 32, 16, 16], [
        _conv(16), "leaky_relu", {"pool": {"kernel": 2}}, _conv(32), "leaky_relu",
        {"pool": {"kernel": 2}}, _conv(64), "leaky_relu", "flatten", {"dense": 64}, "relu",
        {"dense": 8}, {"loss": "mse"}]),
    "transformer": {"name": "transformer", "source": "made for the lab", "transformer": {
        "layers": 4, "hidden": 128, "heads": 8, "vocab": 512, "sequence": 64,
        "tied_embeddings": False}},
}  # fmt: skip
BATCH = {"vgg": 64, "resnet": 64, "cubes": 32, "transformer": 64}
OFF = "data:1,overlap=off"
PLANS: dict[int, dict[str, list[str]]] = {
    2: {
        "vgg": ["data:2,overlap=off", f"{OFF} filter:2", f"{OFF} channel:2", f"{OFF} spatial:2",
                f"pipeline:2,segments=4 {OFF}"],
        "resnet": ["data:2,overlap=off", "data:2,zero=1,overlap=off", f"{OFF} spatial:2",
                   f"{OFF} channel:2"],
        "cubes": ["data:2,overlap=off", f"{OFF} spatial:2", f"{OFF} filter:2"],
        "transformer": ["data:2,overlap=off", f"{OFF} tensor:2", "sharded:2,overlap=off",
                        f"pipeline:2,segments=4 {OFF}"],
    },
    4: {
        "vgg": ["data:4,overlap=off", f"{OFF} filter:4", "data:2,overlap=off filter:2",
                f"{OFF} spatial:4x1", "pipeline:2,segments=4 data:2,overlap=off"],
        "resnet": ["data:4,overlap=off", "data:2,overlap=off spatial:2", f"{OFF} spatial:4",
                   "data:4,zero=1,overlap=off", "data:2,overlap=off channel:2"],
        "cubes": ["data:4,overlap=off", f"{OFF} spatial:4x1", "data:2,overlap=off filter:2"],
        "transformer": ["data:4,overlap=off", f"{OFF} tensor:4", "data:2,overlap=off tensor:2",
                        f"pipeline:4,segments=8 {OFF}", f"{OFF} tensor:4,sequence=on"],
    },
    8: {
        "vgg": ["data:8,overlap=off", "data:4,overlap=off filter:2", "data:4,overlap=off spatial:2",
                "pipeline:2,segments=4 data:4,overlap=off"],
        "resnet": ["data:8,overlap=off", "data:4,overlap=off spatial:2",
                   "data:4,overlap=off channel:2"],
        "cubes": ["data:8,overlap=off", f"{OFF} spatial:8", "data:4,overlap=off spatial:2"],
        "transformer": ["data:8,overlap=off", "data:4,overlap=off tensor:2",
                        "pipeline:2,segments=4 data:4,overlap=off"],
    },
}  # fmt: skip


# of settings that are to be bound by something else than bandwidth
BRIEF: dict[int, dict[str, list[str]]] = {
    2: {
        "vgg": ["data:2,overlap=off", f"{OFF} filter:2"],
        "resnet": ["data:2,overlap=off", f"{OFF} spatial:2"],
        "cubes": ["data:2,overlap=off", f"{OFF} filter:2"],
        "transformer": ["data:2,overlap=off", f"{OFF} tensor:2", "sharded:2,overlap=off"],
    },
    4: {
        "vgg": ["data:4,overlap=off", f"{OFF} filter:4"],
        "resnet": ["data:4,overlap=off", "data:2,overlap=off spatial:2"],
        "cubes": ["data:4,overlap=off", f"{OFF} spatial:4x1"],
        "transformer": ["data:4,overlap=off", f"{OFF} tensor:4", f"pipeline:4,segments=4 {OFF}"],
    },
}  # fmt: skip

# gloo has no streams: FSDP2 waits for each of its messages where it calls it
ENGINE_PLANS = {
    "ddp": ["data:{n},overlap=off", "data:{n}"],
    "fsdp2": ["data:{n},zero=3,overlap=off", "data:{n},zero=2,overlap=off"],
}


@dataclass(frozen=True)
class Setting:
    """A lab: hosts, link rates, and what share of a core a host has."""

    hosts: int
    rate: float
    uplink: float = 0.0
    share: float = 0.2
    bound: str = "bandwidth"  # what it is to make steps wait for
    slow: float = 1.0  # of the others' share, what the last host has
    few: int = 1  # how many times smaller batches are

    @property
    def title(self) -> str:
        tree = f", uplinks {self.uplink / 1e6:g} Mbit/s" if self.uplink else ""
        slow = f", one at {self.slow:g} of its pace" if self.slow < 1 else ""
        few = f", batch 1/{self.few}" if self.few > 1 else ""
        return f"{self.hosts} hosts, {self.rate / 1e6:g} Mbit/s{tree}{slow}{few}"

    @property
    def plans(self) -> dict[str, list[str]]:
        """Those of each model that run in it."""
        return (PLANS if self.bound == "bandwidth" else BRIEF)[self.hosts]


SETTINGS = [
    Setting(2, 200e6, share=0.5), Setting(2, 400e6, share=0.5),
    Setting(4, 200e6, share=0.35), Setting(4, 400e6, share=0.35),
    Setting(8, 200e6), Setting(8, 200e6, uplink=200e6),
    Setting(2, 2e9, share=0.5, bound="compute"),
    Setting(4, 2e9, share=0.35, bound="latency", few=8),
    Setting(4, 400e6, share=0.35, bound="straggler", slow=0.6),
]  # fmt: skip


def system_of(setting: Setting) -> System:
    """The lab as a spec: what is known of it before anything is measured."""
    hosts, rate = setting.hosts, f"{setting.rate / 8:.0f} B/s"
    lab = "the lab: shaped links between network namespaces"
    levels: list[dict[str, Any]] = [
        {"name": "host", "devices": 1, "bandwidth": "10 GB/s", "latency": "1 us", "source": lab}
    ]
    if setting.uplink:
        inside = hosts // 2
        levels.append({"name": "leaf", "devices": inside, "bandwidth": rate, "latency": "200 us",
                       "source": lab})  # fmt: skip
        over = inside * setting.rate / setting.uplink
        levels.append({"name": "spine", "devices": hosts, "bandwidth": rate, "latency": "200 us",
                       "oversubscription": max(over, 1.0), "source": lab})  # fmt: skip
    else:
        levels.append({"name": "switch", "devices": hosts, "bandwidth": rate, "latency": "200 us",
                       "source": lab})  # fmt: skip
    device = {"name": "host", "memory": "16 GiB", "memory_bandwidth": "10 GB/s",
              "peak": {"fp32": "20 GFLOP/s"}, "launch": "0 s", "reserve": "200 MB",
              "processors": 1, "host": True,
              "source": lab}  # fmt: skip
    return catalogue.system({"name": "lab", "device": device, "levels": levels, "source": lab})


def jobs_of(setting: Setting, quick: bool, by: Sequence[str] = ("native",)) -> list[PlanRun]:
    """The plans of a setting, by engine."""
    names = ["vgg"] if quick else list(MODELS)
    steps, most = (3, 3) if quick else (10, 99)
    return [
        PlanRun(
            MODELS[name], plan, BATCH[name] // setting.few, steps=steps, warm_up=2, engine=engine,
            software="" if engine == "native" else engines()[engine].software,
        )
        for engine in by
        for name in names
        for plan in plans_of(setting, name, engine)[:most]
    ]  # fmt: skip


def plans_of(setting: Setting, name: str, engine: str) -> list[str]:
    """Plans of a model that an engine runs."""
    if engine == "native":
        return setting.plans[name]
    return [plan.format(n=setting.hosts) for plan in ENGINE_PLANS[engine]]


def firsts(jobs: Sequence[PlanRun]) -> list[PlanRun]:
    """The first plan of each model."""
    return list({str(job.model): job for job in reversed(jobs)}.values())


@dataclass(frozen=True)
class Calibrated:
    """The lab with what was measured on it before any plan."""

    system: System
    device: Device | None  # as `measure machine` finds it
    unit: float  # seconds of a whole core for a message of a unit, as `benchmarks.hooks` finds it

    def knowing(self, profile: Profile | None) -> System:
        """The system that predicts: with the machine's kernels, which rows are scaled by."""
        if self.device is not None:
            return replace(self.system, device=self.device)
        assert profile is not None
        device = replace(self.system.device, kernels=(_updates(profile),))
        return replace(self.system, device=device)


def calibrated(
    setting: Setting, lab: Lab, jobs: Sequence[PlanRun], folder: Path, quick: bool,
    known: Sequence[str],
) -> Calibrated:  # fmt: skip
    """Measure messages, and the machine's kernels where these are to predict."""
    host, hosts = lab.placed(), setting.hosts
    collectives = folder / "collectives.jsonl"
    # fit where messages are: a token bucket lets those below its burst through for nothing, and
    # many small ones in a row take what a host may have of a core
    sizes = (
        [2**17, 2**18, 2**19, 2**20, 2**22] if quick else [2**17, 2**18, 2**19, 2**20, 2**22, 2**23]
    )
    if any(job.software and software(job.software).exchange.by_unit for job in jobs):
        sizes = [2**12, 2**15, *sizes]  # units are of kilobytes
    if setting.bound == "latency":  # and so are activations of few samples
        sizes = [2**12, 2**14, 2**16, *sizes[:-1]]
    whole = [GroupShape(2**k) for k in range(1, hosts.bit_length()) if 2**k <= hosts]
    outcome = measure_collectives(
        collectives, ranks=hosts, sizes=sizes, shapes=whole, repeats=5, longest=4.0, host=host,
        operations=["allreduce", "reduce_scatter", "allgather", "sendrecv", "halo"], say=_say,
    )  # fmt: skip
    assert outcome.complete, outcome.message
    found = calibrate([read(str(collectives))], system_of(setting))
    (folder / "fit.txt").write_text(found.text())
    system = replace(found.system, collectives=found.entries)
    wanted = {"machine", "one"} & set(known)
    device = _machine(folder / "machine", hosts, host) if wanted else None
    return Calibrated(system, device, _hooks(folder / "hooks.json", jobs))


def _hooks(out: Path, jobs: Sequence[PlanRun]) -> float:
    """What hooks of units cost the host here, where any software has such."""
    if not any(job.software and software(job.software).host.unit for job in jobs):
        return 0.0
    if not out.is_file():
        _say("hooks of units")
        out.write_text(json.dumps(hooks.measured(units=24, steps=40)))
    return float(json.loads(out.read_text())["mean"])


def _machine(folder: Path, hosts: int, host: Host) -> Device:
    """A host of the lab as `measure machine` finds it, all at once."""
    asked = at_hand.Asked(MACHINE, "")
    outcome = at_hand.measure_machine(folder, asked, ranks=hosts, host=host, say=_say)
    assert outcome.complete, outcome.message
    return machines.device(machines.machine(at_hand.measured_records(folder)))[0]


def _updates(profile: Profile) -> Curve:
    """Memory-bound kernels from the measured updates: momentum moves 20 bytes a weight."""
    weights = np.array([each.weights for each in profile.updates])
    seconds = np.array([each.seconds for each in profile.updates])
    slope = float(np.median(seconds / weights)) / 20
    share = min(max(1 / (slope * 10e9), 1e-3), 1.0)
    return Curve("stream", "measured updates", start=0.0, traffic=share, uncertainty=0.1)


def strategy_of(plan: str) -> str:
    """The axes of a plan that are wider than one."""
    words = [word.partition(",")[0] for word in plan.split()]
    names = [w.partition(":")[0] for w in words if not w.endswith(":1")]
    zero = "zero " if "zero=" in plan else ""
    return zero + "+".join(names)


def loop(
    setting: Setting, folder: Path, quick: bool, known: Sequence[str], by: Sequence[str]
) -> Iterator[Row]:
    """Calibrate; then run each plan, beside what times its rows, and predict it."""
    folder.mkdir(parents=True, exist_ok=True)
    jobs = jobs_of(setting, quick, by)
    first = {str(job.model): turns.rows_of(job) for job in firsts(jobs)}
    before: dict[str, Profile] = {}  # of each model's first plan, where it ran
    wiring = Wiring(setting.hosts, setting.rate, setting.uplink, share=setting.share,
                    slow=setting.slow)  # fmt: skip
    with Lab(wiring) as lab:
        learnt = calibrated(setting, lab, jobs, folder, quick, known)
        for number, job in enumerate(jobs):
            model = str(job.model)
            if "pipeline" in job.plan:
                best = _predicted(job, learnt, before[model], setting.share)
                edges = evaluate.cuts(best.model, best.system, _plan(job), best.options)
                job = replace(job, stages=edges)
            own = turns.rows_of(job)
            beside = [own, first[model]] if own.plan != first[model].plan else [own]
            found = turns.taken(
                job, beside, folder / f"plan-{number}", ranks=setting.hosts,
                rate=setting.rate / 8, host=lab.placed(), say=_say, timeout=120,
            )  # fmt: skip
            before.setdefault(model, found.rows[own.plan])
            for one in known:
                profile = of_what_is_known(one, found, own.plan, first[model].plan)
                if one != "one" or len(beside) > 1:  # else it is no prediction of another plan
                    estimate = _predicted(job, learnt, profile, setting.share)
                    yield _row(setting, one, job, estimate, found)


def of_what_is_known(known: str, found: Found, own: str, first: str) -> Profile | None:
    """What a prediction knows of a model's rows; none where it knows kernels alone."""
    if known == "machine":
        return None
    before = found.rows[first]
    if known == "one":
        return before
    mine = found.rows[own]
    return replace(mine, rows=before.rows | mine.rows)


def _row(setting: Setting, known: str, job: PlanRun, estimate: Estimate, found: Found) -> Row:
    parts = {k: float(v[0]) for k, v in estimate.compute.items()}
    parts |= {e["what"]: e["exposed"] for e in estimate.exchange[0]}
    run = found.run
    took = {**run.compute, **{each.what: each.seconds for each in run.exchange}}
    return Row(
        setting.title, setting.bound, run.model, job.plan, strategy_of(job.plan), job.engine,
        known, float(estimate.seconds[0]), float(estimate.seconds_low[0]),
        float(estimate.seconds_high[0]), run.seconds, run.spread, parts, took,
        sum(each.waiting or 0.0 for each in run.exchange),
    )  # fmt: skip


def _plan(job: PlanRun) -> Plan:
    return parse(job.plan, job.batch)


def _predicted(job: PlanRun, learnt: Calibrated, profile: Profile | None, share: float) -> Estimate:
    """What the oracle says of a plan that it saw no step of, on hosts with a share of a core."""
    network, said = read_model(job.model), software(job.software or "executor")
    said = said.but(host=replace(said.host, unit=learnt.unit / share))
    found = oracle.estimate(
        network, learnt.knowing(profile), _plan(job), job.batch,
        precision="fp32", optimizer="momentum", profile=profile, reading="none",
        software=said,
    )  # fmt: skip
    if job.stages:  # those that run, whatever this prediction would cut
        found = priced(network, learnt.knowing(profile), _plan(job), job.batch,
                       replace(found.options, edges=job.stages))  # fmt: skip
    if profile is None:
        return found
    shard = evaluate.split(network, _plan(job), found.options)
    lacking = [row.name for i, row in enumerate(network.rows) if not profile.lookup(shard, 0, i)]
    if lacking:
        _say(f"{job.plan}: no profile of {', '.join(sorted(set(lacking))[:5])}")
    return found


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one setting, a few plans")
    parser.add_argument("--known", default="own", help="machine,one,own: what predictions know")
    parser.add_argument("--engine", default="native", help="ddp,fsdp2; native if not said")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="keep all files here; finished runs are kept")
    parser.add_argument("--settings", default="", help="numbers of the settings, e.g. 0,2")
    given = parser.parse_args()
    if missing():
        sys.exit("the lab needs " + "; ".join(missing()))
    known = [one for one in KNOWN if one in given.known.split(",")]
    if not known or len(known) < len(given.known.split(",")):
        parser.error(f"--known is of {', '.join(KNOWN)}")
    chosen = [int(n) for n in given.settings.split(",") if n] or range(len(SETTINGS))
    settings = [SETTINGS[0]] if given.quick else [SETTINGS[i] for i in chosen]
    with tempfile.TemporaryDirectory() as scratch:
        out = given.out or Path(scratch)
        rows = [
            row
            for setting in settings
            for row in loop(setting, out / setting.title.replace(", ", "_").replace("/", ""),
                            given.quick, known, given.engine.split(","))
        ]  # fmt: skip
    found = figures(rows)
    if given.json:
        document = {"figures": found, "rows": [asdict(row) for row in rows]}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    else:
        sys.stdout.write(table(rows, found) + "\n")


if __name__ == "__main__":
    main()

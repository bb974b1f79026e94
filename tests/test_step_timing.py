"""A step is timed as a GPU's: events on streams, read when it is over; nobody waits inside it.

Tensors on torch's device `meta` have no numbers, so whatever would wait for one (`.item()`,
`.tolist()`, a copy to the host, a shape that depends on data) fails. Messages go to torch's `fake`
backend.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from equality_cases import GPT, VGG, cases, telling, words_of

from oracle.executor.local.graph import graph
from oracle.executor.measure.clock import StreamTimer, Timer
from oracle.executor.plan_run import PlanRun
from oracle.plan.plan import parse

# what the host has to know to go on: tokens of each expert, state that lies in its memory
WAITS = ("expert:", "offload:", "by unit")
CASES = {case["name"]: case for case in cases()
         if not case["model"].get("name", "").startswith(("mixture", "groups"))
         and not any(word in f"{case['name']} {case['plan']}" for word in WAITS)}  # fmt: skip
QUICK = set(telling(CASES.values()))
RANKS = 8


class Gpu:
    """torch.cuda as a timer sees it: a stream that takes a second for each call on it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.at = 0.0  # seconds of the stream so far
        self.read = True  # may events be read: has the host waited since the last?
        self.streams = ["compute"]

    def work(self, words: str) -> None:
        self.log.append(words)
        self.at += 1.0

    def synchronize(self) -> None:
        self.log.append("host waits")
        self.read = True

    def current_stream(self) -> str:
        return self.streams[-1]

    @contextlib.contextmanager
    def stream(self, name: str) -> Any:
        self.streams.append(name)
        yield
        self.streams.pop()

    def Event(self, enable_timing: bool) -> Any:  # as torch calls it
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.at = gpu, 0.0

    def record(self) -> None:
        self.gpu.log.append(f"event on {self.gpu.current_stream()}")
        self.at, self.gpu.read = self.gpu.at, False

    def elapsed_time(self, other: Event) -> float:
        assert self.gpu.read, "an event is read before the stream has come by"
        return (other.at - self.at) * 1e3


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Process groups of eight ranks that send nothing."""
    torch = pytest.importorskip("torch")
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from oracle.executor.messages import mesh

    done = SimpleNamespace(wait=lambda: True)
    monkeypatch.setattr(dist, "batch_isend_irecv", lambda calls: [done for _ in calls])
    monkeypatch.setattr(mesh, "_PROCESS_GROUPS", {})
    monkeypatch.setattr(mesh, "_WAYS", {})
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    yield torch
    dist.destroy_process_group()


def trainer(case: dict[str, Any], timer: Timer, rank: int = 0) -> tuple[Any, Any]:
    from oracle.executor.local.local_model import LocalModel
    from oracle.executor.messages.mesh import DeviceMesh
    from oracle.executor.messages.wire import Wire
    from oracle.executor.steps.optimizer import Optimizer
    from oracle.executor.steps.trainer import Trainer

    plan = parse(case["plan"], case["batch"])
    wire = Wire(DeviceMesh(plan, rank, RANKS), timer=timer)
    units = words_of(case) if "units" in case else ()
    local = LocalModel(graph(case["model"]), plan, wire, device="meta", dtype=dtype_of(case),
                       seed=3, units=units)  # fmt: skip
    return Trainer(local, Optimizer(case.get("optimizer", "momentum"), 0.005)), wire


def dtype_of(case: dict[str, Any]) -> Any:
    import torch

    return getattr(torch, case.get("dtype", "float32"))


def stepped(case: dict[str, Any], timer: Timer, rank: int = 0) -> Any:
    from oracle.executor.local.batch import inputs

    train, wire = trainer(case, timer, rank)
    given = inputs(graph(case["model"]), case["batch"], 0, dtype_of(case))
    timer.begin()
    loss = train.step(*given)
    return loss, wire


@pytest.mark.parametrize("name", [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES
])  # fmt: skip
def test_no_step_waits_for_a_number_of_the_device(ranks: Any, name: str) -> None:
    gpu = Gpu()
    loss, _ = stepped(CASES[name], StreamTimer(gpu))
    assert loss.is_meta
    assert gpu.log[0] == "host waits"  # before the step alone
    assert "host waits" not in gpu.log[1:]


@pytest.mark.parametrize("planted", ["item", "bool", "tolist", "cpu", "nonzero"])
def test_a_step_that_waits_is_noticed(ranks: Any, planted: str, monkeypatch: Any) -> None:
    from oracle.executor.passes import operators

    before = operators.activation

    def waits(op: Any, x: Any) -> Any:
        found = x.max()
        {"item": found.item, "bool": lambda: bool(found > 0), "tolist": found.tolist,
         "cpu": found.cpu, "nonzero": x.nonzero}[planted]()  # fmt: skip
        return before(op, x)

    monkeypatch.setattr(operators, "activation", waits)
    with pytest.raises((RuntimeError, NotImplementedError)):
        stepped({"model": VGG, "plan": "data:2", "batch": 8}, StreamTimer(Gpu()))


def test_seconds_are_those_between_events(ranks: Any, monkeypatch: Any) -> None:
    """A stream that takes a second for each product and for each message, and nothing besides."""
    import torch.distributed as dist

    from oracle.executor.local.batch import inputs
    from oracle.executor.passes import operators

    gpu = Gpu()
    kinds = {"all_reduce": dist.all_reduce, "linear": operators.matrix}

    def slow(name: str) -> Any:
        def call(*given: Any, **told: Any) -> Any:
            gpu.work(name)
            return kinds[name](*given, **told)

        return call

    monkeypatch.setattr(operators, "matrix", slow("linear"))
    case = {"model": GPT, "plan": "tensor:2", "batch": 4}
    timer = StreamTimer(gpu)
    train, wire = trainer(case, timer)
    monkeypatch.setattr(dist, "all_reduce", slow("all_reduce"))
    given = inputs(graph(GPT), 4, 0, ranks.float32)
    timer.begin()
    wire.forget()
    train.step(*given)
    with pytest.raises(AssertionError, match="read before"):
        timer.seconds()
    timer.settle()
    seconds, sent = timer.seconds(), wire.seconds()
    assert seconds["forward"] == gpu.log.count("linear") > 4
    assert seconds["exchange"] == gpu.log.count("all_reduce") > 4
    assert sum(sent.values()) == pytest.approx(seconds["exchange"])
    assert seconds["backward"] == seconds["update"] == 0
    calls = wire.collectives()
    assert all(call.ended - call.began == pytest.approx(1.0) for call in calls)
    assert [call.began - timer.began for call in calls[:2]] == pytest.approx([0, 3])  # 2 products


def test_what_runs_on_a_stream_beside_a_phase_is_no_part_of_it() -> None:
    pytest.importorskip("torch")
    gpu = Gpu()
    timer = StreamTimer(gpu)
    timer.begin()
    with timer.phase("backward"):
        gpu.work("kernel")
        inside = timer.now()
        gpu.work("message")
        timer.exchanged(inside, timer.now())
        with gpu.stream("messages"):
            beside = timer.now()
            gpu.work("message")
            timer.exchanged(beside, timer.now())
    timer.settle()
    assert timer.seconds() == {"forward": 0.0, "backward": 2.0, "exchange": 2.0, "update": 0.0}
    assert gpu.log.count("event on messages") == 2
    used = timer.used
    timer.begin()
    assert timer.used == 1 < used == len(timer.events)  # events are made once


def test_the_host_clock_tells_the_same_phases() -> None:
    pytest.importorskip("torch")
    timer, now = Timer(), iter([0.0, 1.0, 3.0, 4.0, 10.0, 11.0])
    timer.now = lambda: next(now)  # type: ignore[method-assign]
    timer.begin()
    with timer.phase("forward"):
        timer.exchanged(timer.now(), timer.now())
        with timer.phase("backward"):
            pass
    timer.settle()
    assert timer.seconds() == {"forward": 11 - 0 - 2 - 6, "backward": 6.0, "exchange": 2.0,
                               "update": 0.0}  # fmt: skip


def test_a_step_of_a_run_waits_before_and_after_only(ranks: Any, monkeypatch: Any) -> None:
    """`timed`, as each rank of `oracle run` calls it: events, then one wait, then all is read."""
    import torch
    import torch.distributed as dist

    from oracle.executor.measure import timed_steps

    gpu = Gpu()
    monkeypatch.setattr(timed_steps, "timer_of", lambda _: StreamTimer(gpu))
    monkeypatch.setattr(dist, "barrier", lambda group: gpu.log.append("all meet"))
    rank: Any = SimpleNamespace(rank=0, size=RANKS, device=torch.device("meta"), control=None,
                                backend="gloo", enter=lambda *_: None)  # fmt: skip
    steps = timed_steps.NativeSteps(rank, PlanRun(VGG, "data:2 filter:2", 8))
    said, _ = timed_steps.timed(rank, steps, 1, 0.0)
    assert gpu.log[:4] == ["host waits", "event on compute", "all meet", "event on compute"]
    assert gpu.log.index("host waits", 1) == len(gpu.log) - 1
    assert {call[0] for call in said["calls"]} == set(said["said"])
    assert set(said["phases"]) == {"forward", "backward", "exchange", "update", "reading"}

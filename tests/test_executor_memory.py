"""Bytes alive are counted to the last one; what lies beside the device is copied and counted."""

import pytest
from equality_cases import GPT, LLAMA, VGG

import oracle
from benchmarks.memories.counted import CNN, RESIDUAL, chosen
from benchmarks.memories.counted import LLAMA as COUNTED_LLAMA
from oracle.ask.alive import Alive, alive
from oracle.executor.plan_run import PlanRun
from oracle.executor.ranks.launch import DONE
from oracle.executor.run import refuse, run
from oracle.executor.supported import NotSupported

FORWARD = "forward"


def test_bytes_are_counted_until_nobody_holds_them():
    """Of 1000, 500 and 250 numbers the first is gone when the third is made: 1500 at most."""
    torch = pytest.importorskip("torch")
    from oracle.executor.measure.memory_count import MemoryCount

    kept = torch.zeros(10)
    with MemoryCount({"weights": [kept]}) as count:
        count.enter(FORWARD)
        first = torch.ones(1000)
        second = first[:500] * 2
        view = second.view(5, 100)
        del first, second
        count.enter("backward")
        third = torch.ones(250)
        with count.off_device():
            beside = torch.ones(100_000)
    assert count.peak == {"weights": 40, "gradients": 0, "optimizer": 0,
                          "activations": 4 * 1500, "transient": 0}  # fmt: skip
    assert count.now["activations"] == view.nbytes
    assert count.now["transient"] == third.nbytes
    assert beside.numel() == 100_000


@pytest.mark.slow
def test_what_a_thread_lets_go_of_in_a_moment_is_not_counted():
    torch = pytest.importorskip("torch")
    from oracle.executor.measure.memory_count import MemoryCount

    sent = []
    for settle, most in ((None, 1500), (sent.clear, 1000)):
        with MemoryCount({}, settle=settle) as count:
            sent.append(torch.ones(1000))
            made = torch.ones(500)
        assert count.total == 4 * most
        assert made.numel() == 500
        sent.clear()


@pytest.mark.slow
def test_storage_that_is_freed_counts_as_it_is():
    """A buffer of 100 numbers that was freed, and is there again when 10 more are made."""
    torch = pytest.importorskip("torch")
    from oracle.executor.measure.memory_count import MemoryCount

    buffer = torch.zeros(100)
    buffer.untyped_storage().resize_(0)
    with MemoryCount({"weights": [buffer]}) as count:
        small = torch.ones(10)
        assert count.total == small.nbytes
        buffer.untyped_storage().resize_(400)
        small = small * 2
    assert count.peak["weights"] == 400
    assert count.total == 400 + 2 * small.nbytes


def test_copies_over_the_host_link_are_counted(tmp_path):
    torch = pytest.importorskip("torch")
    from oracle.executor.messages.mesh import DeviceMesh
    from oracle.executor.messages.wire import Wire
    from oracle.executor.steps.host_link import HostLink
    from oracle.plan.plan import parse

    wire = Wire(DeviceMesh(parse("serial", 1), 0, 1))
    link = HostLink(wire, {"out": 1e15, "in": 1e15})
    there = link.out(torch.arange(6.0), "gradients out")
    back = torch.empty(2, 3)
    link.home(there, back, "weights back")
    assert back.flatten().tolist() == [0, 1, 2, 3, 4, 5]
    on_disk = link.room(back, 6, disk=True)
    assert on_disk.sum() == 0
    link.close()
    told = {what: (one.op, one.calls, one.nbytes) for what, one in wire.traffic.items()}
    assert told == {"offload: gradients out": ("copy", 1, 24),
                    "offload: weights back": ("copy", 1, 24)}  # fmt: skip


def test_copies_one_way_wait_for_each_other_and_ways_do_not():
    """At 1 kB/s each way: two copies of 500 bytes out end one second after the first began."""
    pytest.importorskip("torch")
    from oracle.executor.messages.mesh import DeviceMesh
    from oracle.executor.messages.wire import Wire
    from oracle.executor.steps.host_link import HostLink
    from oracle.plan.plan import parse

    link = HostLink(Wire(DeviceMesh(parse("serial", 1), 0, 1)), {"out": 1e3, "in": 1e3})
    first = link._reserve("out", 500)
    assert link._reserve("out", 500) - first == pytest.approx(0.5)
    link.ask("unit", 250)
    assert link.asked["unit"] < first
    link.ask("unit", 10_000)  # it is on its way
    assert link.asked["unit"] < first


REFUSED = [
    (VGG, "data:2,zero=2,accumulate=2 spatial:2 offload:optimizer", {}, "of cut samples"),
    (GPT, "tensor:2 recompute:operators", {}, "where layers send messages"),
    (LLAMA, "offload:optimizer", {}, "a table in two uses"),
    (VGG, "offload:activations", {}, "a choice of each unit that nobody made"),
    (VGG, "recompute:full offload:activations", {}, "recompute:full is not run with activations"),
    (VGG, "serial", {"units": ["keep"]}, "1 words for"),
    (VGG, "offload:optimizer", {"checkpoint": {"way": "sharded"}}, "not kept by checkpoints"),
]


@pytest.mark.parametrize(("model", "plan", "more", "why"), REFUSED, ids=[one[3] for one in REFUSED])
def test_what_is_not_run_is_refused_by_name(model, plan, more, why):
    with pytest.raises(NotSupported, match=why):
        refuse([PlanRun(model, plan, 8, **more)])


def test_counted_and_predicted_stand_side_by_side():
    found = Alive("data:2", {"weights": 100.0, "transient": 0.0, "activations": 100.0},
                  {"weights": 100.0, "activations": 110.0})  # fmt: skip
    (line,) = found.lines
    assert line == ("data:2: 200 B of tensors alive at most (weights 100 B, activations 100 B); "
                    "predicted 210 B (+5.0%)")  # fmt: skip
    assert found.as_json() == {"alive": found.predicted}
    assert Alive("serial", {}, {}).lines == []


@pytest.mark.flaky(reruns=1)
@pytest.mark.parametrize(("spec", "plan", "near"), [
    (RESIDUAL, "recompute:full", 0.001),  # a block's input that the stem keeps too is there once
    pytest.param(RESIDUAL, "recompute:operators", 0.001, marks=pytest.mark.slow),
    # queries that share keys, copied into rows
    pytest.param(COUNTED_LLAMA, "tensor:2", 0.02, marks=pytest.mark.slow),
])  # fmt: skip
def test_tensors_of_a_cause_are_counted_as_predicted(tmp_path, spec, plan, near):
    pytest.importorskip("torch")
    outcome, found = run([PlanRun(spec, plan, 16, 1, 1)], tmp_path / "m.json", ranks=2,
                         backend="ordered")  # fmt: skip
    assert outcome.code == DONE, outcome.message
    counted, predicted = alive(found[0], oracle.model(spec)).both
    assert predicted == pytest.approx(counted, rel=near)


@pytest.mark.flaky(reruns=1)
def test_as_many_bytes_are_alive_as_predicted(tmp_path):
    """A CNN, alone, with a replica, and with activations on the host."""
    pytest.importorskip("torch")
    plans = ("serial", "data:2", "offload:activations")
    jobs = [PlanRun(CNN, plan, 32, 1, 1, units=chosen(CNN, plan, 32)) for plan in plans]
    outcome, found = run(jobs, tmp_path / "m.json", ranks=2, backend="ordered")
    assert outcome.code == DONE, outcome.message
    both = {one.plan: alive(one, oracle.model(CNN)).both for one in found}
    for plan, (counted, predicted) in both.items():
        assert predicted == pytest.approx(counted, rel=0.005), plan
    assert both["offload:activations"][0] < 0.8 * both["serial"][0]

"""What ranks do in the tests of the ordered backend: calls that NCCL brings to an end, and not."""

import torch
import torch.distributed as dist

from oracle.executor.local.batch import inputs
from oracle.executor.local.graph import graph
from oracle.executor.local.local_model import LocalModel
from oracle.executor.messages import calls, mesh, wire
from oracle.executor.messages.calls import CALLS, GroupShape, ProcessGroups, together
from oracle.executor.messages.mesh import DeviceMesh, opened
from oracle.executor.ranks import ordered
from oracle.executor.steps.optimizer import Optimizer
from oracle.executor.steps.trainer import Trainer
from oracle.plan.plan import parse


def prove(rank, arguments):
    """Each case on a communicator of its own, as those that wait for ever are lost."""
    ordered.LOOK = 0.4
    for name, case in CASES.items():
        rank.enter("measure", name)
        said = ""
        try:
            case(rank, opened((0, 1)))
        except ordered.OrderError as error:
            said = str(error)
        rank.record(name, said=said)
    for plan, name in arguments["plans"]:
        rank.enter("measure", plan)
        said = ""
        try:
            with_planted(rank, arguments["models"][name], plan)
        except ordered.OrderError as error:
            said = str(error)
        rank.record(plan, said=said)


def pair(rank, size=4):
    return 1 - rank.rank, torch.full((size,), float(rank.rank)), torch.full((size,), -1.0)


def swapped(rank, group):
    other, own, theirs = pair(rank)
    together([(other, own)], [(other, theirs)], group)()
    assert theirs.tolist() == [other] * 4


def in_order(rank, group):
    """Two of one group to one rank arrive as they were sent, whatever their tags."""
    _, own, theirs = pair(rank)
    works = []
    for tag in (7, 3):
        if rank.rank == 0:
            works.append(dist.isend(own + tag, 1, group=group, tag=10 - tag))
        else:
            dist.irecv(theirs, 0, group=group, tag=tag).wait()
            assert theirs.tolist() == [tag] * 4
    for work in works:
        work.wait()


def late(rank, group):
    """A send reads its buffer when it runs, not when it is called."""
    _, own, theirs = pair(rank)
    first = torch.zeros(1)
    if rank.rank == 0:
        going = together([(1, own)], [], group)
        own += 5
        dist.barrier(group=rank.control)
        going()
    else:
        dist.barrier(group=rank.control)
        together([], [(0, theirs)], group)()
        assert theirs.tolist() == [5] * 4
    dist.all_reduce(first, group=group)


def receive_first(rank, group):
    other, own, theirs = pair(rank)
    coming, going = dist.irecv(theirs, other, group=group), dist.isend(own, other, group=group)
    coming.wait()
    going.wait()


def send_first(rank, group):
    other, own, theirs = pair(rank)
    going, coming = dist.isend(own, other, group=group), dist.irecv(theirs, other, group=group)
    going.wait()
    coming.wait()


def other_kinds(rank, group):
    _, own, _ = pair(rank)
    dist.broadcast(own, 0, group=group) if rank.rank else dist.all_reduce(own, group=group)


def other_sizes(rank, group):
    other, own, _ = pair(rank)
    together([(other, own)], [(other, torch.empty(3))], group)()


def other_order(rank, group):
    """Two communicators, whose collectives the ranks call the other way round."""
    _, own, _ = pair(rank)
    both = [group, opened((0, 1))]
    for one in both if rank.rank else both[::-1]:
        dist.all_reduce(own, group=one)


def send_or_sum(rank, group):
    """A send on one rank where the other adds up."""
    other, own, _ = pair(rank)
    together([(other, own)], [], group)() if rank.rank else dist.all_reduce(own, group=group)


def from_anyone(rank, group):
    dist.recv(torch.empty(4), group=group)


def with_gaps(rank, group):
    other, own, theirs = pair(rank, 8)
    together([(other, own[::2])], [(other, theirs[:4])], group)()


def measured(operation):
    def case(rank, group):
        groups = ProcessGroups(rank, GroupShape(2))
        dist.all_reduce(torch.zeros(1), group=groups.mine)
        with ungrouped():
            CALLS[operation](rank, groups, 64)[0]()

    return case


class ungrouped:
    """Sends and receives one after the other, as they were once."""

    def __enter__(self):
        self.before = calls.together
        calls.together = wire.together = single

    def __exit__(self, *_):
        calls.together = wire.together = self.before


def single(given, made, group):
    works = [dist.irecv(tensor, rank, group=group) for rank, tensor in made]
    works += [dist.isend(tensor, rank, group=group) for rank, tensor in given]
    return lambda: [work.wait() for work in works]


def with_planted(rank, model, text):
    """A step of a plan whose messages are not grouped, or of a pipeline with one way for both."""
    for known in (mesh._PROCESS_GROUPS, mesh._WAYS):
        known.clear()  # those of the plan before wait for ever
    layers, plan = graph(model), parse(text, 4)
    wires = wire.Wire(DeviceMesh(plan, rank.rank, rank.size))
    trainer = Trainer(LocalModel(layers, plan, wires, seed=1), Optimizer("sgd", 0.1))
    if (1, 0) in mesh._WAYS:
        mesh._WAYS[1, 0] = mesh._WAYS[0, 1]
    with ungrouped():
        trainer.step(*inputs(layers, 4, 0, torch.float32))


CASES = {
    "swapped": swapped, "in order": in_order, "late": late, "receive first": receive_first,
    "send first": send_first, "other kinds": other_kinds, "other sizes": other_sizes,
    "other order": other_order, "send or sum": send_or_sum, "from anyone": from_anyone,
    "with gaps": with_gaps, "sendrecv": measured("sendrecv"), "halo": measured("halo"),
}  # fmt: skip

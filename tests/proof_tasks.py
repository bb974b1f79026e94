"""What ranks do in tests of the proof: the same, where an exchange is broken on one of them."""

import torch.distributed as dist

from oracle.executor.proof import machine


def broken(rank, arguments):
    """Rank 1 does not get the sum of an allreduce among device tensors."""
    right = dist.all_reduce

    def wrong(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
        before = tensor.clone()
        work = right(tensor, op, group, async_op)
        if work is not None:
            work.wait()
        if rank.rank == 1 and op == dist.ReduceOp.SUM:
            tensor.copy_(before)
        return work

    dist.all_reduce = wrong
    plans = arguments["plans"]
    every = machine._trials
    machine._trials = lambda ranks: (each for each in every(ranks) if each[2] in plans)
    machine.task(rank, arguments)

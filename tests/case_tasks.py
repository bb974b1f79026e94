"""What ranks do with cases, one after the other."""

import traceback

import torch.distributed as dist


def prove(rank, cases, one):
    """Run all cases; one that raises is a result as well, alike on all ranks of its mesh."""
    for case in cases:
        rank.enter("measure", case["name"])
        try:
            found = one(rank, case)
        except Exception:
            found = {"error": traceback.format_exc()[-3000:]}
        rank.record(case["name"], **found)
        # an error on one rank only would leave others waiting; here all see the same shapes
        dist.barrier()

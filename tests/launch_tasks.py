"""What ranks do in the tests of `launch`: exchange, and fail on request."""

import os
import signal
import time


def exchange(rank, arguments):
    import torch
    import torch.distributed as dist

    fails = arguments.get("fails", {})
    for step in range(1, arguments["steps"] + 1):
        key = f"step {step}"
        if rank.finished(key):
            continue
        if not rank.go_on():
            return
        due = fails.get("rank") == rank.rank and fails.get("step") == step
        if due and fails["how"] == "wait":
            time.sleep(1000)
        rank.enter("exchange", "allreduce of 1 KiB", step)
        if due and fails["how"] != "shape":
            fail(fails["how"])
        began = time.perf_counter()
        dist.all_reduce(torch.ones(1000 if due else 256))
        time.sleep(arguments.get("pause", 0.0))
        rank.record(key, seconds=time.perf_counter() - began, pid=os.getpid(),
                    parent=os.getppid(), library=id(dist))  # fmt: skip


def fail(how):
    if how == "raise":
        raise ValueError("planted")
    if how == "memory":
        bytearray(2**60)
    if how == "exit":
        os._exit(7)
    if how == "nursery":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
    os.kill(os.getpid(), getattr(signal, how))

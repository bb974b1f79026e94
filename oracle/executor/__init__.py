"""Runs plans for real with torch.distributed and times them; it knows no predicted seconds.

Only this room imports torch (and `readers/importers/torch.py`), and only inside the worker
processes that it starts: the process that supervises them never does.

run plan_run      plans that are run, one after the other
question          what results are of, and what differs
supported         what the executor can run
measured          the measurement of a plan, as it is written and read
ranks/            starting and watching ranks
local/            what one device of a plan holds
messages/         who exchanges with whom, and the messages
agreement/        gradients that are compressed, served, averaged
passes/           operations forward and backward, with their exchanges
steps/            training steps, and their update
engines/          what runs a plan: itself, or PyTorch's own classes
pytorch/          the model as modules, wrapped and trained by them
loading/          samples, read for real
checkpointing/    checkpoints, failures and restarts, for real
measure/          exchanges, rows, steps, memory and machines, measured
proof/            what runs here is right, and how fast it is
"""

"""Runs plans for real with torch.distributed, and times what it ran; it knows no predicted seconds.

Only this room imports torch (and `readers/importers/torch.py`), and only inside the worker
processes that it starts: the process that supervises them never does.

run launch rank heartbeat wire faults records    starting ranks, watching them, their results
collectives profile measured                     what is measured: exchanges, rows, whole plans
world mesh calls exchange mute replay            who talks to whom, and the messages themselves
program steps turns schedule parts context       a plan's work of one rank, in order
graph cuts operators weights optimizer           the model's layers, split as the plan splits them
supported                                        what it can run
"""

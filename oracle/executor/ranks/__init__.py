"""Starts the ranks of a run, watches them, and keeps what they find.

launch         starts or joins ranks, watches them, and ends all when one fails
forked_ranks   ranks of one host as forks of one process
rank           the worker process of one rank
heartbeat      what each rank last reported, in a mapped file
world          rank and size, by the variables of a launcher
peers          what ranks tell each other when they meet
faults         failures of ranks, and which of them caused the others
records        result files, one a rank
ordered        gloo that keeps to the order that NCCL documents
"""

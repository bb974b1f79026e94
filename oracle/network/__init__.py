"""Seconds of messages: algorithms, topologies, and what flows that meet cost each other.

collectives/  one file an algorithm's family: messages, steps and bytes
topology/     one file a kind of network: links and routes
contention/   the α, β and φ that simultaneous groups see
nccl          what NCCL chooses, and what it costs the work beside it
"""

"""Seconds of messages: collectives, topologies, and groups that share links.

collectives/  one file a family of algorithms: steps, bytes, schedules
topology/     links and routes of a network, one file a kind of level
designs/      networks that could be bought, one file a kind: switches and cables, counted
contention/   start-up and seconds per byte that simultaneous groups see
host          copies between a device and its host
nccl          NCCL's public cost model: what it chooses and what that takes
arrays        types of numbers and arrays
"""

"""From a step to a whole training: how many steps, what goes wrong on the way.

convergence   epochs until a target is met, by batch
goodput       failures, restarts and checkpoints: the share of time that is progress
"""

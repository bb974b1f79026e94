"""From a step to a whole training: how many steps, what goes wrong on the way.

convergence   epochs until a target is met, by batch
evaluation    what evaluating on the way takes
costs         device-hours, money, energy, carbon
schedule      a batch that grows, phase by phase
target        seconds until a target is met, or so many tokens are trained
goodput       failures, restarts and checkpoints: the share of time that is progress
"""

"""From a step to a whole training: how many steps, what goes wrong on the way.

convergence   epochs until a target is met, by batch
costs         device-hours, money, energy, carbon
target        seconds until a target is met, or so many tokens are trained
goodput       failures, restarts and checkpoints: the share of time that is progress
interrupted   seconds of a training in which these very failures come
"""

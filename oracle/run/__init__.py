"""From a step to a whole training: how many steps, what goes wrong on the way.

convergence   epochs until a target is met, by batch
power         how hard devices work: what share of the power between idle and busy they draw
costs         device-hours, money, energy, carbon
limits        deadlines and budgets of a whole training
target        seconds until a target is met, or so many tokens are trained
goodput       failures, restarts and checkpoints: the share of time that is progress
"""

"""From a step to a whole training: how many steps, what goes wrong on the way.

convergence   epochs until a target is met, by batch
evaluation    what evaluating on the way takes
power         how hard devices work: what share of the power between idle and busy they draw
costs         device-hours, money, energy, carbon
limits        deadlines and budgets of a whole training
target        seconds until a target is met, or so many tokens are trained
goodput       failures, restarts and checkpoints: the share of time that is progress
checkpoints   bytes of a training's state, and the seconds that saving and loading it takes
failures      what all of that makes of the hours of a training under a plan
"""

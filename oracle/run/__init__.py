"""From a step to a whole training: the number of steps, and interruptions on the way.

convergence   epochs until a target is met, by batch
critical      the batch up to which tokens are worth as much as those of a small one
evaluation    seconds of evaluations during a training
power         the load of devices: their share of the power between idle and busy
costs         device-hours, money, energy, carbon
spent         the costs of a plan, the sum over its devices
schedule      a batch that grows, phase by phase
limits        deadlines and budgets of a whole training
lossy         further epochs where replicas agree on less than their gradients
target        seconds until a target is met, or until a number of tokens is trained
workflow      the spec of many trainings: a search, an ensemble, transfer
searches/     the stages of each kind of search
waves         seconds until many trials have run, several at once
sharing       the part of a machine that is left for one training of several
goodput       failures, restarts and checkpoints: the share of time that is progress
interrupted   seconds of a training with given failures
checkpoints   bytes of a training's state, and seconds of saving and loading it
failures      the hours of a training under a plan, with its failures and checkpoints
"""

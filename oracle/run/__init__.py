"""From a step to a whole training: how many steps, what goes wrong on the way.

convergence   epochs until a target is met, by batch
critical      the batch up to which tokens do as much as those of a small one
evaluation    what evaluating on the way takes
power         how hard devices work: what share of the power between idle and busy they draw
costs         device-hours, money, energy, carbon
spent         the same of a plan, the sum over the devices that it is on
schedule      a batch that grows, phase by phase
limits        deadlines and budgets of a whole training
lossy         epochs more where replicas agree otherwise than on whole gradients
target        seconds until a target is met, or so many tokens are trained
workflow      many trainings as a spec says them: a search, an ensemble, transfer
searches/     the stages of each kind of search
waves         seconds until many trials have run, several at once
sharing       what of a machine is left for one training of several
goodput       failures, restarts and checkpoints: the share of time that is progress
interrupted   seconds of a training in which these very failures come
checkpoints   bytes of a training's state, and the seconds that saving and loading it takes
failures      what all of that makes of the hours of a training under a plan
"""

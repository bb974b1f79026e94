"""Questions about many predictions: which plan is best, why, what if, and was it right.

search      the best plans of a space
candidates  plans that were tried, and which stands for a product of degrees
climb       climbing on from the best plans
space       every product of degrees, every knob worth trying
ranking     the plans that fit, best first
bad_moments first the plan that loses least where the network is slow, of those that are equal
compressing compressed gradients among the plans, and from which bandwidth on they pay
compression the answer to that
fusing      gradients in pieces of what size
joined      estimates of one question as one
bad_moments   of plans that cannot be told apart, the one that loses least at bad moments
ties        which plans cannot be told apart, and what to measure to tell them
explain/    what bounds a plan, and what would change its place
choose      which machine, how many of its devices, at what cost
design_network   which network to buy for so many devices
timings     seconds of many plans on one network
setups      a machine, devices, software, batch and plan: what one may choose
turning     what would change a choice
spending    plans by money, energy and carbon; those that keep to limits
batches     the batch that ends a training first
workflow    many trainings on so many nodes: how many at once, how large each
trials      one training of many, by its number of devices
combined    a search times data times model parallelism, as a product and as it is
optimizers  which optimizer is done first, and from how many devices on
phases      the plan of each phase where the batch grows
ending      plans in the order in which a training under them ends
partitions    which partitions plans are tried on, and what share of the batch each takes
placing     where a plan's ranks had best sit, and what scattered nodes cost
circuits    optical circuits shared by what a plan sends
beside      a job among others on one network: what their exchanges cost
largest     the largest micro-batches that fit
launched    a job that exists: what it takes, and what would be better
sweep/      the same question over devices, batches, models and systems
compare     predictions beside measurements
alive       bytes of tensors counted beside those predicted
recovered   likewise of checkpoints and failures of a real training
progress    how far a long answer is
selftest    whether this installation is sound
proved      whether the ranks at hand are, beside what a system promises
"""

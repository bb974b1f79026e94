"""The one path from plans to seconds and bytes.

evaluate      split, price, talk, price, add up
block         the estimate of some plans, and what each was priced from
shared        plans whose rows are split and priced together, and the least that each can take
unlike        the same of plans over unlike devices
faces         replicas of plans on unlike devices
sides         what each partition does in a step, and how long it waits
ways          ways to cut pipelines, and the one in which each plan is fastest
workload      rows, seconds and stages that plans have in common
exchange      cost of each message
offers        what the network offers for a message, and the cheapest of it
overlap       what of it hides under the work beside it
stage_work    what each stage computes and updates
graphs        parts of layers whose kernels are launched as one
encoding      compressing gradients, and what is left out of them
second_order  K-FAC's factors, inverses and preconditioned gradients
passes        the passes of a micro-batch on each stage: work and messages, beside the host
step          an iteration from the seconds of its stages
resident      what units do with activations where the room decides, and what it costs
taken_apart   units without room as parts that have it
played        when the stages of a pipeline are done, as its schedule is played
reading       ways to read beside a step, and the chosen one
read_figures  what is said of one plan's reading
memory        bytes of a device at the worst moment
row_bytes     what each row keeps, makes and wants while it runs back
alive         activations that a stage holds at the worst moment of its turns
carried       bytes of tensors that cross between stages, where they wait
limits        what a plan may not exceed
named         whether an algorithm that was named sends anything
remarks       what was done otherwise than asked, and values that look wrong
uncertainty   how far a prediction can be trusted, by cause
defaults      options that nobody said
rates         what is trained in a second: samples, tokens, FLOP, utilisation
local_work    FLOP and bytes of memory that a plan's own work takes of a device
allocation    one iteration on a stage, tensor by tensor: what is allocated and freed when
scripts       what each turn of a stage does with memory
fragmentation reserved bytes against those in use, by an allocator's rules
trace         the iteration in time, stage by stage
columns       plans of an estimate as columns of a data frame
estimate      what a prediction says of each plan
"""

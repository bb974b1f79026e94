"""What a person sees of an answer: text, figures, pages, and the published form of its JSON.

first_screen    a ranking: the answer, what it rests on, the other plans, what to type next
layout          the lines of every first screen: facts, what has room, a command to type next
plan_words      a plan in words, what letters stand for, what nobody named
text            an estimate, and the figures that answers share
explanation comparison sweep checks roofline memory   the other answers, as text
workspaces      what convolutions take of their workspace
partitions      who is busy how long on unlike devices, who waits, what each holds
placing         where ranks sit, what a placement saves, what scattered nodes cost
beside          what a plan takes beside other jobs
circuits        which messages get optical circuits
reading         how a plan gets its samples
calibration     what logs of benchmarks and timed kernels made of a machine
run_fit         what logs of runs told
manual          a strategy's equations, what an error code means
bibliography    the works that a source names
rates           what is trained in a second
recovery        checkpoints and failures of a real training
choose          which machine, how many devices: the answer, the frontier, what would change it
design_network  which network to buy: the answer, every one that can be built
training        how long a whole training takes, until what
workflow        many trainings: how many at once, how large each, and as a table
phases          a training whose batch grows
terminal        width, colour and characters of the terminal at hand
contract        what every answer looks like as JSON
provenance      what an answer was made from
plot/           figures
page/           the report as one HTML file
"""

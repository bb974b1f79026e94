"""Text to typed things: spec files with a place for every fault, units, options.

document      a text as a tree of places; faults and their codes
schema        a tree as a frozen dataclass, with every fault at once
json_schema   the JSON Schema of such a dataclass, for editors
units         text to SI numbers and back
dataset device system software     the kinds of spec
storage       a system's file system, disks and host
running       how often a machine fails, what it draws and emits
convergence   epochs that a model takes to a target
allocator     rules by which a device's memory is handed out
kernel_choice which kernels a software runs, and how it keeps its tensors
level         how one level of a system's network is joined
by_nodes      what a level was measured to give by the nodes that a message spans
gradients     how replicas agree on gradients and get weights back
graphs/       networks of any shape: hosts, switches, links, and the files that say them
hostlist      names of nodes as Slurm writes them
seats         which device each rank of a job sits on
used          a machine of whose units a job uses a part
widths        how wide numbers are that software keeps or sends
partitions    what a job on unlike devices sees of a system
basis         what a system's numbers stand on: measurements, logs, datasheets, guesses
plausible     values that no machine is known to have
formula       a formula of plans and model in a spec
precision     precisions, and bytes of an activation
doubt         what each step away from a measurement adds to the doubt of a prediction
registry      classes that are found by being defined
other_words   words of other tools for ours, as advice knows them
collective_names   operations and algorithms that measurements may be of
changes       fields said anew beside a name
what_if       a system with its network, memory or kernels so many times what they are
told          a block of a spec said in a line, as options do
dates         which file of a family was the newest at a date
catalogue     shipped specs by name, a user's own by path
optimizer     an optimizer and its knobs as they are written
options       options of a prediction beside the plan
files         atomic file writes
strict_json   JSON that is refused where it is odd
tabular       answers that are rows: in a line, as data frames, as tables of a notebook
version       the version of oracle
"""

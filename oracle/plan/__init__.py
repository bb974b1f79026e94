"""How a training is split: strategies, plans that combine them, and who does what when.

strategies/   one file a strategy
plan          a table of plans
grammar       the text of a plan
curvature     factors of K-FAC, and what is said of them
names         short names of plans, for pictures and tables
mesh          the devices of a plan, and the group of a message among them
schedule      the order of a pipeline: what each stage does, pass by pass
in_flight     micro-batches that a stage keeps when each of its turns begins
player        when each pass of a schedule starts and ends
launchable    which plans a software can be told
out_of_core   two passes whose activations leave the device and return, or are made again
unit_choice   what each unit of a stage does with its activations
unit_search   the same of unlike units, changed one by one
unit_program  the same of a few unlike units, exactly
stages        which units each device of each pipeline holds, and sums over them
cuts          where a pipeline may be cut into chunks
layout        stages by hand, as a plan writes them
laid          how many devices of each unit a plan's job takes
partition     cuts of a chain of units that make its fullest part least
crossings     tensors that cross between stages, from where to where
"""

"""Says what one device of a plan holds: operations, weights, parts of tensors and samples.

graph         operations of a model, with every copy unrolled
parts         parts of an extent, and what a window over a part needs
cuts          cuts of each row under a plan
weights       parts of weights in flat buffers
local_model   all of it together
spans         operations that run, and are recomputed, together
batch         the samples of a step
away          what lies beside the device
"""

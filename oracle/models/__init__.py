"""A network as columns, one row a kernel, and the part of it that one device holds.

The room has an s, since `oracle.model` is the function that opens a model.

model         columns of rows, from a spec
layers/       one class a layer kind: shapes, weights, work
transformer   the family block of a transformer as layers
fusion        what a library does in one kernel
shard         what one device is left with
masks         rows by what they do
"""

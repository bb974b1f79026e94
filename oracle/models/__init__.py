"""A network as columns, one row a kernel, and the part of it that one device holds.

The room has an s, since `oracle.model` is the function that opens a model.

model         a network as columns, one entry a row; opened by name, path or dict
build         shape inference: from the layers of a spec to rows
layers/       one class a layer kind: shapes, weights, work
instances     rows as they run, copies of blocks by themselves, and who wants what they make
places        where a pipeline may cut a model, and what crosses there
transformer   the family block of a transformer as layers
kept          which tensors wait for the pass back, and as how wide numbers
training      what of it is trained: all, adapters, nothing
fusion        the passes that a library fuses into the kernel of a norm
shard         local shapes: what one device holds and does
masks         rows of a model by what they do
"""

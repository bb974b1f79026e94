"""A model as plain modules of PyTorch, which PyTorch's own classes split and train.

modules network          rows as modules, units of rows, seeded weights, all of them together
setting                  what a run is of, as an engine is given it
replicas tensors         DDP, ZeRO-1 and fully_shard; tensor and sequence parallelism
ring                     attention over tokens that are cut
training pipelined       steps without and with a pipeline
state                    what a checkpoint keeps of them
zero                     steps by DeepSpeed's engine
engine_steps             all that an engine does on a rank
"""

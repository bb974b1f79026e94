"""Checkpoints of a real training: written, read back after a failure, and timed.

keeping    which checkpoints are asked for, and failures that are planted
folder     checkpoints on disk: whole and checked, or not there
pieces     the parts of weights and optimizer state that each rank keeps
saver      ways to write them: by rank 0, by all ranks, or beside the training
loader     the newest one that is whole, back into a training
training   a rank's steps with checkpoints between them
restart    ranks that are started again after a failure
summary    what all of it took, out of the ranks' records
"""

"""Reads samples for real, by threads that read ahead, in one of several modes.

samples    the files of a data set, and which bytes of them a sample is; made ones too
files      bytes of files, with or without the page cache
throttle   limits of a storage that is played: a node, all nodes, operations on names
sources    where samples come from: shared, staged, cached, striped, spatial
store      a store over all ranks, each of which holds a part and serves it
loader     threads that read ahead, and what a step waits for them
reader     what one rank of a plan reads, and passes on to those that share its samples
measure    files a second by threads, cold and warm
"""

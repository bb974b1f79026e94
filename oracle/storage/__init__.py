"""Seconds of reading and writing: file systems, disks, caches, loaders, checkpoints.

file_system   what all nodes read from: bandwidth, metadata, latency, listing
disk          a node's own disks: reading, staging, room
cache         a node's memory: which of its reads it answers
loader        threads that read, cores that unpack, and what a step waits for
shuffling     who reads which samples in the next epoch
checkpoint    seconds of writing state
unknown       what is taken where a spec is silent, and how far off that may be
question      what plans ask of storage
reading       what an answer is
arrays        types, and what takes the longest
modes/        one file a way of getting samples: from where, over what

All is closed-form, over many plans at once: numbers or arrays (n,). Letters: N nodes that read,
b bytes and q files of a node and step, w threads of a node, D samples, s bytes of one, V = D s.
"""

from oracle.storage.modes import MODES
from oracle.storage.question import Question
from oracle.storage.reading import Reading
from oracle.storage.shuffling import Shuffle, shuffle
from oracle.storage.unknown import Assumed, Machine, Samples

__all__ = ["MODES", "Assumed", "Machine", "Question", "Reading", "Samples", "Shuffle", "shuffle"]

"""Every sample from the shared files, every epoch.

    T_read = max( N b / min(BW, N BW_node),  N q o / MD,  (q t_open + b / BW_stream) / w )
    once     T_list of `oracle.storage.file_system`

The ranks that read all list the files at the start.
"""

from __future__ import annotations

from oracle.storage import file_system
from oracle.storage.question import Question
from oracle.storage.reading import NO_FILES, Reading, impossible, read_ahead

WHERE = "the shared file system"
EFFORT = 0
STORE = "shared"


def seconds(question: Question) -> Reading:
    shared, data = question.machine.shared, question.samples
    if shared is None:
        return impossible(NO_FILES)
    terms = file_system.read(shared, question.reading(), question.nbytes(), question.files(),
                             question.threads(), question.slowest())  # fmt: skip
    listed = file_system.listing(shared, question.groups, data.files, data.directories)
    return read_ahead(question, terms, listing=listed)

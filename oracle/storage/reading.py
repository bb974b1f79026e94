"""The answer of storage: seconds that samples take to come, by cause, each step and once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oracle.storage.arrays import Floats, Number, Terms, longest
from oracle.storage.question import Question

NO_FILES = "nobody says how fast the shared file system is"
NO_DISKS = "nobody says what disks a node has"


@dataclass(frozen=True, eq=False)
class Reading:
    """What some plans take to read, (n,) each, or one number for all."""

    terms: Terms  # seconds of a step by cause, the longest is what binds
    load: Floats  # seconds in which the batch of a step is read and unpacked, ahead of its use
    first: Floats  # the same in the first epoch
    alone: Number = 0.0  # seconds of a step that nothing hides
    network: Number = 0.0  # seconds of a step that a node's ports are in use by it
    staging: Number = 0.0  # seconds once, before the first step
    listing: Number = 0.0  # likewise
    short: Number = 0.0  # bytes that a node lacks to keep what it must
    why: str = ""  # why it is not possible at all
    barred: NDArray[np.bool_] | bool = False  # or for some plans
    bar: str = ""  # and why for these
    full: Floats | None = None  # `load` as it were if memory answered all
    left: Number = 0.0  # of an epoch's misses beyond these, the share that the next one has
    opens: Number = 0.0  # files of a step that all nodes open together
    nbytes: Number = 0.0  # bytes of a step that all nodes read together

    @property
    def possible(self) -> NDArray[np.bool_]:
        able = (np.asarray(self.short, float) <= 0) & ~np.asarray(self.barred)
        return np.asarray(able & (not self.why))

    @property
    def once(self) -> Number:
        """Seconds before the first step."""
        return self.staging + self.listing

    @property
    def bound_by(self) -> list[str]:
        """The cause that takes the longest, of each plan."""
        names = list(self.terms)
        values = np.broadcast_arrays(*(np.atleast_1d(seconds) for seconds in self.terms.values()))
        return [names[index] for index in np.argmax(values, axis=0)]


def impossible(why: str) -> Reading:
    never = np.full(1, np.inf)
    return Reading({}, never, never, why=why)


def read_ahead(
    question: Question, terms: Terms, first: Terms | None = None, *, slabs: bool = False,
    packed: bool = False, seconds: Number | None = None, full: Number | None = None,
    network: Number = 0.0, staging: Number = 0.0, listing: Number = 0.0, short: Number = 0.0,
    left: Number = 0.0,
) -> Reading:  # fmt: skip
    """Return the reading of these terms, of the slowest node, through the loader.

    `seconds` is the time of all terms where they do not go on at once; `first` are the terms of
    the first epoch where it has others.
    """
    nodes = question.reading(slabs)
    unpacked = question.decode(slabs, packed)

    def loaded(took: Number) -> Floats:
        return np.asarray(np.maximum(took, unpacked))

    steady = longest(terms) if seconds is None else seconds
    load = loaded(steady)
    return Reading(
        {**terms, "decode": unpacked}, load, load if first is None else loaded(longest(first)),
        alone=0.0 if slabs or question.nobody_cuts else question.alone(),
        network=network, staging=staging, listing=listing, short=short,
        full=None if full is None else loaded(full), left=left,
        opens=nodes * question.files(slabs), nbytes=nodes * question.nbytes(slabs),
    )  # fmt: skip

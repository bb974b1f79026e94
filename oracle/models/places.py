"""Places where a pipeline may cut a model, and the tensors that cross each of them.

Rows are laid out in their order, copies of a repeated block one after the other. A *unit* is a run
of them; a tensor crosses every place between the row that makes it and the last row that reads it.
The samples themselves cross nothing: every stage that reads them has them from its loader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from oracle.models.build import Segment

MOST_UNITS = 192  # pieces that a pipeline deals out: cutting takes time by their square
HEAVY = 1 / 6  # of the work: a piece with more is cut inside, where fewest bytes cross
SPACING = 1 / 64  # of the work: the least that lies between two such places
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Feeds: TypeAlias = Sequence[tuple[int, ...]]


class Atom(NamedTuple):
    """Rows of one copy of a segment between which nobody cuts."""

    segment: int
    copy: int
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Links:
    """Tensors that one unit makes and another reads, one entry a tensor and reader: (k,) each.

    A tensor is sent once to each stage that reads it, from the stage that made it: so where its
    reader and the unit `before` are on different stages.
    """

    row: Ints  # that makes it
    maker: Ints  # unit
    reader: Ints  # unit
    before: Ints  # the reader before this one, or the maker
    next: NDArray[np.bool_]  # the last tensor of a unit, read by the next

    @property
    def plain(self) -> bool:
        """Whether nothing crosses but the last tensor of each unit, to the next."""
        return bool(self.next.all() and len(self.row) == self.reader.max(initial=0))


@dataclass(frozen=True, eq=False)
class Units:
    """The pieces that a pipeline deals out, and what passes between them."""

    counts: Floats  # (units, rows) of each row in each unit
    ends: Floats  # (units,) the row that ends each
    links: Links
    begins: NDArray[np.bool_]  # (units,) whether it begins a block or a layer by itself


def units_of(feeds: Feeds, segments: Sequence[Segment], y: Floats, work: Floats) -> Units:
    """The units of a model; `work` is each row's share of a sample's, of all copies 1."""
    atoms = list(_atoms(segments, work))
    tensors = _tensors(feeds, segments, atoms)
    crossing = _crossing(tensors, y, len(atoms))
    sound = _ends(atoms, segments, tensors, crossing)
    cut = _chosen(atoms, segments, sound, crossing, work)
    ends = np.flatnonzero(cut)
    unit = np.concatenate([[0], np.cumsum(cut)[:-1]])  # of each atom
    counts = np.zeros((len(ends), len(feeds)))
    for atom, unit_number in zip(atoms, unit.tolist(), strict=True):
        counts[unit_number, atom.start : atom.stop] += 1
    last = np.array([atoms[end].stop - 1 for end in ends], float)
    first = np.array([0, *(end + 1 for end in ends[:-1].tolist())])
    begins = [atoms[i].start in (segments[atoms[i].segment].start, *segments[atoms[i].segment].cuts)
              for i in first.tolist()]  # fmt: skip
    return Units(counts, last, _links(tensors, unit, last), np.array(begins))


Tensors: TypeAlias = dict[tuple[int, int], list[int]]  # (atom that makes it, row): atoms that read


def _atoms(segments: Sequence[Segment], work: Floats) -> Iterator[Atom]:
    """Yield light repeated blocks and layers of a stack block by block, everything else by row."""
    for number, segment in enumerate(segments):
        light = segment.repeat > 1 and work[segment.start : segment.stop].sum() <= HEAVY
        if light or segment.stack:
            places: Sequence[int] = (segment.start, *segment.cuts, segment.stop)
        else:
            places = range(segment.start, segment.stop + 1)
        for copy in range(segment.repeat):
            for start, stop in pairwise(places):
                yield Atom(number, copy, start, stop)


def _tensors(feeds: Feeds, segments: Sequence[Segment], atoms: Sequence[Atom]) -> Tensors:
    """Return the tensors that atoms read of other atoms.

    A repeated block reads the row just before its segment, which from the second copy on is the
    last row of the copy before. It may also read earlier rows, which are the same for all copies.
    """
    of_row = np.zeros(len(feeds), int)  # the last atom that makes each row
    copy = np.zeros(len(segments), int)  # atoms of one copy
    for number, atom in enumerate(atoms):
        of_row[atom.start : atom.stop] = number
        copy[atom.segment] += atom.copy == 0
    tensors: Tensors = {}
    outside: dict[tuple[int, int], list[int]] = {}
    for number, atom in enumerate(atoms):
        rows = atom.start, atom.stop
        if rows not in outside:
            outside[rows] = sorted({feed for row in range(*rows) for feed in feeds[row]
                                    if 0 <= feed < atom.start})  # fmt: skip
        segment = segments[atom.segment]
        for feed in outside[rows]:
            made_row = feed
            if feed >= segment.start:  # of the same copy
                maker = int(of_row[feed]) - (segment.repeat - 1 - atom.copy) * int(
                    copy[atom.segment]
                )
            elif atom.copy and feed == segment.start - 1:
                made_row = segment.stop - 1
                back = segment.repeat - atom.copy
                maker = int(of_row[made_row]) - back * int(copy[atom.segment])
            else:
                maker = int(of_row[feed])
            tensors.setdefault((maker, made_row), []).append(number)
    return tensors


def _crossing(tensors: Tensors, y: Floats, atoms: int) -> Floats:
    """Return the elements of a sample that cross behind each atom."""
    change = np.zeros(atoms + 1)
    for (maker, row), readers in tensors.items():
        change[maker] += y[row]
        change[readers[-1]] -= y[row]
    return np.cumsum(change)[:-1]


def _ends(
    atoms: Sequence[Atom], segments: Sequence[Segment], tensors: Tensors, crossing: Floats
) -> NDArray[np.bool_]:
    """Return the atoms behind which a cut is sound in any case.

    A cut is sound at ends of segments and blocks that only the last tensor crosses, and between
    the copies of a repeated block, whatever else crosses there.
    """
    several = np.zeros(len(atoms) + 1, int)
    lone = np.zeros(len(atoms), bool)  # whether the last tensor crosses
    for (maker, row), readers in tensors.items():
        several[maker] += 1
        several[readers[-1]] -= 1
        lone[maker] |= row == atoms[maker].stop - 1
    clean = (np.cumsum(several)[:-1] == 1) & lone
    sound = np.zeros(len(atoms), bool)
    for number, atom in enumerate(atoms):
        segment = segments[atom.segment]
        if atom.stop == segment.stop:
            sound[number] = clean[number] or segment.repeat > 1 or segment.stack
        elif atom.stop in segment.cuts:
            sound[number] = clean[number]
    beyond = len(atoms) - 1
    for number in reversed(range(len(atoms))):  # inside a copy no dearer than at its end
        atom, segment = atoms[number], segments[atoms[number].segment]
        if atom.stop == segment.stop:
            beyond = number
        elif atom.stop in segment.cuts and (segment.repeat > 1 or segment.stack):
            sound[number] |= crossing[number] <= crossing[beyond]
    sound[-1] = True
    return sound


def _chosen(
    atoms: Sequence[Atom], segments: Sequence[Segment], sound: NDArray[np.bool_],
    crossing: Floats, work: Floats,
) -> NDArray[np.bool_]:  # fmt: skip
    """Return the atoms behind which a pipeline may cut.

    Heavy pieces are cut inside too. Of places with little work between them the one counts where
    the fewest bytes cross; of equal ones the one at the end of a block, or else behind more of the
    work. Where there are more than MOST_UNITS places, the last of each equal run is kept.
    """
    running = np.cumsum([work[atom.start : atom.stop].sum() for atom in atoms])
    end = [atom.stop == segments[atom.segment].stop for atom in atoms]
    cut, begin = sound.copy(), -1
    for stop in np.flatnonzero(sound).tolist():
        if running[stop] - (running[begin] if begin >= 0 else 0.0) > HEAVY:
            chosen = [running[begin] if begin >= 0 else 0.0, running[stop]]
            inside = range(begin + 1, stop)
            for place in sorted(inside, key=lambda i: (crossing[i], not end[i], -i)):
                if min(abs(running[place] - amount) for amount in chosen) >= SPACING:
                    chosen.append(running[place])
                    cut[place] = True
        begin = stop
    if (stride := -(-int(cut.sum()) // MOST_UNITS)) > 1:
        places = np.flatnonzero(cut)
        cut[:] = False
        cut[places[stride - 1 :: stride]] = cut[-1] = True
    return cut


def _links(tensors: Tensors, unit: Ints, last: Floats) -> Links:
    """Return the tensors that pass from unit to unit."""
    links = []
    for (maker, row), readers in tensors.items():
        maker_unit = before = int(unit[maker])
        for reader in dict.fromkeys(unit[readers].tolist()):
            if reader > maker_unit:
                links.append((row, maker_unit, reader, before))
                before = reader
    links.sort(key=lambda link: (link[2], link[1], link[0]))
    rows, makers, read, earlier = np.array(links, int).reshape(-1, 4).T
    return Links(rows, makers, read, earlier, (read == makers + 1) & (last[makers] == rows))

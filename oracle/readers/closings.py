"""Runs of a log, from header to closing line: which promised more than it printed."""

from __future__ import annotations

from dataclasses import dataclass, field

from oracle.readers.logs import LogFault

ADVICE = "run it again, or give the whole log"


@dataclass(slots=True)
class Runs:
    """What each run of a log promised in its header, and whether it came to its end."""

    faults: list[LogFault] = field(default_factory=list)
    began: int = 0  # the line of the header of a run that has not ended
    promised: int = 0  # bytes of its largest message
    largest: int = 0  # bytes, so far
    last: int = 0  # the line of the last row
    places: dict[str, int] = field(default_factory=dict)  # of its ranks, and the line of each

    def begin(self, at: int) -> None:
        self.end(cut=True)
        self.began, self.promised, self.largest, self.places = at, 0, 0, {}

    def place(self, place: str, at: int) -> None:
        """Note where a rank ran; two at one place are of two runs, or of hosts renamed."""
        first = self.places.setdefault(place, at)
        if first != at and " device 0 " not in place:  # each rank may see one device only
            what = f"this rank is on the device of the rank of line {first}"
            self.faults.append(LogFault(at, "counts", what, "give the log as the run wrote it"))

    def end(self, cut: bool = False) -> None:
        """Close a run; `cut` where no closing line of its own does."""
        at = self.last or self.began
        if self.began and cut:
            what = "the run ended before its closing line: what follows here is missing"
            self.faults.append(LogFault(at, "truncated", what, ADVICE))
        elif self.began and self.largest < self.promised:
            what = f"the header promises messages up to {self.promised} bytes, the last row has "
            self.faults.append(LogFault(at, "truncated", what + str(self.largest), ADVICE))
        self.began = 0

"""Runs of a log, from header to closing line, and runs that promised more than they printed."""

from __future__ import annotations

from dataclasses import dataclass, field

from oracle.readers.logs import LogFault

ADVICE = "run it again, or give the whole log"


@dataclass(slots=True)
class Runs:
    """The runs of a log: the promise of the header, and whether the closing line came."""

    faults: list[LogFault] = field(default_factory=list)
    began: int = 0  # the line of the header of a run that has not ended
    promised: int = 0  # bytes of its largest message
    largest: int = 0  # bytes, so far
    last: int = 0  # the line of the last row
    places: dict[str, int] = field(default_factory=dict)  # place of each rank -> its line

    def begin(self, line: int) -> None:
        self.end(cut=True)
        self.began, self.promised, self.largest, self.places = line, 0, 0, {}

    def place(self, place: str, line: int) -> None:
        """Note the place of a rank; two ranks at one place are of two runs, or renamed hosts."""
        first = self.places.setdefault(place, line)
        if first != line and " device 0 " not in place:  # each rank may see one device only
            complaint = f"this rank is on the device of the rank of line {first}"
            self.faults.append(
                LogFault(line, "counts", complaint, "give the log as the run wrote it")
            )

    def end(self, cut: bool = False) -> None:
        """Close a run; `cut` says that it has no closing line."""
        line = self.last or self.began
        if self.began and cut:
            complaint = "the run ended before its closing line: what follows here is missing"
            self.faults.append(LogFault(line, "truncated", complaint, ADVICE))
        elif self.began and self.largest < self.promised:
            complaint = (
                f"the header promises messages up to {self.promised} bytes, the last row has "
            )
            self.faults.append(LogFault(line, "truncated", complaint + str(self.largest), ADVICE))
        self.began = 0

"""Whether logs can be of a system at all: refused where not, with warnings where it is doubtful."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oracle.calibration import storage_trust, trust
from oracle.readers.logs import Reading
from oracle.spec.catalogue import system
from oracle.spec.document import Fault, Place, SpecError


def believed(readings: Sequence[Reading], onto: Any, files: str = "") -> str:
    """Warnings about logs, a line each; a SpecError where they are not of this system."""
    where = system(onto)
    found = [*trust.concerns(readings, where), *storage_trust.concerns(readings, where, files)]
    faults = [Fault("E132", each.words, Place()) for each in found if each.severity == "refuse"]
    if faults:
        raise SpecError(onto if isinstance(onto, str) else where.name, faults)
    return "\n".join(f"warning: {each.words}" for each in found)

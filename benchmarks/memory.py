"""Memory to plan with, held against counted and published figures: a table for each part.

    python -m benchmarks.memory [PART …] [--quick] [--json]

Parts are the files of `benchmarks/memories`. Nothing is fitted to them.
"""

from __future__ import annotations

import sys

from benchmarks import memories, parts

if __name__ == "__main__":
    sys.exit(parts.main(memories, __doc__, "fewer cases"))

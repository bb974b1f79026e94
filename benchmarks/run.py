"""From a step to a training, held against what runs took: a table for each part.

    python -m benchmarks.run [PART …] [--quick] [--json]

Parts are the files of `benchmarks/trainings`. Nothing is fitted to the hours of a run.
"""

from __future__ import annotations

import sys

from benchmarks import parts, trainings

if __name__ == "__main__":
    sys.exit(parts.main(trainings, __doc__, "fewer simulated jobs"))

"""Networks of any shape and where ranks sit on them: a table for each part.

    python -m benchmarks.networks [PART …] [--quick] [--json]

Parts are the files of `benchmarks/fabrics`. Nothing is fitted to them.
"""

from __future__ import annotations

import sys

from benchmarks import fabrics, parts

if __name__ == "__main__":
    sys.exit(parts.main(fabrics, __doc__, "fewer cases"))

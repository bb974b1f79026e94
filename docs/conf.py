"""How these pages are built: `sphinx-build -W -b html docs docs/_build`.

What a page says of the code is written into it by `python docs/filled.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

project = "oracle"
author = "the oracle authors"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "oracle"
html_show_sourcelink = False
autodoc_typehints = "none"

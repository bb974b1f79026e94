"""Colours of all figures, on light and on dark ground.

People with each kind of colour blindness tell any two of the eight apart, and each stands out
from its ground by 3:1 (WCAG 2.2, 1.4.11); `tests/test_palette.py` works both out. What lies on a
scale from little to much is one of eight steps of blue, so that a page can turn the scale round.
"""

from __future__ import annotations

from typing import Any

INK, FAINT, RULE, PAPER, WAIT = "#1a1a1b", "#5b5b5e", "#d9d9da", "#ffffff", "#ececee"
BLUE, SKY, GREEN, RED = "#004888", "#3f97d9", "#087d59", "#b8430b"
ORANGE, PINK, OLIVE, GREY = "#cf8102", "#b85da1", "#554400", "#77777c"
PALE = "#d0d0d4"
STEPS = ("#dde5ec", "#bfd5e6", "#9dc3e0", "#79aed6", "#5495c4", "#367aad", "#1d5c8e", "#0a3d69")
NAMES = {
    "ink": (INK, "#ececee"), "faint": (FAINT, "#a9a9ad"), "rule": (RULE, "#3d3d42"),
    "paper": (PAPER, "#18181b"), "wait": (WAIT, "#2b2b30"), "pale": (PALE, "#4a4a50"),
    "blue": (BLUE, "#3f8ddb"), "sky": (SKY, "#98ccf3"), "green": (GREEN, "#34c296"),
    "red": (RED, "#e8703a"), "orange": (ORANGE, "#ffc53b"), "pink": (PINK, "#e88dc8"),
    "olive": (OLIVE, "#e4e072"), "grey": (GREY, "#98989e"),
    **{f"step{at}": (light, dark) for at, (light, dark) in enumerate(zip(STEPS, (
        "#2c3238", "#2f4150", "#32526b", "#366689", "#437ea9", "#5c99c6", "#86b8dd", "#bcdcf4"),
        strict=True))},
}  # fmt: skip  # each name's colour on light and on dark ground


def step(value: float) -> str:
    """The colour of a part of a whole, 0 to 1."""
    return STEPS[min(int(max(value, 0.0) * len(STEPS)), len(STEPS) - 1)]


def variables(dark: bool) -> str:
    """The colours as CSS says them: `--blue: #004888; …`."""
    return " ".join(f"--{name}: {pair[dark]};" for name, pair in NAMES.items())


def filled(colour: str, hatch: str = "") -> dict[str, Any]:
    """How a part of a bar is filled; what is pale has an outline that is not."""
    edge = GREY if colour == PALE else PAPER
    return {"facecolor": colour, "hatch": hatch, "edgecolor": edge, "linewidth": 0.8}

"""Colours: told apart by colour-blind eyes, and seen on light and dark ground."""

import itertools

import numpy as np
import pytest

from oracle.show.plot import palette, style
from oracle.show.plot.parts import EXCHANGES

# what people with the three kinds of colour blindness see of linear RGB [machado2009, severity 1]
SEEN = {
    "usual": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
               [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
COLOURS = ("blue", "sky", "green", "red", "orange", "pink", "olive", "grey")
GROUNDS = ("light", "dark")


def linear(colour):
    rgb = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    """The ratio of WCAG 2."""
    light, dark = sorted(float(linear(c) @ (0.2126, 0.7152, 0.0722)) for c in (a, b))[::-1]
    return (light + 0.05) / (dark + 0.05)


def lab(colour, kind):
    """CIE L*a*b* of a colour as somebody of that kind sees it."""
    seen = np.clip(np.array(SEEN[kind]) @ linear(colour), 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722],
                    [0.0193, 0.1192, 0.9505]]) @ seen / [0.9505, 1.0, 1.089]  # fmt: skip
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def apart(a, b, kind):
    return float(np.linalg.norm(lab(a, kind) - lab(b, kind)))


def on(ground, colour):
    """A colour of ours as it is on a ground."""
    light = {pair[0]: pair[1] for pair in palette.NAMES.values()}
    return colour if ground == "light" else light[colour]


def test_the_measure_knows_what_looks_alike():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert apart("#d62728", "#2ca02c", "usual") > 100, "the red and green of many plots"
    assert apart("#7f7f00", "#b05a00", "protan") < 20 < apart("#7f7f00", "#b05a00", "usual")


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("kind", SEEN)
def test_any_two_colours_are_told_apart(kind, ground):
    """2.3 is just noticeable, 10 plain to see."""
    for a, b in itertools.combinations(COLOURS, 2):
        pair = [palette.NAMES[name][GROUNDS.index(ground)] for name in (a, b)]
        assert apart(*pair, kind) > 10, (a, b)


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("kind", SEEN)
def test_neighbours_in_a_figure_are_far_apart(kind, ground):
    stacks = [
        [style.KINDS[k][0] for k in style.KINDS],
        [style.PARTS["forward"][0], style.PARTS["backward"][0], *(c for c, _ in EXCHANGES)],
        [style.PARTS["backward"][0], style.PARTS["update"][0], EXCHANGES[0][0]],
        list(style.CURVES[:4]),
    ]
    for stack in stacks:
        for a, b in itertools.pairwise(stack):
            assert apart(on(ground, a), on(ground, b), kind) > 17, (a, b)


@pytest.mark.parametrize("ground", GROUNDS)
def test_what_is_drawn_stands_out_from_its_ground(ground):
    paper = palette.NAMES["paper"][GROUNDS.index(ground)]
    for name in COLOURS:
        assert contrast(palette.NAMES[name][GROUNDS.index(ground)], paper) >= 3, name
    for name in ("ink", "faint"):
        assert contrast(palette.NAMES[name][GROUNDS.index(ground)], paper) >= 4.5, name


def test_what_is_pale_has_an_outline_that_is_not():
    look = style.filled(style.PALE)
    assert contrast(look["edgecolor"], style.PAPER) >= 3


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("kind", SEEN)
def test_a_scale_goes_one_way_and_red_is_not_on_it(kind, ground):
    steps = [palette.NAMES[f"step{at}"][GROUNDS.index(ground)] for at in range(8)]
    light = [float(lab(step, kind)[0]) for step in steps]
    assert np.all(np.diff(light) < -3) or np.all(np.diff(light) > 3)
    red = palette.NAMES["red"][GROUNDS.index(ground)]
    assert min(apart(step, red, kind) for step in steps) > 10


def test_a_value_has_the_step_of_its_part():
    assert [palette.step(v) for v in (-1.0, 0.0, 0.5, 0.99, 1.0)] == [
        palette.STEPS[at] for at in (0, 0, 4, 7, 7)
    ]

"""Contention to look at: the network with each link's load, and a bar for each kind of link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oracle.network.contention import loads, sentence
from oracle.network.contention.groups import seated
from oracle.network.topology import Topology
from oracle.show.plot import style
from oracle.show.plot.paths import boxes as put
from oracle.show.plot.paths import strokes
from oracle.spec.units import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oracle.spec.system import System

SINGLY = 72  # devices that can be drawn one by one
MOST = 160  # units that can stand side by side
STRANDS = 150  # links that can be drawn strand by strand
FULL = 0.995
SEEN = 0.0005  # the least load of a link that has a bar
MARGIN = 128  # pixels at the left, for names of levels
ROUND = "round,pad=0,rounding_size=0.05"
FLAT = ("torus", "grid", "ring", "loop", "dragonfly")  # kinds that are drawn as a plane


def contention(
    system: System, pattern: tuple[tuple[int, int], ...], devices: int, op: str = "allreduce",
    algorithm: str | None = None, nbytes: float = 64e6, title: str = "",
    width: float = style.WIDE, plans: Sequence[str] = (),
) -> Figure:  # fmt: skip
    """How full each link gets while all groups of a pattern run an operation at once.

    Links are shaded by the part of the exchange's time that they work; those that set the pace
    are red. Up to 72 devices are drawn one by one, more as cells of their node or rack. The key
    below has the `plans` that the title names in short.
    """
    found = loads(system, op, pattern, devices, algorithm, nbytes)
    _, groups = seated(system, pattern, devices)
    line, topology = found.line, found.topology
    by_label, use = found.by_label(), _marked(found.use)
    seconds = line.start + line.per_byte * nbytes
    many = devices // groups.p
    words = (f"{many:,} group{'s' if many > 1 else ''} of {groups.p:,}, {show(nbytes, 'B')} by "
             f"{line.algorithm}: {show(seconds, 's')}")  # fmt: skip
    flat = topology.fabrics[-1]
    plane = type(flat).kind in FLAT and flat.units > 8
    with style.look():
        narrow, told = width <= style.NARROW, sentence(system, op, pattern, devices, line)
        kinds = sum(pair[1] > SEEN for pair in by_label.values())
        height = 590 + narrow * 44 * kinds + style.key_height(style.key_of(plans), width)
        figure = style.canvas(width, height, f"{op}, {words}. {told}")
        if narrow:
            axes, bars = figure.subplots(2, 1, height_ratios=[330, 60 + 44 * kinds])
        else:
            axes, bars = figure.subplots(1, 2, width_ratios=[3.1, 1])
        room = width - 30 if narrow else 0.72 * width
        (_plane if plane else _tower)(axes, topology, use, room)
        axes.axis("off")
        _bars(bars, by_label, (0.9 if narrow else 0.24) * width, not narrow)
        _key(figure, axes, narrow)
        head = title or f"{op} on {devices:,} devices of {system.title or system.name}"
        figure.suptitle(style.paragraph(head, width - 20, 14), x=0.012, ha="left", weight="bold",
                        fontsize=12.5)  # fmt: skip
        axes.set_title(style.paragraph(words, room, 10.5) + "\n"
                       + style.paragraph(told, room, 10.5), fontsize=10.5, weight="normal",
                       x=0.0)  # fmt: skip
        style.below(figure, plans)
    return figure


def _marked(use: Any) -> Any:
    """Use of each link, the fullest raised to 1 where links are what limits the exchange."""
    np.minimum(use, 1.0, out=use)
    if (most := float(np.max(use, initial=0.0))) >= 0.5:
        use[use >= FULL * most] = 1.0
    return use


def _shade(value: Any) -> list[str]:
    """The colour of each load; what sets the pace is red."""
    return [style.RED if one >= FULL else style.step(float(one)) for one in np.ravel(value)]


def _bars(axes: Any, by_label: dict[str, tuple[float, float]], width: float, beside: bool) -> None:
    """A bar for each kind of link: the fullest, and a mark at the mean."""
    labels = {label: pair for label, pair in by_label.items() if pair[1] > SEEN}
    y = np.arange(len(labels))[::-1]
    most = np.minimum([pair[1] for pair in labels.values()], 1.0)
    shade = _shade(_marked(most))
    mean = np.minimum([pair[0] for pair in labels.values()], 1.0)
    axes.barh(y, most, 0.5, color=shade, edgecolor=style.GREY, linewidth=0.7)
    axes.scatter(mean, y, marker="|", s=190, color=style.INK, lw=1.6, zorder=3)
    for at, value, label in zip(y, most, labels, strict=True):
        axes.annotate(style.paragraph(label, width), (0, at + 0.29), fontsize=9.5, va="bottom")
        axes.annotate(f"{value:.0%}", (value, at), (5, 0), textcoords="offset points",
                      va="center", fontsize=9.5, weight="bold")  # fmt: skip
    axes.set_xlim(0, 1.2)
    axes.set_ylim(min(-0.7, len(labels) - 6.7) if beside else -0.7, max(len(labels), 1) - 0.1)
    axes.set_yticks([])
    axes.set_xticks([0, 0.5, 1.0], ["0", "50 %", "100 %"])
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_title("fullest link of each kind", fontsize=10.5, weight="normal")
    axes.set_xlabel(style.paragraph("of the exchange's time; | mean", width, 10.5))


def _key(figure: Any, axes: Any, narrow: bool) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    steps = ListedColormap(style.STEPS).with_extremes(over=style.RED)
    bar = figure.colorbar(ScalarMappable(Normalize(0, 1), steps), ax=axes, orientation="horizontal",
                          shrink=0.8 if narrow else 0.42, aspect=38, pad=0.02, extend="max",
                          extendfrac=0.06, anchor=(0.0, 0.5))  # fmt: skip
    bar.set_ticks([0, 0.5, 1], labels=["idle", "half the time", "sets the pace"])
    bar.outline.set_visible(False)


def _own(topology: Topology, depth: int, use: NDArray[np.float64]) -> tuple[Any, Any, Any]:
    """(up, down) use of each unit's ports, (units, lanes); and of the links inside each copy."""
    fabric, start = topology.fabrics[depth], topology.starts[depth]
    shape = (fabric.units, fabric.lanes)
    up = down = np.zeros((fabric.units, 0))
    if fabric.port_links:
        up = use[start : start + fabric.port_links].reshape(shape)
        down = use[start + fabric.port_links : start + 2 * fabric.port_links].reshape(shape)
    inside = use[start + 2 * fabric.port_links : topology.starts[depth + 1]]
    return up, down, inside.reshape(fabric.copies, -1)


def _tower(axes: Any, topology: Topology, use: NDArray[np.float64], width: float) -> None:
    """Levels as beams over what they join; every link a strand between two of them."""
    fabrics, narrow = topology.fabrics, width <= style.NARROW
    most = MOST // 4 if narrow else MOST
    low = (
        0
        if topology.devices <= (SINGLY // 2 if narrow else SINGLY)
        else next((d for d, f in enumerate(fabrics) if d > 0 and f.units <= most), len(fabrics) - 1)
    )
    x = _places(topology, low)
    _feet(axes, topology, low, x, use)
    at = x
    for depth in range(low, len(fabrics)):
        fabric = fabrics[depth]
        y, beam = float(depth - low), float(depth - low) + 0.78
        up, down, inside = _own(topology, depth, use)
        foot = y + 0.1 if depth == low else y - 0.1
        _strands(axes, at, foot, beam, up, down)
        pairs = [(a, b) for a, b, _, _ in fabric.inside()]
        own = [(i, a, b) for i, (a, b) in enumerate(pairs) if max(a, b) < fabric.width]
        arcs = len(own) > 0 and fabric.units <= SINGLY and depth == low == 0
        centres = []
        for copy in range(fabric.copies):
            mine = at[copy * fabric.width : (copy + 1) * fabric.width]
            left, right = mine.min() - 0.42, mine.max() + 0.42
            centres.append((left + right) / 2)
            if arcs:
                _arcs(axes, mine, own, inside[copy], len(at))
            core = float(inside[copy].max(initial=0.0)) if not arcs else 0.0
            _beam(axes, left, right, beam, core if inside.size and not arcs else None)
        _say(axes, topology, depth, low, x, beam)
        at = np.array(centres)
    left, right = x.min() - 0.6, x.max() + 0.6
    part = MARGIN / width  # of the axes, for what stands at the left
    axes.set_xlim(left - (right - left) * part / (1 - part), right)
    axes.set_ylim(-0.75, len(fabrics) - low + 0.1)


def _places(topology: Topology, low: int) -> NDArray[np.float64]:
    """Where the lowest units stand: side by side, a gap wherever a level begins anew."""
    units = topology.fabrics[low].units
    number, gap = np.arange(units), np.zeros(units)
    width = 1
    for fabric in topology.fabrics[low:-1]:
        width *= fabric.width
        gap += 0.7 * (number // width)
    return np.asarray(number + gap, float)


def _feet(axes: Any, topology: Topology, low: int, x: Any, use: Any) -> None:
    """The lowest units: a device each, or a block of cells shaded by what each cell sends."""
    if low == 0:
        put(axes, [(at - 0.34, -0.1, 0.68, 0.2) for at in x], facecolor=style.PALE,
                    edgecolor=style.GREY, linewidth=0.6)  # fmt: skip
        if len(x) <= 32:
            for number, at in enumerate(x):
                axes.text(at, 0, str(number), ha="center", va="center", fontsize=7.5)
        return
    below = topology.fabrics[low - 1]
    cell = np.zeros(below.units)
    for depth in range(low):  # a cell is as full as the fullest link in it or of it
        fabric, each = topology.fabrics[depth], _busiest(topology, depth, use)
        np.maximum.at(cell, np.arange(fabric.units) * fabric.unit // below.unit, each)
    columns = max(1, min(4, round(below.width / 8))) if len(x) <= 40 else 1
    rows = -(-below.width // columns)
    wide, tall = 0.8 / columns, 0.62 / rows
    boxes = []
    for number in range(below.units):
        unit, inner = divmod(number, below.width)
        row, column = divmod(inner, columns)
        boxes.append((x[unit] - 0.4 + column * wide, 0.08 - (row + 1) * tall, wide, tall))
    shades = _shade(cell)
    for shade in dict.fromkeys(shades):
        mine = [box for box, one in zip(boxes, shades, strict=True) if one == shade]
        put(axes, mine, facecolor=shade, edgecolor=style.PAPER, linewidth=0.5)


def _busiest(topology: Topology, depth: int, use: NDArray[np.float64]) -> NDArray[np.float64]:
    """The fullest of each unit's links, up, down or to its neighbours."""
    fabric = topology.fabrics[depth]
    up, down, inside = _own(topology, depth, use)
    each = np.zeros(fabric.copies * fabric.width)
    if up.size:
        each[: fabric.units] = np.maximum(up.max(axis=1), down.max(axis=1))
    for i, (a, b, _, _) in enumerate(fabric.inside()):
        for end in (a, b):
            if end < fabric.width:
                at = np.arange(fabric.copies) * fabric.width + end
                each[at] = np.maximum(each[at], inside[:, i])
    return np.asarray(each[: fabric.units])


def _strands(axes: Any, x: Any, low: float, high: float, up: Any, down: Any) -> None:
    """Ports of units: a strand up and one down each; one for all where they would merge."""
    if not up.size:  # links of another kind join them; the lines say only what belongs where
        strokes(axes, [[(at, low), (at, high)] for at in x], [style.RULE] * len(x), lw=0.8,
                      zorder=0)  # fmt: skip
        return
    units, lanes = up.shape
    if units * lanes > STRANDS or lanes > 8:
        up, down, lanes = up.max(axis=1, keepdims=True), down.max(axis=1, keepdims=True), 1
    twice = units * lanes <= STRANDS
    flows = [up, down] if twice else [np.maximum(up, down)]
    near = float(np.diff(x).min(initial=np.inf)) if len(x) > 1 else 1.0
    step = min(0.62 * near / (lanes * len(flows)), 0.5)
    lines, values = [], []
    for way, used in enumerate(flows):
        for lane in range(lanes):
            number = lane * len(flows) + way
            shift = (number - (lanes * len(flows) - 1) / 2) * step
            lines += [[(at + shift, low), (at + shift, high)] for at in x]
            values += list(used[:, lane])
    order = np.argsort(values)
    values_ = np.asarray(values)[order]
    width = float(np.clip(170 / len(lines), 1.0, 3.2))
    strokes(axes, [lines[i] for i in order], _shade(values_), lw=width, capstyle="butt")


def _beam(axes: Any, left: float, right: float, y: float, core: float | None) -> None:
    """A level's switches as one beam; shaded where it has links of its own."""
    from matplotlib.patches import FancyBboxPatch

    face = style.WAIT if core is None else _shade(core)[0]
    axes.add_patch(FancyBboxPatch((left, y), right - left, 0.12, boxstyle=ROUND,
                                  facecolor=face, edgecolor=style.FAINT, lw=0.8))  # fmt: skip


def _arcs(axes: Any, x: Any, own: Any, used: Any, many: int) -> None:
    """Links between neighbours of one copy, hung below them."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    best: dict[tuple[int, int], float] = {}
    for i, a, b in own:
        if max(a, b) < len(x):
            key = (min(a, b), max(a, b))
            best[key] = max(best.get(key, 0.0), float(used[i]))
    for (a, b), value in sorted(best.items(), key=lambda item: item[1]):
        deep = -0.12 - 0.5 * (b - a) / max(len(x) - 1, 1)
        middle = (x[a] + x[b]) / 2
        path = Path([(x[a], -0.1), (middle, 2 * deep + 0.1), (x[b], -0.1)],
                    [Path.MOVETO, Path.CURVE3, Path.CURVE3])  # fmt: skip
        axes.add_patch(PathPatch(path, facecolor="none", edgecolor=_shade([value])[0],
                                 lw=1.3 if many > 40 else 2.0))  # fmt: skip


def _say(axes: Any, topology: Topology, depth: int, low: int, x: Any, beam: float) -> None:
    """Names at the left: what stands on a level, what joins it, over how many ports."""
    fabric = topology.fabrics[depth]
    left = x.min() - 0.9
    name = topology.levels[depth].name
    copies = f"{fabric.copies:,} {name}s" if fabric.copies > 1 else name
    axes.text(left, beam + 0.06, copies, ha="right", va="center", fontsize=10, weight="bold")
    if fabric.port_links:
        ports = f"{fabric.ports:.3g} × {show(fabric.level.bandwidth, 'B/s')}"
        axes.text(left, beam - 0.34, f"{ports}\na {topology.fabrics[depth].unit_name}", ha="right",
                  va="center", fontsize=8.5, color=style.FAINT)  # fmt: skip
    if depth == low:
        if low == 0:
            words = f"{fabric.units:,} devices"
        else:
            below = topology.fabrics[low - 1]
            words = f"{fabric.units:,} {fabric.unit_name}s of\n{below.width} {below.unit_name}s"
        axes.text(
            left,
            0.0 if low == 0 else -0.22,
            words,
            ha="right",
            va="center",
            fontsize=10,
            weight="bold",
        )


def _plane(axes: Any, topology: Topology, use: NDArray[np.float64], width: float) -> None:
    """A torus as its grid, a ring, loop or dragonfly as a circle; the fullest links on top."""
    depth = len(topology.fabrics) - 1
    fabric = topology.fabrics[depth]
    up, down, inside = _own(topology, depth, use)
    links = fabric.inside()
    vertices = max([fabric.width, *(max(a, b) + 1 for a, b, _, _ in links)])
    place = _spots(fabric, vertices)
    best: dict[tuple[int, int], float] = {}
    for i, (a, b, _, _) in enumerate(links):
        key = (min(a, b), max(a, b))
        best[key] = max(best.get(key, 0.0), float(inside[0, i]))
    if up.size:
        for unit in range(min(fabric.width, fabric.units)):
            switch = int(fabric.port_switch(unit, 0))
            if switch < vertices and switch != unit:
                best[(unit, switch)] = float(max(up[unit].max(), down[unit].max()))
    dense = fabric.width > 200
    keys = sorted(best, key=lambda key: best[key])
    lines = [_drawn(place[a], place[b]) for a, b in keys]
    if dense:  # the ways round a large torus would hide all else
        straight = [i for i, line in enumerate(lines) if len(line) == 2]
        lines, keys = [lines[i] for i in straight], [keys[i] for i in straight]
    thick = 2.2 if dense else float(np.clip(900 / max(len(lines), 1), 0.7, 3))
    strokes(axes, lines, _shade([best[k] for k in keys]), lw=thick)
    units, switches = place[: fabric.width], place[fabric.width :]
    size = float(np.clip(6000 / len(units), 3, 90))
    axes.scatter(*units.T, s=size, color=style.PALE, edgecolor=style.FAINT, lw=0.6, zorder=3)
    if len(switches):
        axes.scatter(*switches.T, s=size * 1.3, marker="s", color=style.PAPER,
                     edgecolor=style.INK, lw=0.9, zorder=3)  # fmt: skip
    name = topology.fabrics[depth].unit_name
    left_out = "; ways round not drawn" if dense and type(fabric).kind == "torus" else ""
    head = f"{fabric.units:,} {name}s, {type(fabric).kind} {_shape(fabric)}{left_out}"
    axes.annotate(style.paragraph(head, width, 11.5), (0.0, 1.0),
                  xycoords="axes fraction", va="top", fontsize=10, weight="bold")  # fmt: skip
    axes.set_aspect("equal")
    axes.margins(0.08)


def _shape(fabric: Any) -> str:
    return " × ".join(str(n) for n in fabric.level.shape)


def _spots(fabric: Any, vertices: int) -> NDArray[np.float64]:
    """Where each unit and switch of a plane is drawn."""
    width = fabric.width
    extents = tuple(fabric.level.shape)
    grid = type(fabric).kind in ("torus", "grid") and len(extents) in (2, 3) and vertices == width
    if grid:
        number = np.arange(width)
        x, y = number % extents[0], number // extents[0] % extents[1]
        z = number // (extents[0] * extents[1])
        return np.stack([x + z * (extents[0] + 1.2), y * 1.0], axis=1).astype(float)
    own = vertices - width
    if not own:
        angle = np.pi / 2 - 2 * np.pi * np.arange(width) / width
        return np.asarray(np.stack([np.cos(angle), np.sin(angle)], axis=1) * width / 6)
    each = width / own
    turn = np.pi / 2 - 2 * np.pi * (np.arange(width) + 0.5 - each / 2) / width
    ring = np.pi / 2 - 2 * np.pi * np.arange(own) / own
    outer = np.stack([np.cos(turn), np.sin(turn)], axis=1) * 1.25
    inner = np.stack([np.cos(ring), np.sin(ring)], axis=1)
    return np.asarray(np.concatenate([outer, inner]) * width / 6)


def _drawn(a: Any, b: Any) -> Any:
    """A link as a line; one that goes round a torus as a shallow bow over those between."""
    a, b = np.asarray(a), np.asarray(b)
    way = b - a
    far = float(np.hypot(*way))
    if far <= 1.01 or (abs(way[0]) > 1e-9 and abs(way[1]) > 1e-9):
        return [a, b]
    side = np.array([-way[1], way[0]]) / far * (0.32 if far < 40 else 0.8)
    t = np.linspace(0, 1, 17)[:, None]
    return a + way * t + side * 4 * t * (1 - t)

"""Figures: what they draw, the schedules behind them, files that are the same each time."""

import csv
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("matplotlib", reason="the extra `plot` is not here")

import contextlib
import itertools

from oracle import api
from oracle.ask.sweep import Grid, sweep
from oracle.commands.cli import main
from oracle.plan.names import short_names
from oracle.show import plot
from oracle.show.plot import style
from oracle.show.plot.curves import curves_of
from oracle.show.plot.front import unbeaten
from oracle.show.plot.rows import read_bars, read_rows
from oracle.spec.catalogue import system
from oracle.spec.document import SpecError


@pytest.fixture(scope="module")
def rows():
    grid = Grid(("resnet50",), ("abci",), (1, 4, 16, 64, 128), (16.0,), True,
                ways=("each:data", "each:filter"))  # fmt: skip
    return sweep(grid, jobs=1).rows


@pytest.fixture(scope="module")
def ranking():
    return api.recommend("gpt2", "dgx-a100", 16, batch=64, top=12)


def words(figure):
    """All text of a figure, as its SVG holds it."""
    found = plot.rendered(figure, "svg", text=True).decode()
    return re.sub(r"<[^>]+>", " ", found)


def bars(axes):
    return [p for p in axes.patches if hasattr(p, "get_height") and p.get_height() > 0]


def test_breakdown_adds_up_to_the_iteration(rows):
    good = [row for row in rows if row["status"] == "ok"]
    figure = plot.breakdown([plot.bar(row) for row in rows])
    tops = {}
    divide, _ = style.scale([row["seconds"] for row in good], "s")
    for axes, group in zip(figure.axes, ("each:data", "each:filter"), strict=True):
        for patch in bars(axes):
            key = (group, round(patch.get_x() + patch.get_width() / 2))
            tops[key] = max(tops.get(key, 0), patch.get_y() + patch.get_height())
    for row in good:
        at = [1, 4, 16, 64, 128].index(row["devices"])
        assert tops[row["way"], at] * divide == pytest.approx(row["seconds"], rel=0.02)
    assert "cannot run" in words(figure), "128 devices are more than 64 filters"


def test_breakdown_with_measured_bars(rows):
    predicted = [plot.bar(row) for row in rows if row["way"] == "each:data"]
    measured = [{"group": "data", "devices": 16, "computation": 0.05, "communication": 0.02}]
    figure = plot.breakdown(predicted, measured, "a title")
    shown = words(figure)
    for wanted in ("predicted", "measured", "computation", "communication", "a title"):
        assert wanted in shown
    assert "predicted beside measured" in figure.alt


def test_scaling_has_a_band_and_a_gap(rows):
    figure = plot.scaling(rows)
    left = figure.axes[0]
    line = next(line for line in left.lines if line.get_label() == "filter")
    assert np.isnan(line.get_ydata()[-1]), "what cannot run leaves a gap"
    data = next(line for line in left.lines if line.get_label() == "data")
    assert np.isfinite(data.get_ydata()).all()
    assert len(left.collections) == 2, "one band a curve"


def test_curves_are_told_apart_by_what_differs(rows):
    assert list(curves_of(rows)) == ["data", "filter"]
    grid = Grid(("resnet50",), ("abci",), (1, 2), (16.0, 32.0), True, what_ifs=("", "network=2"),
                ways=("plan:data:*",))  # fmt: skip
    found = curves_of(sweep(grid, jobs=1).rows)
    assert {name: len(members) for name, members in found.items()} == {
        "as it is · 16 a device": 2, "as it is · 32 a device": 2,
        "network=2 · 16 a device": 2, "network=2 · 32 a device": 2,
    }  # fmt: skip


def test_memory_names_capacity_and_shortage():
    shown = api.estimate("gpt2-xl", "abci", ["data:4", "data:4,zero=3"], 64)
    figure = plot.memory(shown)
    text = words(figure)
    assert "a device" in text
    assert ("short" in text) == bool((~shown.feasible).any())


def test_parts_add_up(ranking):
    shown = ranking.estimate
    figure = plot.parts(shown)
    axes = figure.axes[0]
    divide, _ = style.scale([float(shown.seconds.max())], "s")
    for row in range(len(shown)):
        y = len(shown) - 1 - row
        ends = [p.get_x() + p.get_width() for p in axes.patches
                if abs(p.get_y() + p.get_height() / 2 - y) < 0.01]  # fmt: skip
        assert max(ends) * divide == pytest.approx(float(shown.seconds[row]), rel=0.05)


def test_pareto_rings_the_unbeaten(ranking):
    found = [ranking.estimate.figures(at) for at in range(len(ranking))]
    figure = plot.pareto(found)
    assert "unbeaten" in words(figure)
    assert found[0]["plan"].split()[0] in words(figure)


def drawn(figure):
    """The figure laid out, its renderer, and every text of it that can be seen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [one for one in figure.findobj(Text) if one.get_visible() and one.get_text().strip()]
    return figure, canvas.get_renderer(), texts


@pytest.mark.parametrize("width", [plot.WIDE, plot.PHONE])
@pytest.mark.parametrize(
    "kind", ["parts", "memory", "timeline", "pareto", "alive", "contention", "scaling",
             "roofline", "measured"]
)  # fmt: skip
def test_no_words_are_clipped_or_left_out(kind, width, ranking, rows):
    shown = ranking.estimate
    figure = {
        "parts": lambda: plot.parts(shown, "a title of several words and a plan", width),
        "memory": lambda: plot.memory(shown, "a title", width),
        "timeline": lambda: plot.timeline(
            api.estimate("gpt2", "dgx-a100", "pipeline:4,segments=8", 64), 0, "a title", width),
        "pareto": lambda: plot.pareto([shown.figures(i) for i in range(len(shown))], width=width),
        "alive": lambda: plot.alive(shown, 0, shown.plans[0], width),
        "contention": lambda: plot.contention(system("abci"), ((16, 4),), 64, width=width),
        "scaling": lambda: plot.scaling(rows, "a title", width),
        "roofline": lambda: plot.roofline(shown, 0, "a title", width),
        "measured": lambda: plot.measured(
            [{"predicted": 0.2, "measured": m, "low": 0.1, "high": 0.4, "label": "data:8"}
             for m in (0.1, 0.2, 0.4)], width=width),
    }[kind]()  # fmt: skip
    figure, renderer, texts = drawn(figure)
    right, top = figure.bbox.width + 2, figure.bbox.height + 2
    sides = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    ticks = {id(label) for side in sides for label in side.get_ticklabels(which="both")}
    said = [text for text in texts if id(text) not in ticks]  # ticks beyond a limit are not drawn
    assert said
    for text in said:
        box = text.get_window_extent(renderer)
        assert "…" not in text.get_text()
        assert min(box.x0, box.y0) > -2, text.get_text()
        assert box.x1 < right, text.get_text()
        assert box.y1 < top, text.get_text()


@pytest.mark.parametrize("width", [plot.WIDE, plot.PHONE])
def test_names_of_bars_do_not_overlap(ranking, width):
    shown = ranking.estimate
    for draw in (plot.parts, plot.memory):
        _, renderer, texts = drawn(draw(shown, "a title", width))
        names = short_names(shown.plans)
        named = [t for t in texts if t.get_text().partition(": ")[0] in names]
        boxes = [t.get_window_extent(renderer) for t in named]
        assert len(boxes) == len(names)
        for a, b in itertools.combinations(boxes, 2):
            assert not a.overlaps(b)


def test_plans_have_short_names_and_a_key(ranking):
    shown = ranking.estimate
    text = words(plot.parts(shown))
    for name, plan in zip(short_names(shown.plans), shown.plans, strict=True):
        assert name in text
        assert all(word in text for word in plan.split())
    assert shown.plans[1] not in words(plot.parts(shown, key=False))


def test_a_picture_of_one_plan_has_its_short_name_above_and_its_whole_text_below():
    shown = api.estimate("gpt2", "dgx-a100", "pipeline:4,segments=8 tensor:2", 64)
    for draw in (plot.timeline, plot.alive, plot.roofline, plot.dearest):
        titled = words(draw(shown, 0, "PP4·TP2: gpt2"))
        assert "segments=8" in titled, draw
        assert "segments=8" not in words(draw(shown)), "a page says the plan beside it"


@pytest.mark.parametrize("width", [plot.WIDE, plot.PHONE])
def test_names_of_layers_do_not_meet_in_a_roofline(width):
    shown = api.estimate("gpt2-xl", "dgx-a100", "data:8 tensor:8", 256)
    _, renderer, texts = drawn(plot.roofline(shown, width=width))
    named = [t for t in texts if t.get_text().startswith(("mlp", "attention", "head"))]
    assert len(named) >= 4
    for a, b in itertools.combinations([t.get_window_extent(renderer) for t in named], 2):
        assert not a.overlaps(b)


def test_whiskers_are_whole_beside_what_was_measured():
    rows = [{"predicted": 1.0, "measured": 1.0, "low": 0.2, "high": 5.0}]
    low, high = plot.measured(rows).axes[0].get_ylim()
    assert low < 200 < 5000 < high, "ms"


def test_a_timeline_has_two_streams_a_stage():
    shown = api.estimate("gpt2", "dgx-a100", ["pipeline:4,segments=8 tensor:2"], 64)
    text = words(plot.timeline(shown))
    for wanted in ("stage 0", "stage 3", "bubble", "exchange that all wait for", "micro-batch"):
        assert wanted in text
    alone = words(plot.timeline(api.estimate("resnet50", "abci", ["data:16"], 512)))
    for wanted in ("computes", "sends", "exchange beside computation"):
        assert wanted in alone
    assert "bubble" not in alone


def test_a_timeline_of_many_passes_leaves_out_its_middle():
    shown = api.estimate("gpt2", "dgx-a100", ["pipeline:4,segments=128"], 512)
    figure = plot.timeline(shown, width=plot.PHONE)
    assert len(figure.axes) == 2
    assert "of the same, left out" in " ".join(words(figure).split())
    assert len(plot.rendered(figure, "svg", text=True)) < 120_000


def test_exchanges_of_a_plan_are_those_that_it_sends():
    shown = api.estimate("gpt2", "dgx-a100", ["data:4 tensor:4"], 64)
    names = plot.exchanges(shown)
    sent = {m["what"]: m["seconds"] for m in shown.exchange[0] if m["seconds"] > 0}
    assert set(names) == set(sent)
    figure = plot.exchange(shown, "data: gradients")
    assert "4 groups of 4" in words(figure), "of the mesh, not of the pattern asked for"
    assert "DP4·TP4" in words(figure)


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=30))
def test_unbeaten_are_those_that_nobody_beats(points):
    costs = np.array(points, float)
    found = unbeaten(costs)
    for at, mine in enumerate(costs):
        beaten = ((costs <= mine).all(axis=1) & (costs < mine).any(axis=1)).any()
        assert found[at] == (not beaten)


@pytest.mark.parametrize(
    "plan", ["pipeline:4,segments=8 data:2", "data:8", "pipeline:2,segments=4 tensor:4,sequence=on",
             "data:4,accumulate=2 tensor:2"]
)  # fmt: skip
def test_a_timeline_draws_the_update(plan):
    shown = api.estimate("gpt2", "dgx-a100", [plan], 64)
    assert "update" in words(plot.timeline(shown))


@pytest.mark.parametrize(
    ("name", "devices", "pattern"),
    [("abci", 64, ((16, 4),)), ("abci", 1024, ((256, 4),)), ("dgx-a100", 1024, ((128, 8),)),
     ("dgx-a100", 8, ((8, 1),))],
)  # fmt: skip
def test_contention_says_what_is_full(name, devices, pattern):
    figure = plot.contention(system(name), pattern, devices, algorithm="ring")
    text = words(figure)
    assert f"{devices:,} devices" in text
    assert "φ" in text
    assert "uplinks" in text
    size = len(plot.rendered(figure, "svg"))
    assert size < 1_500_000


@pytest.mark.parametrize(
    ("kind", "shape", "devices"),
    [("torus", [8, 8], 64), ("torus", [4, 4, 4], 64), ("torus", [32, 32], 1024),
     ("loop", [16, 4], 64), ("dragonfly", [4, 4, 4], 64), ("ring", [16], 16), ("grid", [4, 4], 16)],
)  # fmt: skip
def test_contention_on_planes(kind, shape, devices):
    where = system({
        "name": "made", "source": "test",
        "device": {"name": "d", "memory": "16 GiB", "memory_bandwidth": "900 GB/s",
                   "peak": {"fp32": "15 TFLOP/s"}, "source": "test"},
        "levels": [{"name": "net", "devices": devices, "kind": kind, "shape": shape,
                    "bandwidth": "25 GB/s", "latency": "1 us", "source": "test"}],
    })  # fmt: skip
    figure = plot.contention(where, ((devices // 4, 4),), devices, algorithm="ring")
    assert kind in words(figure)


def test_measured_counts_the_band():
    pairs = [{"predicted": 1.0, "measured": 1.05, "group": "a"},
             {"predicted": 2.0, "measured": 1.0, "group": "b", "label": "far off"}]  # fmt: skip
    text = words(plot.measured(pairs))
    assert "1 of 2 within" in text
    assert "far off" in text


def test_figures_of_nothing_are_figures():
    assert plot.measured([]).axes
    assert plot.pareto([]).axes
    assert plot.scaling([]).axes
    assert plot.breakdown([]).axes


@pytest.mark.slow
@pytest.mark.parametrize("form", plot.SUFFIXES)
def test_files_are_the_same_each_time(rows, form, tmp_path):
    contents = {
        plot.save(plot.scaling(rows), tmp_path / f"{i}.{form}").read_bytes() for i in (1, 2)
    }
    assert len(contents) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"1.{form}", f"2.{form}"]


def test_names_are_never_read_as_mathematics(rows):
    hostile = [row | {"way": "each:$\\frac{x}$ \x1b[0m <b>&"} for row in rows[:4]]
    text = words(plot.scaling(hostile, "$ a $"))
    assert "frac" in text
    assert "\x1b" not in text


def test_a_notebook_shows_a_figure(rows):
    assert plot.scaling(rows)._repr_png_().startswith(b"\x89PNG")


def test_plotting_leaves_settings_alone(rows):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    plot.rendered(plot.scaling(rows), "png")
    assert dict(mpl.rcParams) == before


COMMANDS = {
    "breakdown": "resnet50 abci --devices 4..16 --batch-per-device 16 --each data",
    "scaling": "resnet50 abci --devices 1..8 --batch-per-device 16 --plan data:*",
    "parts": "resnet50 abci --devices 8 --batch 128",
    "memory": "resnet50 abci --batch 128 --plan data:8 --plan filter:8",
    "pareto": "resnet50 abci --devices 8 --batch 128 --top 5",
    "timeline": "resnet50 abci --plan pipeline:4,segments=8 --batch 64",
    "roofline": "resnet50 abci --plan data:8 --batch 64",
    "waits": "resnet50 v100-slow-node --plan data:128 --batch 8192",
    "workflow": "resnet50 abci --nodes 1..64 --trials 8 --epochs 90 --batch 256 --plan data:8",
    "design-network": "--devices 128 --ports 36 --for resnet50:2048 --plan data:128",
    "contention": "abci --devices 16 --pattern 4x4 --width 390",
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_command_line(kind, tmp_path, capsys):
    place = tmp_path / "figure.svg"
    assert main(["plot", kind, *COMMANDS[kind].split(), "-o", str(place)]) == 0
    assert place.read_bytes().startswith(b"<?xml")
    out = capsys.readouterr()
    assert out.out == ""
    assert str(place) in out.err


@pytest.mark.slow
def test_rows_of_a_sweep_are_drawn_without_computing(tmp_path, rows):
    from oracle.ask.sweep import written

    for form in ("csv", "json"):
        place = tmp_path / f"rows.{form}"
        place.write_bytes(written(rows, form))
        for kind in ("scaling", "breakdown", "pareto"):
            assert main(["plot", kind, "--rows", str(place), "-o", str(tmp_path / "x.svg")]) == 0


@pytest.mark.parametrize(
    "words_",
    [
        "scaling -o x.svg", "scaling resnet50 abci --devices 4 -o x.svg",
        "pareto resnet50 abci --devices 4 --batch 64 --each data -o x.svg",
        "pareto resnet50 abci --devices 4 --batch 64 --plan data:* -o x.svg",
        "pareto resnet50 abci --devices 4 --batch 64 --what-if latency=2 -o x.svg",
        "contention abci -o x.svg", "contention abci --plan data:4 -o x.svg",
        "parts resnet50 abci --devices 4 --batch 8 --width 12 -o x.svg",
        "contention abci --plan data:4 --axes filter -o x.svg",
        "contention abci --plan serial -o x.svg",
        "contention abci --devices 8 --pattern 3x3 -o x.svg",
        "contention abci --devices 8 --pattern 4x1 --op nothing -o x.svg",
        "contention abci --devices 8192 --pattern 4x1 -o x.svg",
        "contention abci --devices 8 --pattern 4 -o x.svg",
        "memory resnet50 abci --batch 8 -o x.svg",
        "parts resnet50 abci --devices 4 --batch 8 -o x.gif", "nothing -o x.svg",
        "measured missing.csv -o x.svg",
        "waits resnet50 abci --plan data:8 --batch 64 -o x.svg",
    ],
)  # fmt: skip
def test_bad_usage_exits_2(words_, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["plot", *words_.split()]) == 2
    assert capsys.readouterr().err.startswith("error")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content",
    [b"", b"a,b\n1,2\n", b"{", b"[1]", b'{"rows": 3}', b"\xff\xfe", b"predicted,measured\n-1,2\n",
     b"predicted,measured\nnan,2\n", b"predicted,measured\n1,inf\n", b"predicted,measured\n0,1\n",
     b"predicted,measured\nx,1\n", b'[{"predicted": 1, "measured": 1}, {"predicted": 2}]',
     b"[" * 5000, b'[{"predicted": 1e999, "measured": 1}]', b'"text"', b"predicted,measured\n1\n"],
)  # fmt: skip
def test_files_that_are_no_rows_are_refused(content, tmp_path, capsys):
    place = tmp_path / "rows"
    place.write_bytes(content)
    assert main(["plot", "measured", str(place), "-o", str(tmp_path / "x.svg")]) == 2
    assert "Traceback" not in capsys.readouterr().err


@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_any_bytes_are_rows_or_refused(tmp_path_factory, content):
    place = tmp_path_factory.mktemp("rows") / "x"
    place.write_bytes(content)
    with contextlib.suppress(SpecError):
        read_rows(str(place))


def test_measured_bars_are_read_by_their_names(tmp_path):
    place = tmp_path / "bars.csv"
    with place.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["strategy", "p", "who", "comp_s", "comm_s"])
        writer.writerow(["data", 16, "model", 0.1, 0.1])
        writer.writerow(["data", 16, "empirical", 0.2, 0.3])
    assert read_bars(str(place)) == [{"group": "data", "devices": 16, "who": "empirical",
                                      "computation": 0.2, "communication": 0.3}]  # fmt: skip
    (tmp_path / "b.json").write_text(json.dumps([{"strategy": "data"}]))
    with pytest.raises(SpecError):
        read_bars(str(tmp_path / "b.json"))


def test_without_matplotlib_the_extra_is_named(rows, monkeypatch, tmp_path, capsys):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code = main(
        ["plot", "contention", *COMMANDS["contention"].split(), "-o", str(tmp_path / "x.svg")]
    )
    assert code == 2
    assert "oracle-training[plot]" in capsys.readouterr().err

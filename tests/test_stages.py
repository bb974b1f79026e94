"""Stages of models that are no chains: where they may be cut, what crosses, and what that costs."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import oracle
from oracle.executor.local.graph import graph
from oracle.models.model import Model
from oracle.plan import cuts as plan_cuts
from oracle.plan.crossings import crossings, received_by
from oracle.plan.cuts import beside, device_of, even_cuts
from oracle.plan.partition import joined_cuts
from oracle.plan.plan import parse
from oracle.plan.stages import Stages
from oracle.predict import evaluate
from oracle.predict.carried import waiting
from oracle.spec.document import SpecError
from oracle.spec.options import Options

SHIPPED = sorted(path.stem for path in (Path(__file__).parents[1] / "specs/models").glob("*.yaml"))
CONV = {"filters": 8, "kernel": 3, "padding": 1}


def network(*layers: Any) -> Model:
    return oracle.model({"name": "small", "source": "made for tests", "input": [8, 16, 16],
                         "layers": list(layers)})  # fmt: skip


def conv(name: str, **more: Any) -> dict[str, Any]:
    return {"conv": {"name": name, **CONV, **more}}


# four equal convolutions, of which the last also reads what the first made
FORKED = network(conv("a"), conv("b"), conv("c"), {"add": {"name": "d", "from": ["c", "a"]}},
                 conv("e"), "flatten", {"dense": 4}, "loss")  # fmt: skip


def cut_somewhere(model: Model, seed: int) -> list[int]:
    random, units = np.random.default_rng(seed), len(model.pieces.ends)
    few = int(random.integers(1, min(8, units - 1) + 1))
    inner = random.choice(np.arange(1, units), few, replace=False)
    return [0, *sorted(inner.tolist()), units]


# models of one shape with others, and one whose spec is not unrolled by name
ALIKE = {"resnet1001", *(name for name in SHIPPED if name.startswith("megatron"))}


@pytest.mark.parametrize("name", [name for name in SHIPPED if name not in ALIKE])
def test_what_crosses_is_what_the_layers_graph_says(name: str) -> None:
    """Of every shipped model that can be unrolled by name, a cut against a count by networkx."""
    layers, flow = graph(name), nx.DiGraph()
    flow.add_nodes_from(op.index for op in layers.operations)
    flow.add_edges_from((feed, op.index) for op in layers.operations
                        for feed in op.feeds if feed >= 0)  # fmt: skip
    assert nx.is_directed_acyclic_graph(flow)
    for seed in range(2):
        edges = cut_somewhere(layers.model, seed)
        p = len(edges) - 1
        chunk = np.repeat(np.arange(p), np.diff(edges))[[op.unit for op in layers.operations]]
        wanted = sorted({(int(chunk[a]), int(chunk[b]), layers.operations[a].row, a)
                         for a, b in flow.edges if chunk[a] != chunk[b]})  # fmt: skip
        found = crossings(layers.model, np.array([edges]), np.arange(p), p)
        assert sorted(zip(found.source[0], found.target[0], found.row[0], strict=True)) == sorted(
            one[:3] for one in wanted
        )
        volume = float(found.values(layers.model.y[None]).sum())
        elements = sum(layers.operations[a].shape.made.size for *_, a in wanted)
        assert volume == pytest.approx(elements)


@pytest.mark.parametrize("name", SHIPPED)
def test_stages_hold_all_rows_once_and_receive_what_is_counted(name: str) -> None:
    model = oracle.model(name)
    assert (model.units[0].sum(axis=0) == model.repeat).all()
    for seed in range(2):
        edges = cut_somewhere(model, seed)
        p = len(edges) - 1
        stages = Stages.of(model, p, 1, edges)
        held = stages.total(np.eye(len(model)))
        assert (held.sum(axis=1) == model.repeat).all()
        ahead = stages.received_ahead(stages.borders(model.y[None]))[0]
        table = received_by(model)
        assert ahead == pytest.approx([table[0, a, b] for a, b in itertools.pairwise(edges)])
        back = (stages.received(stages.borders(model.y[None])) - ahead)[0]
        few = [table[1, a, b] for a, b in itertools.pairwise(edges)]
        assert (back >= np.array(few) - 1e-6).all(), "a gradient comes from each stage that reads"


def test_a_skip_goes_directly_to_the_stage_that_reads_it() -> None:
    """Units a | b | c | d e | flatten, dense, loss of 8·16² elements a tensor, fp32, one sample.

    Cut before b, c and d: a goes to stage 1 and to stage 3, b and c to the next. Stage 3 receives
    two tensors before its forward pass, stage 0 two gradients before its pass back.
    """
    size = 8 * 16 * 16
    edges = [0, 1, 2, 3, len(FORKED.pieces.ends)]
    stages = Stages.of(FORKED, 4, 1, edges)
    sent = stages.borders(FORKED.y[None])
    assert stages.received_ahead(sent)[0].tolist() == [0, size, size, 2 * size]
    assert stages.received(sent)[0].tolist() == [2 * size, 2 * size, 2 * size, 2 * size]
    # two stages lie between: a and its gradients wait for both, of 8 micro-batches or of one
    nothing = np.zeros((1, len(FORKED)))
    for segments, most in ((8.0, 2), (1.0, 1)):
        made, gradients = waiting(FORKED.y[None], nothing, np.array(segments), stages)
        assert made[0].tolist() == [most * size, 0, 0, 0]
        assert gradients[0].tolist() == [0, 0, 0, most * size]


def test_chunks_open_with_their_first_unit_that_has_any() -> None:
    """Eight units in four chunks of two devices, in order and in a V; or of one device."""
    units = np.array([[0.0, 3.0, 5.0, 7.0, 0.0, 0.0, 0.0, 0.0]])
    for vee, found in ((False, [3 + 7, 5 + 0]), (True, [3 + 0, 5 + 7])):
        stages = Stages.of(FORKED, 2, 2, [0, 2, 3, 4, 8], vee)
        assert stages.opening(units).tolist() == [found]
    assert Stages.of(FORKED, 1, 1, [0, 8]).opening(units).tolist() == [[3.0]]


def test_chunks_of_one_device_send_each_other_nothing() -> None:
    """Interleaved on two devices, chunks 0 and 2 are one device's: a stays there for d."""
    edges = [0, 1, 3, len(FORKED.pieces.ends)]
    found = crossings(FORKED, np.array([edges]), device_of(3, 2, False), 2)
    pairs = zip(found.source[0].tolist(), found.target[0].tolist(), strict=True)
    assert dict(zip(pairs, found.sent[0].tolist(), strict=True)) == {
        (0, 1): True, (0, 2): False, (1, 2): True}  # fmt: skip


def test_more_that_crosses_is_never_cheaper() -> None:
    """The same layers where the sum reads what is near, and where it reads what is far."""
    near = network(conv("a"), conv("b"), conv("c"), {"add": {"name": "d", "from": ["c", "b"]}},
                   conv("e"), "flatten", {"dense": 4}, "loss")  # fmt: skip
    for inner in itertools.combinations(range(1, 6), 2):
        plan = f"pipeline:3,segments=4,cuts={inner[0]}/{inner[1]}"
        far, close = (oracle.estimate(one, "abci", plan, batch=64) for one in (FORKED, near))
        sent = [sum(float(m["bytes"] * m["calls"]) for m in one.exchange[0])
                for one in (far, close)]  # fmt: skip
        assert far.seconds[0] >= close.seconds[0] * (1 - 1e-12)
        assert sent[0] >= sent[1] * (1 - 1e-12)


def test_the_best_cuts_of_a_graph_are_the_least_there_are() -> None:
    """Loads and what is received, drawn anew, against all ways to cut."""
    random = np.random.default_rng(5)
    for _ in range(40):
        units, parts = int(random.integers(3, 9)), int(random.integers(2, 4))
        load, both = random.random((1, units)), random.random((2, units + 1, units + 1))
        cuts = joined_cuts(load, parts, both.sum(axis=0)[None], both[:1])[0]
        ways = [(0, *inner, units) for inner in itertools.combinations(range(1, units), parts - 1)]

        def taken(edges: Any, load: Any = load, both: Any = both) -> tuple[float, float]:
            pairs = list(itertools.pairwise(edges))
            most = max(load[0, a:b].sum() + both[:, a, b].sum() for a, b in pairs)
            return most, sum(both[0, a, b] for a, b in pairs)

        least = min(taken(way)[0] for way in ways)
        assert taken(cuts)[0] == pytest.approx(least)
        tied = [taken(way)[1] for way in ways if taken(way)[0] <= least * (1 + 1e-12)]
        assert taken(cuts)[1] == pytest.approx(min(tied))


@pytest.mark.parametrize(("name", "system", "precision"), [
    ("unet3d-kits19", "dgx-a100", "bf16"), ("vnet", "abci", "fp16"),
])  # fmt: skip
def test_chosen_stages_are_near_the_best_of_all(name: str, system: str, precision: str) -> None:
    """Four stages, the whole predicted step: none of 100 ways to cut them is 2 % faster."""
    model, machine = oracle.model(name), oracle.system(system)
    plan, options = parse("pipeline:4,segments=8", 16.0), Options(precision=precision)

    def seconds(edges: tuple[int, ...]) -> float:
        ((_, found),) = evaluate.blocks(model, machine, plan, replace(options, edges=edges))
        return float(found.seconds[0])

    units = len(model.pieces.ends)
    ways = list(itertools.combinations(range(1, units), 3))
    some = np.random.default_rng(1).choice(len(ways), 100, replace=False)
    assert seconds(()) <= min(seconds((0, *ways[at], units)) for at in some) * 1.02


def test_ways_that_are_a_unit_off_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six units, three parts; of many ways only those in which the fullest gives one away."""
    ways, loads = [(0, 2, 4, 6)], np.array([[1.0, 1.0, 5.0, 1.0, 1.0, 1.0]])
    off = {(0, 1, 4, 6), (0, 3, 4, 6), (0, 2, 3, 6), (0, 2, 5, 6)}
    assert {*beside(ways, loads)} == {*ways, *off}
    monkeypatch.setattr(plan_cuts, "NEAR", 3)
    assert {*beside(ways, loads)} == {*ways, (0, 3, 4, 6), (0, 2, 3, 6)}
    last = np.array([[1.0, 1.0, 1.0, 1.0, 1.0, 5.0]])
    assert {*beside(ways, last)} == {*ways, (0, 2, 5, 6)}


@pytest.mark.slow
def test_fewer_cuts_are_hardly_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of shipped models that are no chain, against all cuts that are a unit off."""

    def taken(name: str, system: str, plan: str) -> float:
        try:
            return float(oracle.estimate(name, system, [plan], 256).seconds[0])
        except SpecError:  # more stages than the model can be cut into
            return np.nan

    graphs = [name for name in SHIPPED if not oracle.model(name).pieces.links.plain]
    asked = [(name, system, f"pipeline:{stages},segments=8{chunks}")
             for name in graphs for system in ("dgx-a100", "abci") for stages in (4, 8, 16, 22, 32)
             for chunks in ("", ",interleave=2")]  # fmt: skip
    few = np.array([taken(*one) for one in asked])
    monkeypatch.setattr(plan_cuts, "NEAR", 10**9)
    plan_cuts.ways_to_cut.cache_clear()
    more = np.array([taken(*one) for one in asked])
    plan_cuts.ways_to_cut.cache_clear()
    slower = few / more - 1
    assert np.isfinite(slower).sum() > 100
    assert np.nanmean(slower) <= 0.0025
    assert np.nanmax(slower) <= 0.11


def test_equal_blocks_are_dealt_whole_where_they_are_cut_inside_too() -> None:
    """Two heavy copies of a block have places inside; even cuts are between them."""
    model = network(conv("in"), {"repeat": 3, "layers": [conv("x"), "relu", conv("y"), "relu"]},
                    "flatten", {"dense": 4}, "loss")  # fmt: skip
    assert len(model.pieces.ends) > 3 + 4
    cuts = even_cuts(model, 3)
    assert cuts is not None
    ends = model.pieces.ends[cuts[1:-1] - 1]
    assert ends.tolist() == [4, 4], "each stage ends with a block's last row"


# --- stages by hand --------------------------------------------------------------------------


def test_stages_by_hand_are_read_printed_and_used() -> None:
    text = "pipeline:4,segments=8,cuts=3/7/12"
    assert parse(text, 16.0).text() == text
    model = oracle.model("unet3d-kits19")
    named = "pipeline:4,segments=8,cuts=down2/join1/join0"
    found = oracle.estimate(model, "dgx-a100", [text, named], batch=16)
    assert found.feasible.all()
    assert found.work[0].cuts == (0, 3, 7, 12, len(model.pieces.ends))
    first = [model.rows[int(np.argmax(model.units[0][at] > 0))].kind
             for at in found.work[1].cuts[1:-1]]  # fmt: skip
    assert first == ["conv", "conv", "conv"]
    free = oracle.estimate(model, "dgx-a100", "pipeline:4,segments=8", batch=16)
    assert (free.seconds[0] <= found.seconds * (1 + 1e-9)).all()


@pytest.mark.parametrize(("layout", "what"), [
    ("3/7", "has 2 places, and 4 chunks need 3"), ("3/7/5", "does not rise"),
    ("0/3/7", "does not rise"),
])  # fmt: skip
def test_a_layout_that_no_model_can_have_is_refused_as_it_is_read(layout: str, what: str) -> None:
    with pytest.raises(SpecError, match=what):
        parse(f"pipeline:4,cuts={layout}", 16.0)


@pytest.mark.parametrize(("layout", "what"), [
    ("3/7/99", "and none is 99"), ("3/7/jion0", "nothing in unet3d-kits19 is called `jion0`"),
    ("3/7/conv", "`conv` stands several times"), ("join0/3/down1", "do not rise"),
])  # fmt: skip
def test_a_layout_that_this_model_cannot_have_is_refused_in_words(layout: str, what: str) -> None:
    found = oracle.estimate("unet3d-kits19", "dgx-a100", f"pipeline:4,cuts={layout}", batch=16)
    assert not found.feasible[0]
    assert any(what in words for words in found.broken[0]), found.broken


def test_stages_are_cut_so_that_they_fit() -> None:
    """Where the fastest way does not fit a device, a slower one that does is taken."""
    model, plan = oracle.model("unet3d-kits19"), "pipeline:2,segments=4"
    free = oracle.estimate(model, "dgx-a100", plan, batch=16)
    tight = oracle.estimate(model, "dgx-a100", plan, batch=16, max_memory=free.memory[0] * 0.97)
    assert free.feasible[0]
    assert tight.feasible[0]
    assert tight.memory[0] < free.memory[0]
    assert tight.seconds[0] > free.seconds[0]

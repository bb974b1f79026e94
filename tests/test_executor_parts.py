"""Who holds what, what a window wants, how a model unrolls: no torch needed for any of it."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest
from equality_cases import CUBES, GPT, RESNET, TRANSLATOR, VGG, cases, conv, network
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.commands.cli import main
from oracle.executor.local.graph import graph
from oracle.executor.local.parts import Window, deal
from oracle.executor.plan_run import PlanRun
from oracle.executor.run import run
from oracle.executor.supported import NotSupported, unsupported
from oracle.kernels.profile import signature
from oracle.models.model import model
from oracle.models.shard import serial
from oracle.plan.plan import parse


@given(st.integers(0, 500), st.integers(1, 17))
def test_dealing_is_even_and_complete(count, p):
    parts = deal(count, p)
    sizes = [stop - start for start, stop in parts]
    assert parts[0][0] == 0
    assert parts[-1][1] == count
    assert max(sizes) == -(-count // p)
    assert max(sizes) - min(sizes) <= 1
    assert all(a[1] == b[0] for a, b in pairwise(parts))


@given(
    st.integers(8, 60), st.integers(1, 7), st.integers(1, 3), st.integers(0, 3), st.integers(1, 2),
    st.integers(1, 4),
)  # fmt: skip
@settings(max_examples=200)
def test_what_is_wanted_is_what_windows_see(given_, kernel, stride, before, dilation, parts):
    reach = dilation * (kernel - 1) + 1
    made = (given_ + 2 * before - reach) // stride + 1
    if made < parts or before >= reach:
        return
    window = Window(given_, made, reach, kernel, stride, before, parts)
    taps = dilation * np.arange(kernel)
    sees = np.array([[o * stride - before + taps] for o in range(made)]).reshape(made, kernel)
    for part in range(parts):
        start, stop = window.outputs[part]
        seen = {int(x) for x in sees[start:stop].ravel() if 0 <= x < given_}
        low, high = window.needed(part)
        assert seen <= set(range(low, high))
        own = set(range(*window.inputs[part]))
        touching = {o for o in range(made) if own & {int(x) for x in sees[o]}}
        low, high = window.touched(part)
        assert touching <= set(range(low, high))
        # turned round, a convolution of these inputs makes as many outputs, and each sees the same
        (low, high), (begin, end), padding = window.inverse(part)
        assert touching <= set(range(low, high))
        assert own & set(sees.ravel()) <= set(range(begin, end))
        assert (end - begin + 2 * padding - reach) // stride + 1 == high - low
        assert begin - padding == low * stride - before
        assert stride > 1 or (begin, end) == window.inputs[part], "nothing is made in vain"


def test_a_gradient_of_a_part_by_hand():
    """Eight rows under windows of three: a part of four wants five gradients, or zeros outside."""
    cut, whole = Window(8, 8, 3, 3, 1, 1, 2), Window(8, 8, 3, 3, 1, 1, 1)
    assert cut.inverse(0) == ((-1, 5), (0, 4), 2)
    assert cut.inverse(1) == ((3, 9), (4, 8), 2)
    assert whole.inverse(0) == ((0, 8), (0, 8), 1)
    assert (cut.padded, whole.padded, Window(8, 7, 2, 2, 1, 0, 1).padded) == (0, 1, 0)


def test_equal_borders_where_parts_are_equal():
    window = Window(32, 32, reach=3, kernel=3, stride=1, before=1, parts=4)
    assert [window.needed(k) for k in range(4)] == [(0, 9), (7, 17), (15, 25), (23, 32)]
    assert [window.touched(k) for k in range(4)] == [(0, 9), (7, 17), (15, 25), (23, 32)]


@pytest.mark.parametrize(
    "name", ["resnet50", "vgg16", "gpt2", "resnet152", RESNET, VGG, CUBES, GPT, TRANSLATOR]
)  # fmt: skip
def test_unrolled_model_has_every_weight(name):
    layers = graph(name)
    assert sum(op.shape.weights for op in layers.operations) == layers.model.parameters
    assert all(feed < op.index for op in layers.operations for feed in op.feeds)
    assert layers.units == len(layers.model.units[0])
    links = layers.model.pieces.links
    known = set(zip(links.row.tolist(), links.maker.tolist(), links.reader.tolist(), strict=True))
    crossed = {(made.row, made.unit, op.unit) for op in layers.operations
               for made in (layers.operations[feed] for feed in op.feeds if feed >= 0)
               if made.unit != op.unit}  # fmt: skip
    assert crossed == known


def test_copies_of_a_block_share_a_signature_and_others_do_not():
    network = model(RESNET)
    shard = serial(network, 8.0, 4.0)
    rows = [signature(shard, row) for row in range(len(network))]
    assert len(set(rows)) > len(rows) / 2
    halved = serial(network, 4.0, 4.0)
    assert signature(halved, 0) != rows[0]


MIXTURE = {
    **GPT,
    "name": "mixture",
    "transformer": GPT["transformer"] | {"experts": 4, "active": 2},
}
WINDOWED = {**GPT, "name": "windowed", "transformer": GPT["transformer"] | {"window": 4}}
UPWARDS = network(
    "upwards", [4, 8, 8], [{"deconv": {"filters": 4, "kernel": 3, "stride": 2}}, "loss"]
)
BOTTOM = network("bottom", [2, 16, 16], [  # at its bottom each of 16 parts has one value
    conv(4), "relu", {"pool": {"kernel": 4}}, conv(8), {"norm": "instance"}, "loss",
])  # fmt: skip
SCORED = network("scored", [1, 8], [  # by a matrix that is not said to be of words
    {"embedding": {"vocab": 20, "hidden": 16}}, {"norm": "layer"}, {"mlp": {"ffn": 24}},
    {"dense": {"filters": 20}}, "loss",
])  # fmt: skip

REFUSED = {
    "filter:2,back=scatter": (GPT, "back=scatter is not run through tokens"),
    "spatial:2,halo=chain": (VGG, "halo=chain is not run"),
    "tensor:2 recompute:operators": (GPT, "not run where layers send messages"),
    "tensor:2 filter:2": (GPT, "`tensor` is not run together with filter"),
    "tensor:2 context:2 filter:2": (GPT, "`context` is not run together with filter"),
    "context:2": (VGG, "rows are all of tokens"),
    "context:3,kind=alltoall": (GPT, "not 4 key-value heads and 8 tokens over 3 devices"),
    "data:2,zero=1 sharded:2": (VGG, "zero above 0"),
    "pipeline:2,segments=3,interleave=2": (VGG, "a multiple of its 2 stages"),
    "data:4,accumulate=8": (VGG, "2 samples on a device cannot be cut into 8 segments"),
    "filter:2": (MIXTURE, "mixtures of experts are not run under filter or channel"),
    "data:2 expert:2,dispatch=once": (MIXTURE, "dispatch=once is priced but not run"),
    "data:2": (WINDOWED, "attention over a window"),
    "context:2,kind=ring": (TRANSLATOR, "attention to another sequence is not run under context"),
    "pipeline:2": ("whisper-large-v3", "words beside samples of another kind"),
    "tensor:2,sequence=on": (SCORED, "where scores of words are cut"),
    "spatial:2": (UPWARDS, "transposed convolutions whose windows overlap"),
    "spatial:16": (BOTTOM, "norm takes its statistics over one value of each channel on a device"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_run_is_refused_in_words(text, tmp_path):
    spec, words = REFUSED[text]
    found = unsupported(model(spec), parse(text, 8))
    assert any(words in why for why in found)
    with pytest.raises(NotSupported, match=re.escape(words)):
        run(PlanRun(spec, text, 8), tmp_path / "out.json", ranks=2)
    assert not list(tmp_path.iterdir())  # no rank was started


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case["name"])
def test_what_is_run_is_not_refused(case):
    assert unsupported(model(case["model"]), parse(case["plan"], case["batch"])) == []


def test_all_that_is_not_run_is_said_at_once(tmp_path, capsys):
    pytest.importorskip("torch")
    (tmp_path / "m.yaml").write_text(json.dumps(VGG))
    code = main(
        [
            "run",
            str(tmp_path / "m.yaml"),
            "--plan",
            "recompute:full offload:activations",
            "--plan",
            "context:2 spatial:2,halo=chain",
            "--batch",
            "8",
            "-o",
            str(tmp_path / "o"),
        ]
    )
    said = capsys.readouterr().err
    assert code == 2
    for words in (
        "recompute:full is not run",
        "halo=chain",
        "together with filter, channel or spatial",
    ):
        assert words in said
    assert not (tmp_path / "o").exists()

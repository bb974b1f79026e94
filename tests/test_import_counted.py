"""Torch modules whose operators have no layer kind: counted, named, priced, never left out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oracle
from oracle.commands.cli import main
from oracle.plan.plan import parse
from oracle.readers.spec_text import spec_text
from oracle.spec.document import SpecError

FOLDER = Path(__file__).parent / "data" / "import"
W = "words"
SAMPLES: dict[str, Any] = {
    "RmsBlock": (12, 32), "Lstm": (W, 10), "Gru": (10, 8), "SqueezeExcite": (3, 16, 16),
    "Glu": (6, 16), "FftMixer": (8, 16), "Siamese": [(3, 16, 16), (3, 16, 16)],
    "UNet": (1, 16, 16), "Depthwise": (3, 16, 16), "GroupedQueries": (6, 32), "Experts": (8, 16),
    "Volumes": (1, 4, 8, 8), "Recommender": [(5,), (W, 3, 4)], "Decoder": (16,),
    "Encoder": (W, 10), "Attended": [(6, 8), (4, 8)],
}  # fmt: skip
# what torch's own counter passes over: the matrices of every step, both ways and two layers
# (2 × 10 steps × (96·16 + 96·24 + 96·48 + 96·24) × 2 ways), and 5 n log2 n of two transforms of
# 128 numbers, 16 and 8 at a time
BESIDE = {"Lstm": 2 * 10 * 2 * (96 * 16 + 96 * 24 + 96 * 48 + 96 * 24),
          "FftMixer": 5 * 128 * (4 + 3)}  # fmt: skip


@pytest.fixture(scope="module")
def zoo() -> Iterator[Any]:
    pytest.importorskip("torch")
    sys.path.insert(0, str(FOLDER))
    import zoo_odd as module

    yield module
    sys.path.remove(str(FOLDER))


def read(name: str) -> Any:
    from oracle.readers.importers import torch as reader

    return reader.read(f"zoo_odd:{name}", SAMPLES.get(name, (8,)), trust=True)


@pytest.mark.parametrize("name", SAMPLES)
def test_parameters_and_flop_are_all_there(zoo: Any, name: str) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    module, shapes = getattr(zoo, name)(), SAMPLES[name]
    given = [
        torch.ones((2, *shape[1:]), dtype=torch.long) if shape[0] == W else torch.rand((2, *shape))
        for shape in (shapes if isinstance(shapes, list) else [shapes])
    ]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        made = module.train()(*given)
    model = oracle.model(read(name).spec)
    assert model.parameters == sum(p.numel() for p in module.parameters())
    wanted = counter.get_total_flops() / 2 + BESIDE.get(name, 0)
    assert model.flop / 3 == pytest.approx(wanted, rel=1e-6)
    assert model.rows[-1].given.size == made.numel() // 2


def test_an_operator_is_named_by_module_and_line(zoo: Any) -> None:
    rows = [row for row in oracle.model(read("Lstm").spec).rows if row.kind == "opaque"]
    line = next(n for n, text in enumerate((FOLDER / "zoo_odd.py").read_text().splitlines(), 1)
                if "self.body(self.words(words))" in text)  # fmt: skip
    assert {row.name for row in rows} == {f"lstm at body, zoo_odd.py:{line}"}
    assert rows[0].pieces == 2 * 2 * 10  # a launch a step, layer and way


def test_operators_are_of_the_family_that_their_kernels_are(zoo: Any) -> None:
    for name, family in (("Lstm", "recurrent"), ("FftMixer", "fft")):
        assert family in {row.family for row in oracle.model(read(name).spec).rows}


def test_norms_by_hand_are_norms_and_equal_blocks_fold(zoo: Any) -> None:
    rows = oracle.model(read("RmsBlock").spec).rows
    assert [row.kind for row in rows if row.kind != "reshape"] == [
        "norm", "mlp", "mlp", "mlp", "add", "norm", "loss"]  # fmt: skip


@pytest.mark.slow
def test_what_may_look_anywhere_is_not_cut(zoo: Any) -> None:
    model = oracle.model(read("FftMixer").spec)
    (plan,) = [parse("context:2", 8.0)]
    assert np.all(plan.axis("context").limit(model, np.ones(1)) == 1)
    for name in ("FftMixer", "Experts", "Recommender", "Lstm"):
        best = oracle.recommend(read(name).spec, "dgx-a100", 8, batch=64)
        assert np.isfinite(best.estimate.seconds).all()


def test_a_factory_that_says_nothing_leaves_the_name_to_the_class(zoo: Any) -> None:
    assert read("build_model").spec["name"] == "Sequential"
    assert read("FftMixer").spec["name"] == "FftMixer"


def test_parameters_that_do_not_add_up_are_refused_by_name(zoo: Any) -> None:
    with pytest.raises(SpecError, match=r"72 parameters, the module has 144.*`spare\.0` \(72\)"):
        read("Spare")
    with pytest.raises(SpecError, match=r"failed in module `body\.1`, zoo_odd\.py:\d+"):
        read("Breaks")


def test_several_inputs_on_the_command_line(
    zoo: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ["import", "torch", "zoo_odd:Recommender", "--trust-code"]
    assert main([*asked, "--input", "5", "--input", "words:3,4"]) == 0
    said = capsys.readouterr()
    assert "1,713 parameters" in said.err
    assert "counted, not described" in said.err
    assert said.out == spec_text(read("Recommender").spec)
    assert main(["import", "huggingface", str(tmp_path), "--input", "5", "--input", "4"]) == 2
    assert main([*asked, "--input", "letters:5"]) == 2
    assert main([*asked, "--input", "words:10000000000,1000000000000"]) == 2
    assert "Traceback" not in capsys.readouterr().err

"""The critical batch of language models: by hand, in answers, and what a larger one is worth."""

import json

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

import oracle
from oracle.ask.batches import up_to_critical
from oracle.commands.cli import main
from oracle.run.critical import critical_batch, worth
from oracle.run.target import given
from oracle.spec.document import SpecError


def test_by_hand():
    """151 M weights on 20 tokens each: 985 sequences of 512, as its authors say; 1.2 B: 2,610."""
    assert critical_batch(20 * 151e6) / 512 == pytest.approx(985, rel=1e-3)
    assert critical_batch(20 * 1.2e9) / 512 == pytest.approx(2610, rel=1e-3)
    tokens = 3e9
    assert worth(tokens, critical_batch(tokens)) == pytest.approx(tokens / 1.2)
    assert worth(tokens, 1.0) == pytest.approx(tokens)


@drawn(st.floats(1e9, 1e14), st.floats(1e9, 1e14))
def test_more_tokens_bear_a_larger_batch(one, other):
    less, more = sorted((one, other))
    assert critical_batch(less) <= critical_batch(more)
    assert critical_batch(less) < critical_batch(1.01 * more)


def test_in_an_answer():
    shown = oracle.estimate("llama3-8b", "dgx-h100", ["data:128,zero=3"] * 2, batch=[1024, 16384])
    small, large = (given(shown, row, tokens=15e12) for row in (0, 1))
    assert small.critical_batch == pytest.approx(critical_batch(15e12) / 8192)
    assert small.worth is None
    assert large.worth == pytest.approx(worth(15e12, 16384 * 8192))
    assert (small.steps, large.steps) == (-(-15e12 // (1024 * 8192)), -(-15e12 // (16384 * 8192)))


def test_a_free_batch_is_never_above_it(capsys):
    net = oracle.model("gpt2")
    sizes = list(up_to_critical(net, 10e9))
    assert max(sizes) <= critical_batch(10e9) / 1024 < 2 * max(sizes)
    asked = ["recommend", "gpt2", "dgx-a100", "--devices", "16", "--tokens", "10G", "--json",
             "--only", "data"]  # fmt: skip
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["batch"] for one in found["batches"]} <= set(sizes)
    assert found["plans"][0]["training"]["worth"] is None
    with pytest.raises(SpecError, match="not trained on text"):
        list(up_to_critical(oracle.model("resnet50"), 1e9))

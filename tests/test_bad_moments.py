"""Plans that cannot be told apart, on a network that was measured to vary."""

from __future__ import annotations

import pytest

import oracle
from oracle.ask.bad_moments import LOSES, at_bad_moments
from oracle.show.first_screen import SCREEN, ranking_text

LLAMA = {
    "name": "llama", "source": "by hand", "transformer": {
        "layers": 16, "hidden": 2048, "heads": 32, "ffn": 8192, "gated": True, "vocab": 131072,
        "sequence": 4096, "tied_embeddings": True},
}  # fmt: skip
KINDS = {"software": "nanotron", "precision": "bf16", "optimizer": "adam"}


def test_a_bad_moment_is_the_fifth_percentile() -> None:
    system = oracle.system("aws-p5")
    slow = at_bad_moments(system)
    assert slow is not None
    for level, slow_level in zip(system.levels, slow.levels, strict=True):
        for point, slow_point in zip(level.by_nodes, slow_level.by_nodes, strict=True):
            assert slow_point.bandwidth == point.low
    assert at_bad_moments(oracle.system("dgx-h100")) is None


def test_of_equals_the_steadiest_is_first_and_said_so() -> None:
    """It is no more likely the fastest than what it was put before, and loses less."""
    ranking = oracle.recommend(LLAMA, "aws-p5", devices=512, batch=256, top=5, **KINDS)
    moment, estimate = ranking.bad_moment, ranking.estimate
    assert moment is not None
    assert moment.first < (1 - LOSES) * moment.fastest
    assert estimate.seconds[0] > estimate.seconds[1:].min()
    slow = oracle.estimate(LLAMA, at_bad_moments(estimate.system), ranking.best.plan, 256, **KINDS)
    assert slow.seconds[0] == pytest.approx(moment.first)
    text = ranking_text(ranking)
    assert text.startswith("Steadiest: ")
    assert "5th" in text
    assert "percentile" in text
    assert len(text.split("\n")) <= SCREEN


def test_the_fastest_is_first_where_it_is_asked_for_or_stands_out() -> None:
    asked = oracle.recommend(LLAMA, "aws-p5", devices=512, batch=256, fastest=True, **KINDS)
    assert asked.bad_moment is None
    assert asked.estimate.seconds[0] == asked.estimate.seconds.min()
    sure = oracle.recommend(LLAMA, "aws-p5", devices=16, batch=256, **KINDS)
    assert not sure.tied
    assert sure.bad_moment is None

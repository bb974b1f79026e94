"""Optimizers against each other: who is done first, on how many devices."""

from types import SimpleNamespace

import pytest

import oracle
from oracle.ask.optimizers import SHARES, ahead_from, best, rivals
from oracle.models.model import model
from oracle.predict.defaults import options_for
from oracle.run.target import to_target, training
from oracle.spec.catalogue import system


def curve(**seconds):
    return [SimpleNamespace(devices=int(count[1:]), training=SimpleNamespace(seconds=value))
            for count, value in seconds.items()]  # fmt: skip


def test_ahead_from_where_it_stays_ahead():
    one = curve(p1=9, p2=3, p4=3, p8=1, p16=0.5)
    other = curve(p1=8, p2=4, p4=2, p8=1.5, p16=0.7)
    assert ahead_from(one, other) == 8
    assert ahead_from(other, one) is None
    assert ahead_from(one, curve(p1=99, p2=99)) == 1


def test_rivals_met_the_same_target():
    assert rivals(model("resnet50")) == ["lars", "kfac"]
    assert rivals(model("gpt3-175b")) == [] or len(rivals(model("gpt3-175b"))) == 1


def test_the_best_batch_is_the_best_of_single_answers():
    net, machine = model("resnet50"), system("abci")
    options = options_for(net, machine)
    found = best(net, machine, options, "kfac", 512)
    seconds = []
    for share in SHARES:
        for batch in (4096, 8192, 16384, 32768, 65536, 131072):
            shown = oracle.estimate(net, machine, "data:512", batch, reading="none",
                                    optimizer=f"kfac,workers={share}")  # fmt: skip
            if shown.feasible[0]:
                seconds.append(training(shown, 0, to_target(shown)).seconds)
    assert found.training.seconds == pytest.approx(min(seconds))

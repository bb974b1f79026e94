"""Failures and checkpoints: closed forms against a simulation, by hand, and laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.run.goodput import away, best_interval, between_failures, goodput, slowest

HOUR = 3600.0
SECONDS = st.floats(1e-3, 1e5)


def played(between, checkpoint, restart, interval, safe_after, runs=200, turns=200, seed=0):
    """The share of progress of jobs played failure by failure."""
    draw = np.random.default_rng(seed)
    shares = []
    for _ in range(runs):
        now, kept, turn = 0.0, 0, interval + checkpoint
        failure, safe = draw.exponential(between), 0.0
        while kept < turns:
            if failure > now + turn:
                now, kept = now + turn, kept + 1
                safe = now + safe_after
                continue
            now = failure
            if now < safe:  # the last checkpoint was still on its way
                kept, safe = kept - 1, 0.0
            while (failure := now + draw.exponential(between)) < now + restart:
                now = failure
            now += restart
        shares.append(kept * interval / now)
    return float(np.mean(shares))


@pytest.mark.parametrize(("between", "checkpoint", "restart", "safe_after"), [
    (3.1 * HOUR, 60.0, 600.0, 0.0), (2000.0, 100.0, 300.0, 0.0), (3.1 * HOUR, 5.0, 600.0, 300.0),
    (24 * HOUR, 300.0, 1200.0, 0.0),
])  # fmt: skip
def test_closed_form_is_what_a_simulation_plays(between, checkpoint, restart, safe_after):
    found = goodput(between, checkpoint, restart, safe_after=safe_after)
    share = played(between, checkpoint, restart, float(found.interval), safe_after)
    assert float(found.progress) == pytest.approx(share, rel=0.01)


def test_intervals_by_hand():
    """Young's, a minute of checkpoint and a failure in 3.1 hours: √(2 · 60 · 11,160) = 1,157 s."""
    young = np.sqrt(2 * 60 * 3.1 * HOUR)
    assert young == pytest.approx(1157, abs=1)
    assert best_interval(60.0, 3.1 * HOUR) == pytest.approx(young - 60 / 3, rel=0.02)
    assert best_interval(1e-6, 1e6) == pytest.approx(np.sqrt(2.0), rel=1e-4)


def test_sixteen_thousand_devices_fail_every_three_hours():
    """419 unexpected interruptions of 16,384 devices in 54 days [grattafiori2024, Table 5]."""
    mtbf = 54 * 24 * HOUR * 16384 / 419
    assert mtbf / HOUR == pytest.approx(50.7e3, rel=0.01)
    assert between_failures(16384, mtbf) / HOUR == pytest.approx(3.09, abs=0.01)
    assert between_failures(16384, mtbf, preempted=1 / HOUR) < HOUR


@given(SECONDS, SECONDS, SECONDS)
def test_shares_add_up(between, checkpoint, restart):
    found = goodput(between, checkpoint, restart)
    shares = found.progress, found.checkpoints, found.lost, found.restarts
    assert all(-1e-9 <= float(share) <= 1 + 1e-9 for share in shares)
    if float(found.progress) > 1e-6:
        assert sum(map(float, shares)) == pytest.approx(1.0, abs=1e-6)


@given(st.floats(1e3, 1e6), st.floats(1.0, 100.0), st.floats(1.0, 1e3), st.floats(0.3, 3.0))
def test_no_interval_is_better_than_the_best(between, checkpoint, restart, by):
    best = goodput(between, checkpoint, restart)
    other = goodput(between, checkpoint, restart, interval=by * float(best.interval))
    assert float(other.progress) <= float(best.progress) * (1 + 1e-9)


@given(st.floats(1e4, 1e6), st.floats(1.0, 100.0), st.floats(1.0, 1e3))
def test_fewer_failures_and_faster_checkpoints_never_harm(between, checkpoint, restart):
    here = float(goodput(between, checkpoint, restart).progress)
    assert float(goodput(2 * between, checkpoint, restart).progress) >= here
    assert float(goodput(between, checkpoint / 2, restart).progress) >= here
    assert float(goodput(between, checkpoint, restart / 2).progress) >= here


def test_first_order_is_the_limit_of_rare_failures():
    """1 - C/(τ+C) - ((τ+C)/2 + R)/M"""
    found = goodput(1e7, 60.0, 600.0)
    turn = float(found.interval) + 60.0
    first_order = 1 - 60.0 / turn - (turn / 2 + 600.0) / 1e7
    assert first_order == pytest.approx(float(found.progress), rel=1e-4)


def test_going_on_without_what_failed_by_hand():
    """One of 100 replicas fails each hour it is there and is away for two: 1/1.02 of the speed."""
    found = away(1 / HOUR, 2 * HOUR, 0, 100)
    assert found.speed == pytest.approx(1 / 1.02)
    assert found.without == 1
    # with two spares a replica is missed where a third is away
    chance = np.array([1, 2, 2])  # a^j/j!, a = 2, of 0, 1, 2 away: at full speed
    spared = away(1 / HOUR, 2 * HOUR, 2, 100)
    assert spared.without < found.without
    assert spared.speed > found.speed
    assert 1 - spared.without == pytest.approx(chance[:2].sum() / np.exp(2), rel=0.03)
    assert slowest(1, 0.001, 1.5) == pytest.approx(1.0005)
    assert slowest(10000, 0.001, 1.5) == pytest.approx(1.5, abs=0.001)


def test_waiting_for_a_spare_by_hand():
    """Erlang's loss formula, a = 2: (2)/(1 + 2) of the time without a spare, 2/(1 + 2 + 2) with."""
    assert away(1 / HOUR, 2 * HOUR, 0).waiting == pytest.approx(2 / 3)
    assert away(1 / HOUR, 2 * HOUR, 1).waiting == pytest.approx(2 / 5)
    assert away(1 / HOUR, 2 * HOUR, 1).without == pytest.approx(2 / 3)
    assert away(1 / HOUR, 0.0, 0).waiting == pytest.approx(0, abs=1e-9)
    waits = [away(1 / HOUR, 24 * HOUR, spares).waiting for spares in range(60)]
    assert waits == sorted(waits, reverse=True)
    assert waits[-1] < 1e-6


def test_an_interruption_that_is_announced_loses_no_work():
    """Nothing but them: each costs a checkpoint and a restart, τ is without end in between."""
    found = goodput(1e30, 60.0, 600.0, interval=1e9, announced=1 / HOUR)
    turn = HOUR + 60 + HOUR * np.expm1(600 / HOUR)
    assert float(found.progress) == pytest.approx(HOUR / turn, rel=1e-3)
    assert float(found.lost) == pytest.approx(0.0, abs=1e-6)


@given(st.floats(1e4, 1e6), st.floats(1.0, 100.0), st.floats(1.0, 1e3), st.floats(1e-7, 1e-4),
       st.floats(0.2, 5.0), st.floats(0.0, 60.0))  # fmt: skip
def test_announced_interruptions_cost_less_and_the_interval_stays_best(
    between, checkpoint, restart, often, by, late
):
    told = goodput(between, checkpoint, restart, announced=often)
    untold = goodput(1 / (1 / between + often), checkpoint, restart)
    assert float(told.progress) >= float(untold.progress) * (1 - 1e-6)
    other = goodput(between, checkpoint, restart, by * float(told.interval), announced=often)
    assert float(other.progress) <= float(told.progress) * (1 + 1e-7)
    # none of them: the closed form of failures alone
    none = goodput(between, checkpoint, restart, float(told.interval), late)
    few = goodput(between, checkpoint, restart, float(told.interval), late, announced=1e-15)
    assert float(few.progress) == pytest.approx(float(none.progress), rel=1e-6)


@given(st.floats(1e3, 1e6), st.floats(1.0, 100.0), st.floats(1.0, 1e3), st.floats(0.1, 1.0))
def test_a_copy_aside_is_never_worse_than_to_stand_still(between, checkpoint, restart, share):
    """Of the same seconds of writing a share stops the run, the rest goes on beside it."""
    blocking = goodput(between, checkpoint, restart)
    aside = goodput(between, share * checkpoint, restart, float(blocking.interval),
                    safe_after=(1 - share) * checkpoint)  # fmt: skip
    assert float(aside.progress) >= float(blocking.progress) * (1 - 1e-9)

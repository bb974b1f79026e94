"""Epochs until a target: the law by hand, found again from its own points, and where it is not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.run.convergence import fit, left_out

BATCHES = np.array([256.0, 1024.0, 4096.0, 16384.0, 65536.0])


def test_by_hand():
    law = fit([1000, 4000, 16000], [40 * (1 + b / 8000) for b in (1000, 4000, 16000)])
    assert law.epochs_at(8000) == pytest.approx(80.0, rel=1e-6)
    assert law.critical == pytest.approx(8000, rel=1e-5)


@given(st.floats(1.0, 1e3), st.floats(300.0, 2e5))
def test_its_own_points_give_the_law_back(epochs, critical):
    law = fit(BATCHES, epochs * (1 + BATCHES / critical))
    assert law.epochs == pytest.approx(epochs, rel=1e-3)
    assert law.epochs_at(BATCHES * 2) == pytest.approx(
        epochs * (1 + 2 * BATCHES / critical), rel=1e-3
    )
    assert law.scatter < 1e-3


def test_a_run_that_went_wrong_is_counted_less():
    epochs = 40 * (1 + BATCHES / 30000)
    epochs[2] *= 3
    assert fit(BATCHES, epochs).epochs_at(30000) == pytest.approx(80, rel=0.12)


def test_no_dependence_is_said_as_scatter():
    law = fit([32, 56, 64, 84], [2409, 2300, 3270, 2308])
    assert law.critical > 10 * 84
    assert law.scatter > 0.1


def test_doubt_grows_beyond_what_was_tried():
    law = fit(BATCHES, 40 * (1 + BATCHES / 30000))
    inside, near, far = law.deviation(np.array([1024.0, 2 * 65536.0, 1e7]))
    assert inside < near < far


def test_two_batches_tell_the_law_and_not_the_scatter():
    law = fit([1000, 16000], [45.0, 120.0])
    assert law.epochs_at(4000) == pytest.approx(60.0, rel=1e-3)
    assert law.scatter >= 0.05


def test_left_out_by_hand():
    found = dict(left_out(BATCHES, 40 * (1 + BATCHES / 30000)))
    assert found.keys() == set(BATCHES)
    assert max(map(abs, found.values())) < 1e-3

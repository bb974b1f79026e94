"""The yardstick of growth itself: it lets n log n pass, and no square."""

from __future__ import annotations

import pytest
from growth import assert_gentle


def test_a_sort_grows_gently() -> None:
    assert_gentle(lambda size: sorted(range(size, 0, -1), key=str), 20_000, 160_000)


def test_a_square_does_not() -> None:
    def square(size: int) -> None:
        numbers = list(range(size))
        for number in range(0, size, 2):
            assert (size + number) not in numbers

    with pytest.raises(AssertionError, match="the work grows faster than n log n"):
        assert_gentle(square, 400, 6_400)

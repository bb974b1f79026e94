"""The helper that tells how time grows fails where it must, and there alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import growth
import pytest
from growth import TOO_LITTLE, assert_grows_gently

LARGE = 4000
LAWS: dict[str, tuple[Callable[[int], float], bool]] = {
    "constant": (lambda n: 1.0, True), "linear": (lambda n: n, True),
    "n log n": (lambda n: n * math.log(n), True), "quadratic": (lambda n: n**2, False),
    "linear, then quadratic": (lambda n: n + n**2 / 800, False),
    "n² log n": (lambda n: n**2 * math.log(n), False), "cubic": (lambda n: n**3, False),
}  # fmt: skip


class Clock:
    """CPU seconds that work spends by a law: the work of `LARGE` takes one, without noise."""

    def __init__(self, law: Callable[[int], float], scale: float = 1.0) -> None:
        self.now, self.law, self.scale = 0.0, law, scale / law(LARGE)
        self.noise = itertools.repeat(1.0)

    def __call__(self) -> float:
        return self.now

    def work_of_size(self, size: int) -> Callable[[], None]:
        def work() -> None:
            self.now += self.law(size) * self.scale * next(self.noise)

        return work


@pytest.mark.parametrize("name", LAWS)
def test_quadratic_growth_fails_and_n_log_n_does_not(name: str, monkeypatch: Any) -> None:
    law, gentle = LAWS[name]
    clock = Clock(law)
    monkeypatch.setattr(growth, "process_time", clock)
    if gentle:
        assert_grows_gently(clock.work_of_size, LARGE)
    else:
        with pytest.raises(AssertionError, match="four times the size takes"):
            assert_grows_gently(clock.work_of_size, LARGE)


def test_noise_of_the_large_work_is_tried_again(monkeypatch: Any) -> None:
    clock = Clock(LAWS["linear"][0])
    clock.noise = itertools.chain([1, 9, 1], itertools.repeat(1.0))
    monkeypatch.setattr(growth, "process_time", clock)
    assert_grows_gently(clock.work_of_size, LARGE)
    assert clock.now > 10


def test_a_slow_first_try_of_the_small_work_hides_nothing(monkeypatch: Any) -> None:
    clock = Clock(LAWS["quadratic"][0])
    clock.noise = itertools.chain([9], itertools.repeat(1.0))
    monkeypatch.setattr(growth, "process_time", clock)
    with pytest.raises(AssertionError):
        assert_grows_gently(clock.work_of_size, LARGE)


def test_what_takes_next_to_nothing_has_not_grown(monkeypatch: Any) -> None:
    clock = Clock(LAWS["quadratic"][0], scale=0.9 * TOO_LITTLE)
    monkeypatch.setattr(growth, "process_time", clock)
    assert_grows_gently(clock.work_of_size, LARGE)


def test_real_work_is_told_apart() -> None:
    def work_of_pairs(size: int) -> Callable[[], int]:
        return lambda: sum(1 for _ in range(size) for _ in range(size))

    def work_of_items(size: int) -> Callable[[], int]:
        return lambda: sum(1 for _ in range(400 * size))

    assert_grows_gently(work_of_items, 1200)
    with pytest.raises(AssertionError, match="four times the size"):
        assert_grows_gently(work_of_pairs, 1200)

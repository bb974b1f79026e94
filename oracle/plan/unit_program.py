"""The choice of unlike units as a program in whole numbers, with the very seconds of `play`.

Bytes that have left and come in by the start and the end of each unit are its variables
[wahib2020; jain2020].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.kernels.whole_numbers import solved
from oracle.models.shard import Array
from oracle.plan.out_of_core import Chain, play
from oracle.plan.unit_search import Ways, searched, shape_of

UNITS, NODES = 16, 300  # units that it is solved for, and nodes that it may look at
SURE = 1e-9  # relative: as near as it must come
SPARE = 1e-6  # of the room, that is left for its tolerances


def chosen(chain: Chain) -> Ways:
    """One chain of unlike units: what a search finds, and of few units what the program betters."""
    searched_ways = searched(chain)
    if shape_of(chain)[1] > UNITS:
        return searched_ways
    solved_ways = solution(chain)
    if solved_ways is None:
        return searched_ways
    then, now = play(chain, *searched_ways), play(chain, *solved_ways)
    if then.fits[0] and not (now.fits[0] and now.seconds[0] < then.seconds[0]):
        return searched_ways
    return solved_ways


def solution(chain: Chain, nodes: int = NODES) -> Ways | None:
    """What the program finds in so many nodes; none where nothing fits."""
    from scipy.optimize import Bounds, LinearConstraint

    program = _Program(chain)
    rows, low, high = program.rules()
    optimum = solved(
        program.cost, constraints=LinearConstraint(rows, low, high),
        bounds=Bounds(0, program.most), integrality=program.whole,
        options={"presolve": False, "node_limit": nodes, "mip_rel_gap": SURE},
    )  # fmt: skip
    if optimum.x is None:
        return None
    away, remade, both_ways = optimum.x[: 3 * program.units].reshape(3, 1, -1) > 0.5
    return away | both_ways, remade | both_ways


class _Program:
    """Least Σ seconds of both passes, in bytes and seconds scaled to about one.

    Variables, by unit: whether it leaves, is made again, or is made again from an input that
    leaves; when it starts ahead and back, bytes out by its start and end, bytes in by its start and
    end, those that stay and leave up to it.
    """

    NAMES = ("away", "again", "both", "start", "turn", "out", "outs", "come", "comes", "stays",
             "leaves")  # fmt: skip

    def __init__(self, chain: Chain) -> None:
        units = self.units = shape_of(chain)[1]

        def column(values: Array) -> Array:
            return np.asarray(np.broadcast_to(values, (1, units))[0], float)

        self.forward, self.backward = column(chain.forward), column(chain.backward)
        self.kept, self.given = column(chain.kept), column(chain.given)
        self.time = max(self.forward.sum() + self.backward.sum(), 1e-30)
        self.size = max(self.kept.sum(), 1e-30)
        self.forward, self.backward = self.forward / self.time, self.backward / self.time
        self.remake = column(chain.remake) / self.time
        self.kept, self.given = self.kept / self.size, self.given / self.size
        self.anew = self.kept - column(chain.among) / self.size
        self.work, self.passing = column(chain.work) / self.size, column(chain.passing) / self.size
        self.room = float(chain.room[0, 0]) / self.size * (1 - SPARE)
        self.others = max(float(chain.flight[0, 0]) - 1, 0.0)
        self.rate = [
            float(engine[0, 0]) * self.size / self.time for engine in (chain.out, chain.back)
        ]
        self.ahead, self.managed = float(chain.ahead[0, 0]), float(chain.managed[0, 0]) > 0
        self.number = len(self.NAMES) * units
        self.most = np.full(self.number, np.inf)
        free, able = column(chain.free), column(chain.able)
        self.most[: 3 * units] = np.concatenate(
            [free, able, free * able * (1 - column(chain.fixed))]
        )
        self.whole = np.zeros(self.number)
        self.whole[: 3 * units] = 1
        self.lines: list[tuple[dict[int, float], float]] = []
        end = units - 1
        # the end of the forward pass with what has to leave yet, and that of the backward pass
        self.cost = np.zeros(self.number)
        self.cost[self.at("start", end)] += 1
        if not self.managed:
            self.cost[self.at("leaves", end)] += self.rate[0]
            self.cost[self.at("outs", end)] -= self.rate[0]
        self.cost[self.at("turn", 0)] += 1
        for word in ("again", "both"):
            self.cost[self.at(word, 0)] += self.remake[0]

    def at(self, name: str, unit: int) -> int:
        return self.NAMES.index(name) * self.units + unit

    def least(self, terms: list[tuple[str, int, float]], value: float) -> None:
        """Σ terms ≥ value."""
        line: dict[int, float] = {}
        for name, unit, factor in terms:
            if 0 <= unit < self.units:
                line[self.at(name, unit)] = line.get(self.at(name, unit), 0.0) + factor
        self.lines.append((line, value))

    def rules(self) -> tuple[Any, Array, Array]:
        """All constraints, as rows that are no less than their bounds."""
        from scipy.sparse import csr_matrix

        last = self.units - 1
        for i in range(self.units):
            kept_bytes, given_bytes, before = self.kept[i], self.given[i], i - 1
            self.least([("away", i, -1), ("again", i, -1), ("both", i, -1)], -1)
            staying: list[tuple[str, int, float]] = [("stays", i, 1), ("stays", before, -1)]
            self.least([*staying, ("away", i, kept_bytes), ("again", i, kept_bytes - given_bytes),
                        ("both", i, kept_bytes)], kept_bytes)  # fmt: skip
            self.least([("leaves", i, -1), ("leaves", before, 1), ("away", i, kept_bytes),
                        ("both", i, given_bytes)], 0)  # fmt: skip
            self.least([("leaves", i, 1), ("leaves", before, -1), ("away", i, -kept_bytes),
                        ("both", i, -given_bytes)], 0)  # fmt: skip
            self._ahead(i, last)
            self._back(i, last)
        data, columns, ends = [], [], [0]
        for line, _ in self.lines:
            data += list(line.values())
            columns += list(line)
            ends.append(len(columns))
        low = np.array([value for _, value in self.lines])
        rows = csr_matrix((data, columns, ends), shape=(len(low), self.number))
        return rows, low, np.full(len(low), np.inf)

    def _ahead(self, i: int, last: int) -> None:
        """A unit starts when the one before has ended and enough has left to give it room."""
        before, rate = i - 1, max(self.rate[0], 1e-12)
        done = self.forward[before] if i else 0.0
        self.least([("start", i, 1), ("start", before, -1)], done)
        speed = 1 / rate
        self.least([("out", i, -1), ("outs", before, 1), ("start", i, speed),
                    ("start", before, -speed)], done * speed)  # fmt: skip
        pace = 0.0 if self.managed else self.forward[i] * speed
        self.least([("outs", i, -1), ("out", i, 1)], -pace)
        for name in ("out", "outs"):
            self.least([(name, i, -1), ("leaves", before, 1)], 0)
        # what stays and leaves up to here less what has left, and all other micro-batches
        self.least([("out", i, 1), ("stays", i, -1), ("leaves", i, -1),
                    ("stays", last, -self.others)], self.passing[i] - self.room)  # fmt: skip

    def _back(self, i: int, last: int) -> None:
        """A unit runs back when all that it sent out is there again."""
        behind, rate = i + 1, max(self.rate[1], 1e-12)
        speed, before = 1 / rate, i - 1
        pass_seconds = self.backward[behind] if i < last else 0.0
        more = self.remake[behind] if i < last else 0.0
        self.least([("turn", i, 1), ("turn", behind, -1), *_made(behind, -more)], pass_seconds)
        self.least([("come", i, -1), ("comes", behind, 1), ("turn", i, speed),
                    ("turn", behind, -speed), *_made(behind, -more * speed)],
                   pass_seconds * speed)  # fmt: skip
        pace = 0.0 if self.managed else speed
        self.least([("comes", i, -1), ("come", i, 1), *_made(i, self.remake[i] * pace)],
                   -self.backward[i] * pace)  # fmt: skip
        self.least([("come", i, 1), ("leaves", last, -1), ("leaves", before, 1)], 0)
        near = -1 if np.isinf(self.ahead) else max(i - int(self.ahead), 0) - 1
        for name in ("come", "comes"):
            self.least([(name, i, -1), ("stays", i, -1), ("leaves", last, 1), ("leaves", i, -1),
                        ("stays", last, -self.others), *_made(i, -self.anew[i])],
                       self.work[i] - self.room)  # fmt: skip
            self.least([(name, i, -1), ("leaves", last, 1), ("leaves", near, -1)], 0)


def _made(unit: int, factor: float) -> list[tuple[str, int, float]]:
    """So much of a unit that is made again, whether its input leaves or stays."""
    return [("again", unit, factor), ("both", unit, factor)]

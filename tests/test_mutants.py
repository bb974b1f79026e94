"""The list of planted bugs keeps up with the code, and judging them tells dead from alive."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import mutants
from benchmarks.mutants import KILLED, STALE, SURVIVED, copied, judged
from benchmarks.planted_bugs import MUTANTS, Mutant

ROOT = Path(__file__).parents[1]
ROOMS = {"spec", "models", "kernels", "network", "plan", "predict", "ask", "calibration",
         "readers", "writers", "show"}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_place_is_there_once_and_its_tests_are_there(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, "the place has changed: say the bug anew"
    assert mutant.new != mutant.old
    ast.parse(text.replace(mutant.old, mutant.new))  # a bug, not a slip of the pen
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}" in (ROOT / file).read_text(encoding="utf-8")


def test_every_room_has_bugs_and_none_stands_twice() -> None:
    assert len(MUTANTS) >= 44
    assert {mutant.file.split("/")[1] for mutant in MUTANTS} >= ROOMS
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1
    thirds = [{m.name for m in MUTANTS[k::3]} for k in range(3)]
    assert sum(map(len, thirds)) == len(set().union(*thirds)) == len(MUTANTS)


UNITS = "tests/test_units.py::test_a_quantity_is_read_exactly"
BIT = ("oracle/spec/units.py", '"bit": ("B", "0.125")')


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "fate"),
    [
        (Mutant("a bug", *BIT, '"bit": ("B", "1")', (UNITS,)), KILLED),
        (Mutant("no bug", *BIT, '"bit": ("B", "0.1250")', (UNITS,)), SURVIVED),
        (Mutant("no place", BIT[0], "nowhere", "", (UNITS,)), STALE),
        (Mutant("no file", "oracle/none.py", "a", "b", (UNITS,)), STALE),
        (Mutant("no test", *BIT, '"bit": ("B", "1")', ("tests/test_none.py",)), STALE),
        (Mutant("no Python", *BIT, '"bit": (', (UNITS,)), STALE),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_bug_dies_lives_or_has_no_place(
    mutant: Mutant, fate: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "planted"
    if not folder.exists():
        folder.mkdir()
        copied(folder)
    before = (ROOT / BIT[0]).read_bytes()
    assert judged(mutant, folder).fate == fate
    assert (folder / BIT[0]).read_bytes() == (ROOT / BIT[0]).read_bytes() == before


@pytest.mark.slow
def test_tests_that_fail_by_themselves_kill_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "tested", lambda folder, tests: (1, "FAILED test_x"))
    with pytest.raises(RuntimeError, match="without any mutant"):
        mutants.measured([Mutant("a bug", *BIT, '"bit": ("B", "1")', (UNITS,))])

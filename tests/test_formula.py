"""Formulas in spec files: arithmetic as Python has it, nothing else, refused with their place."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.plan.launchable import software
from oracle.spec.document import SpecError
from oracle.spec.formula import LONGEST, NAMES, Formula


@pytest.mark.parametrize(("text", "value"), [
    ("25e6", 25e6),
    ("128 * 2**20", 134217728),
    ("2 + 3 * 4 - -1", 15),
    ("7 // 2 + 7 % 4 + 1 / 4", 6.25),
    ("2 ** 3 ** 2", 512),
    ("max(40e6, 1e6 * data)", 64e6),
    ("min(data, 3, tensor)", 2),
    ("max(7)", 7),
    ("heads % tensor == 0", True),
    ("1 < tensor < data", True),
    ("1 < tensor < 2", False),
    ("not tensor == 2", False),
    ("tensor == 1 or data == 64 and heads == 96", True),
    ("(tensor == 1 or data == 64) and heads == 95", False),
    ("data != 64 or tensor >= 2 and tensor <= 2", True),
])  # fmt: skip
def test_a_formula_by_hand(text: str, value: float) -> None:
    formula = Formula.of(text)
    assert formula({"data": 64.0, "tensor": 2.0, "heads": 96.0}) == value
    assert formula.names == {name for name in ("data", "tensor", "heads") if name in text}


def test_a_formula_of_a_table_of_plans() -> None:
    """Degrees are (plans, 1): each plan has its own answer."""
    tensor = np.array([[1.0], [2.0], [3.0]])
    found = Formula.of("heads % tensor == 0 and tensor > 1")({"heads": 8.0, "tensor": tensor})
    assert np.asarray(found).tolist() == [[False], [True], [False]]
    found = Formula.of("max(40e6, 1e6 * data)")({"data": 30.0 * tensor})
    assert np.asarray(found).tolist() == [[40e6], [60e6], [90e6]]


REFUSED = {
    "`__import__('os').system('true')` cannot be part": "__import__('os').system('true')",
    "`data.real` cannot be part": "data.real",
    "`data[0]` cannot be part": "data[0]",
    "`(lambda: 1)()` cannot be part": "(lambda: 1)()",
    "`[1, 2]` cannot be part": "max([1, 2])",
    "`max()` cannot be part": "max()",
    "`max(1, key=2)` cannot be part": "max(1, key=2)",
    "`abs(1)` cannot be part": "abs(1)",
    "`1 if data else 2` cannot be part": "1 if data else 2",
    "`data @ data` cannot be part": "data @ data",
    "`data is 1` cannot be part": "data is 1",
    "`data in (1, 2)` cannot be part": "data in (1, 2)",
    "`~data` cannot be part": "~data",
    "`(x := 3)` cannot be part": "(x := 3)",
    "`f'{data}'` cannot be part": "f'{data}'",
    "`*data` cannot be part": "max(*data)",
    "`None` cannot be part": "None",
    "`1j` cannot be part": "1j",
    "`'data'` is no number": "'data' == 3",
    "`True` is no number": "True",
    "`tensr` is nothing that plan or model has": "heads % tensr",
    "`__builtins__` is nothing": "__builtins__",
    "`max` is nothing": "max",
    "is not a formula": "heads %",
    "numbers up to 1e+30": "1" + "0" * 60,
    f"{LONGEST} characters at most": "1 + " * LONGEST + "1",
    "`1; 2` is not a formula": "1; 2",
    "`x = 3` is not a formula": "x = 3",
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_is_no_formula_is_refused(says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        Formula.of(REFUSED[says])


@pytest.mark.parametrize("text", ["(" * 190 + "1" + ")" * 190, "-" * 390 + "1", "not " * 90 + "1"])
def test_a_deep_formula_is_refused_or_read(text: str) -> None:
    with suppress(ValueError):
        assert math.isfinite(float(Formula.of(text)({})))


@pytest.mark.parametrize(("text", "value"), [
    ("2 ** 70", 2.0**70), ("2 ** -1", 0.5), ("(data == 1) + (data < 3)", 2), ("-(not 0)", -1),
    ("(2 > 1) - (1 > 2)", 1), ("9 ** 9 ** 9", math.inf),
])  # fmt: skip
def test_numbers_are_those_of_a_calculator(text: str, value: float) -> None:
    assert Formula.of(text)({"data": 1.0}) == value


def test_what_is_divided_by_nothing_keeps_no_rule() -> None:
    for text in ("heads % experts == 0", "heads / experts < 1"):
        assert not Formula.of(text)({"heads": 8.0, "experts": 0.0})


@pytest.mark.parametrize(("pieces", "what"), [
    ({"bytes": "data +"}, "`data +` is not a formula"),
    ({"bytes": ["1"]}, "a formula is wanted here"),
    ({"bytes": ""}, "a formula is wanted here"),
    ({"bytes": "1e6 * tensor"}, "a piece's size cannot depend on `tensor`"),
    ({"elements": "1e6 * heads"}, "a piece's size cannot depend on `heads`"),
    ({"elements": "1e6", "bytes": "1e6"}, "the size of a piece is said once"),
    ({}, "the size of a piece is said once"),
    ({"bytes": "1e-9"}, "a piece is no smaller than 1"),
    ({"bytes": "0"}, "a piece is no smaller than 1"),
    ({"elements": "data - 2"}, "a piece is no smaller than 1"),
    ({"of": "units", "bytes": "1e6"}, "units are as large as they are"),
])  # fmt: skip
def test_a_formula_is_refused_at_its_place(pieces: dict[str, Any], what: str) -> None:
    with pytest.raises(SpecError) as caught:
        software({"name": "own", "source": "made up", "exchange": {"pieces": pieces}})
    (fault,) = caught.value.faults
    assert what in fault.what
    assert fault.place.path.startswith("exchange.pieces")


# --- against Python --------------------------------------------------------------------------

small = st.integers(0, 9).map(str)
leaves = st.one_of(small, st.sampled_from(["data", "tensor", "heads"]))


def joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.sampled_from(["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">="])
    return st.one_of(
        st.tuples(inner, binary, inner).map(lambda three: "({} {} {})".format(*three)),
        st.tuples(inner, inner).map("min({0[0]}, {0[1]})".format),
        st.tuples(inner, inner).map("max({0[0]}, {0[1]})".format),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
            # as truth: Python hands on one of the two
            lambda three: "((({}) != 0) {} (({}) != 0))".format(*three)
        ),
        inner.map("(-{})".format), inner.map("(not {})".format),
        st.tuples(inner, inner, inner).map("({0[0]} < {0[1]} <= {0[2]})".format),
    )  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.recursive(leaves, joined, max_leaves=8), st.integers(1, 6), st.integers(1, 6))
def test_it_is_worked_out_as_python_does(text: str, data: int, tensor: int) -> None:
    values = {"data": float(data), "tensor": float(tensor), "heads": 12.0}
    if len(text) > LONGEST:
        return
    try:
        wanted = float(eval(text, {"min": min, "max": max}, values))
    except ZeroDivisionError:
        return
    assert float(Formula.of(f"({text})")(values)) == pytest.approx(wanted)


@given(st.text(alphabet="abcdefinmortx_0123456789.()[]{}+-*/%<>=!&|^~ '\"\\:,#\n\t", max_size=30))
def test_any_text_is_a_formula_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert Formula.of(text).names <= set(NAMES)

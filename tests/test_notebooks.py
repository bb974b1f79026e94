"""Notebooks run from top to bottom, are light, and show no path or failure."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

BOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
LARGEST = 150_000


def test_there_are_ten() -> None:
    assert [path.name[:2] for path in BOOKS] == [f"{k:02}" for k in range(1, 11)]


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_light_and_tells(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < LARGEST
    places = (Path(__file__).parents[1], Path.home(), tempfile.gettempdir(), "/home")
    assert not [place for place in places if f"{place}/" in text]
    book = json.loads(text)
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert book["cells"][0]["cell_type"] == "markdown"
    assert all(cell["outputs"] for cell in code), "committed with what they show"
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {o["output_type"] for o in outputs} <= {"stream", "display_data", "execute_result"}
    assert not [o for o in outputs if o.get("name") == "stderr"]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the kernel's own libraries
@pytest.mark.parametrize(
    "path",
    [BOOKS[0], *(pytest.param(path, marks=pytest.mark.slow) for path in BOOKS[1:])],
    ids=lambda path: path.stem,
)
def test_a_notebook_runs(path: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    from notebooks.refresh import executed

    book = executed(path)
    assert any(cell.get("outputs") for cell in book.cells)

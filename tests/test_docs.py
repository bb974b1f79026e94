"""The pages: examples run, links and marks resolve, the site builds without a warning."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
EXAMPLES = [page for page in PAGES if ">>> " in page.read_text(encoding="utf-8")]
RUN = """
import doctest, re, sys
text = open(sys.argv[1], encoding="utf-8").read()
blocks = "".join(re.findall(r"```python\\n(.*?)```", text, re.DOTALL))
test = doctest.DocTestParser().get_doctest(blocks, {}, sys.argv[1], sys.argv[1], 0)
result = doctest.DocTestRunner().run(test)
sys.exit(result.failed > 0 or result.attempted == 0)
"""


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.stem)
def test_examples_run(page: Path) -> None:
    """In a process of their own: what an example registers must not reach other tests."""
    done = subprocess.run([sys.executable, "-c", RUN, str(page)], capture_output=True, text=True,
                          cwd=ROOT, timeout=120, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_an_example_of_each_kind_of_addition() -> None:
    text = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8")
    for what in (
        "strategy",
        "schedule",
        "layer kind",
        "collective",
        "topology",
        "reader",
        "writer",
        "framework",
    ):
        assert re.search(rf"^## An? {what}", text, re.MULTILINE), what


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([\w-]+\.md)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).is_file(), f"{page.name} -> {link}"


def test_places_named_to_contributors_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = re.findall(r"`((?:oracle|specs|benchmarks|tests)/[^`]*)`", text)
    assert len(places) > 15
    assert not [place for place in places if not any(ROOT.glob(place))]


def test_every_page_is_in_the_table_of_contents() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = index[index.index("{toctree}") :].split("```")[0].split()
    assert {page.stem for page in PAGES} - {"index"} == set(listed) & {p.stem for p in PAGES}


def test_commands_on_pages_are_commands() -> None:
    from oracle.commands.cli import VERBS

    for page in PAGES:
        for verb in re.findall(r"^\s*\$ oracle ([\w-]+)", page.read_text(encoding="utf-8"), re.M):
            assert verb in VERBS, f"{page.name}: oracle {verb}"


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("sphinx"), reason="the docs extra is not here")
def test_the_site_builds(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "docs", str(tmp_path)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, "ORACLE_REFERENCE": str(tmp_path)})  # fmt: skip
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "equations.html").read_text(encoding="utf-8")
    assert "T_comm = 3 D/B (p - 1)" in page
    assert "{{" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)

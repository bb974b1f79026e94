"""The pages: examples run, links and marks resolve, the site builds without a warning."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
FILLER = (ROOT / "docs" / "filled.py").read_text(encoding="utf-8")
LONG = ("session", "five", "judged", "accuracy", "doubt")  # of what pages say: takes minutes
# those of `python.md` are docstrings', which are run where they stand
EXAMPLES = [page for page in PAGES
            if ">>> " in page.read_text(encoding="utf-8") and page.stem != "python"]  # fmt: skip
RUN = """
import doctest, re, sys
text = open(sys.argv[1], encoding="utf-8").read()
blocks = "".join(re.findall(r"```python\\n(.*?)```", text, re.DOTALL))
test = doctest.DocTestParser().get_doctest(blocks, {}, sys.argv[1], sys.argv[1], 0)
result = doctest.DocTestRunner().run(test)
sys.exit(result.failed > 0 or result.attempted == 0)
"""


@pytest.mark.slow
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
        for link in re.findall(r"\]\(([\w/-]+\.md)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).is_file(), f"{page.name} -> {link}"


def test_places_named_to_contributors_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = re.findall(r"`((?:oracle|specs|benchmarks|tests)/[^`]*)`", text)
    assert len(places) > 15
    assert not [place for place in places if not any(ROOT.glob(place))]


def test_every_page_is_in_the_table_of_contents() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = " ".join(re.findall(r"\{toctree\}(.*?)```", index, re.S)).split()
    assert {page.stem for page in PAGES} - {"index"} == set(listed) & {p.stem for p in PAGES}


def test_commands_on_pages_are_commands() -> None:
    from oracle.commands.cli import VERBS

    for page in PAGES:
        for verb in re.findall(r"^\s*\$ oracle ([\w-]+)", page.read_text(encoding="utf-8"), re.M):
            assert verb in VERBS, f"{page.name}: oracle {verb}"


def filled(*words: str) -> tuple[int, str]:
    """What `python docs/filled.py` says, and its exit code."""
    line = [sys.executable, "docs/filled.py", *words]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_pages_say_what_the_code_says() -> None:
    """All but tables that take minutes and README's session, which are in a slow test."""
    listed = re.findall(r"^    fill.__name__.*?^}", FILLER, re.MULTILINE | re.DOTALL)[0]
    names = set(re.findall(r"\w+", listed.split("(", 1)[1].split(")")[0])) - set(LONG)
    assert len(names) > 10
    assert filled("--check", *sorted(names)) == (0, "")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LONG)
def test_pages_say_what_benchmarks_say_today(name: str) -> None:
    assert filled("--check", name) == (0, ""), f"python docs/filled.py {name}"


@pytest.mark.slow
def test_what_is_stale_is_named(tmp_path: Path) -> None:
    """On a copy of the pages, one of them with another word."""
    for name in ("docs", "oracle", "specs", "benchmarks", "README.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "docs").unlink()
    ignored = shutil.ignore_patterns("_build", "pictures", "__pycache__")
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=ignored)

    def ask(*words: str) -> tuple[int, str]:
        line = [sys.executable, "docs/filled.py", *words, "codes", "verbs"]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    ask()
    page = tmp_path / "docs" / "errors.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("| E101 |", "| E1O1 |"), encoding="utf-8")
    (tmp_path / "docs" / "verbs" / "run.md").unlink()
    (tmp_path / "docs" / "verbs" / "walk.md").write_text("# oracle walk\n")

    old = "docs/errors.md, docs/verbs/walk.md, docs/verbs/run.md"
    assert ask("--check") == (1, f"stale: {old}\n")
    assert ask() == (0, f"wrote: {old}\n")
    assert ask("--check") == (0, "")
    assert page.read_text(encoding="utf-8") == text


def test_nothing_on_a_page_waits_to_be_filled() -> None:
    """Pages read the same in a repository as on the site."""
    for page in (*PAGES, ROOT / "README.md"):
        text = page.read_text(encoding="utf-8")
        outside = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
        assert not re.search(r"\{\{|\bTODO\b|\bTBD\b", outside), page.name
        for found in re.finditer(r"<!-- filled: (\w+) -->\n(.*?)<!-- end -->", text, re.DOTALL):
            assert found[2].strip(), f"{page.name}: {found[1]}"


def test_every_command_has_a_page() -> None:
    from oracle.commands.parser import VERBS

    assert {page.stem for page in (ROOT / "docs" / "verbs").glob("*.md")} == {*VERBS}


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("sphinx"), reason="the docs extra is not here")
def test_the_site_builds(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "docs", str(tmp_path)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "equations.html").read_text(encoding="utf-8")
    assert "T_comm = 3 D/B (p - 1)" in page
    assert "{{" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)

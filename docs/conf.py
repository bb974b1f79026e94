"""How these pages are built: `sphinx-build -W -b html docs docs/_build`.

Words in double braces on a page are filled from the code: what a page says of a strategy, a
verb or a source is what the code says of itself.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

project = "oracle"
author = "the oracle authors"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "oracle"
html_show_sourcelink = False
autodoc_typehints = "none"


def strategies() -> str:
    """Every strategy: its docstring, limit, knobs and source."""
    from oracle.plan.strategies import strategies as known
    from oracle.show.manual import strategy

    parts = []
    for name in known():
        told = strategy(name)
        knobs = ", ".join(f"`{k['knob']}={'|'.join(k['takes'])}`" for k in told["knobs"]) or "none"
        parts += [
            f"## {name}", "", told["is"], "", _blocks(told["text"]), "",
            f"**Degree:** {told['limit'] or 'none: it takes no devices of its own'}  ",
            f"**Limited by:** {'; '.join(told['limited_by'])}  ",
            f"**Knobs:** {knobs}  ",
            f"**Source:** {'; '.join(told['source'])}", "",
        ]  # fmt: skip
    return "\n".join(parts)


def _blocks(text: str) -> str:
    """A docstring with its indented equations as blocks of their own."""
    lines, inside = [], False
    for line in text.splitlines():
        equation = line.startswith("    ")
        if equation != inside and (equation or line.strip()):
            lines.append("```text" if equation else "```\n")
            inside = equation
        lines.append(line[4:] if equation else line)
    return "\n".join([*lines, *(["```"] if inside else [])])


def algorithms() -> str:
    """Every collective operation by every algorithm."""
    from oracle.network.collectives import ALGORITHMS

    lines = ["| operation | algorithm | what it is | source |", "|---|---|---|---|"]
    for op, named in ALGORITHMS.items():
        for name, by in named.items():
            first = (inspect.getdoc(type(by)) or "").split("\n\n")[0].replace("\n", " ")
            first = first.replace("|", "\\|")
            lines.append(f"| {op} | `{name}` | {first} | {by.source} |")
    return "\n".join(lines)


def topologies() -> str:
    """Every kind of network level."""
    from oracle.network.topology import KINDS

    lines = ["| kind | what it is |", "|---|---|"]
    for name, kind in sorted(KINDS.items()):
        first = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
        lines.append(f"| `{name}` | {first} |")
    return "\n".join(lines)


def references() -> str:
    """The bibliography."""
    from oracle.show.bibliography import bibliography, citation

    return "\n".join(f"`{key}`\n: {citation(key)}\n" for key in sorted(bibliography()))


def codes() -> str:
    """What each error code means."""
    from oracle.spec.document import CODES

    return "\n".join(["| code | meaning |", "|---|---|",
                      *(f"| {code} | {text} |" for code, text in CODES.items())])  # fmt: skip


def verbs() -> str:
    """The command line, verb by verb."""
    from oracle.commands.cli import VERBS

    rows = [f"| `oracle {verb}` | {what} |" for verb, what in VERBS.items()]
    return "\n".join(["| verb | what it does |", "|---|---|", *rows])


def settings() -> str:
    """The options that may be set, with what they take."""
    from oracle.commands.parser import VERBS, options, parser_of
    from oracle.commands.settings import SETTINGS, variable

    takers: dict[str, list[str]] = {key: [] for key in SETTINGS}
    for verb in VERBS:
        flags = {flag for action in options(parser_of(verb)) for flag in action.option_strings}
        for key in SETTINGS:
            if f"--{key}" in flags:
                takers[key].append(verb)
    rows = [
        f"| `{key}` | `{variable(key)}` | "
        f"{'every command' if len(verbs) == len(VERBS) else ', '.join(verbs)} |"
        for key, verbs in takers.items()
    ]
    return "\n".join(["| key | variable | of |", "|---|---|---|", *rows])


def shipped() -> str:
    """Systems and models that come along."""
    import oracle
    from oracle.spec import catalogue

    lines = ["| system | what it is | devices |", "|---|---|---|"]
    for path in sorted((ROOT / "specs" / "systems").glob("*.yaml")):
        one = catalogue.system(path.stem)
        lines.append(f"| `{path.stem}` | {one.title or one.name} | {one.devices:,} |")
    lines += ["", "| model | what it is | parameters |", "|---|---|---|"]
    for path in sorted((ROOT / "specs" / "models").glob("*.yaml")):
        model = oracle.model(path.stem)
        count = float(model.repeat @ model.w)
        size = f"{count / 1e9:.3g} B" if count > 1e9 else f"{count / 1e6:.4g} M"
        lines.append(f"| `{path.stem}` | {model.title or model.name} | {size} |")
    return "\n".join(lines)


def accuracy() -> str:
    """The accuracy tables, as the commands print them today."""
    import accuracy

    named = os.environ.get("ORACLE_REFERENCE")
    return accuracy.markdown(Path(named) if named else None)


def peers() -> str:
    """What other tools reach on the tables that we are judged by."""
    from benchmarks.published import TABLES

    rows = [f"| `{name}` | {table.peers} |" for name, table in TABLES.items() if table.peers]
    return "\n".join(["| table | MAPE, τ, regret of peers |", "|---|---|", *rows])


FILLED: dict[str, Callable[[], str]] = {
    f"{{{{{fill.__name__}}}}}": fill
    for fill in (
        strategies, algorithms, topologies, references, codes, verbs, settings, shipped, accuracy,
        peers,
    )
}  # fmt: skip


def fill(app: Any, name: str, source: list[str]) -> None:
    """Put what the code says where a page asks for it."""
    for mark, words in FILLED.items():
        if mark in source[0]:
            source[0] = source[0].replace(mark, words())


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("source-read", fill)

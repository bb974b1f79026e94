"""How these pages are built: `sphinx-build -W -b html docs docs/_build`.

Words in double braces on a page are filled from the code: what a page says of a strategy, a
verb or a source is what the code says of itself.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

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


def reading() -> str:
    """Every way to read: the docstring of its file."""
    from oracle.storage import MODES

    parts = []
    for name, mode in MODES.items():
        text = inspect.getdoc(inspect.getmodule(mode.seconds)) or ""
        parts += [f"### {name}", "", _blocks(text), ""]
    return "\n".join(parts)


def loading() -> str:
    """How reading goes on beside a step."""
    from oracle.storage import loader

    return _blocks((inspect.getdoc(loader) or "").split("\n\n", 1)[1])


def unsaid() -> str:
    """What is taken where nobody says it."""
    from oracle.storage import unknown

    return _blocks((inspect.getdoc(unknown) or "").split("\n\n", 1)[1])


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
    """Systems, software and models that come along."""
    import oracle
    from oracle.spec import catalogue
    from oracle.spec.basis import PARTS, basis

    lines = ["| system | what it is | devices |", "|---|---|---|"]
    stands = [
        "| system | kernels | inside a node | between nodes | storage |",
        "|---|---|---|---|---|",
    ]
    for path in sorted((ROOT / "specs" / "systems").glob("*.yaml")):
        one = catalogue.system(path.stem)
        lines.append(f"| `{path.stem}` | {one.title or one.name} | {one.devices:,} |")
        words = {each.part: each.short for each in basis(one)}
        parts = [words.get(part, "–") for part in PARTS]
        stands.append(f"| `{path.stem}` | {' | '.join(parts)} |")
    lines += ["", "What their numbers stand on (`oracle specs basis NAME` says by whose word):", ""]
    lines += stands
    lines += ["", "| software | what it is | version |", "|---|---|---|"]
    for path in sorted((ROOT / "specs" / "software").glob("*.yaml")):
        known = catalogue.software(path.stem)
        version = f"{known.framework} {known.version}".strip()
        lines.append(f"| `{path.stem}` | {known.title} | {version} |")
    lines += ["", "| model | what it is | parameters |", "|---|---|---|"]
    for path in sorted((ROOT / "specs" / "models").glob("*.yaml")):
        model = oracle.model(path.stem)
        count = float(model.repeat @ model.w)
        size = f"{count / 1e9:.3g} B" if count > 1e9 else f"{count / 1e6:.4g} M"
        lines.append(f"| `{path.stem}` | {model.title or model.name} | {size} |")
    return "\n".join(lines)


def software() -> str:
    """Fields of a software spec, by group: what each takes, what no framework does, what it is."""
    from oracle.spec.schema import fields_of
    from oracle.spec.software import PLAIN, Software
    from oracle.spec.units import Seconds

    lines = ["| field | takes | `plain` | what it is |", "|---|---|---|---|"]
    for group, (_, kind, _) in fields_of(Software).items():
        if kind is str:  # name, source, title, framework, version
            continue
        single = not is_dataclass(kind)
        for name, (attribute, hint, _) in fields_of(Software if single else kind).items():
            if name != group if single else name in ("source", "strategies", "knobs", "rules"):
                continue
            usual = getattr(PLAIN if single else getattr(PLAIN, group), attribute)
            told = _comments(Software if single else kind)[attribute]
            field = name if single else f"{group}.{name}"
            usual = f"{1e6 * usual:g} us" if hint == Seconds else usual
            lines.append(f"| `{field}` | {_taken(hint)} | {_said(usual)} | {told} |")
    return "\n".join(lines)


def _comments(kind: type) -> dict[str, str]:
    """What stands beside each field of a dataclass, or above it."""
    found, above = {}, ""
    for line in inspect.getsource(kind).splitlines():
        code, _, comment = line.strip().partition("# ")
        if not code:
            above = f"{above} {comment}".strip()
        else:
            found[code.partition(":")[0]], above = f"{above} {comment}".strip(), ""
    return found


def _taken(hint: Any) -> str:
    """What a field takes, in words."""
    kinds = [hint, *get_args(hint)]
    words = [f"`{word}`" for kind in kinds if get_origin(kind) is Literal
             for word in get_args(kind)]  # fmt: skip
    if any(get_origin(kind) is dict for kind in kinds):
        words.append("or one by precision")
    rules = [rule for kind in kinds for rule in getattr(kind, "__metadata__", ())]
    if rules:
        words.insert(0, "a time" if hasattr(rules[0], "unit") else "a number")
    plain = {bool: "`true` `false`", str: "text", tuple[str, ...]: "a list"}
    return plain.get(hint) or " ".join(words) or "`bytes:` or `elements:`, a formula"


def _said(value: Any) -> str:
    """A default as a file has it."""
    if is_dataclass(value):
        return f"`bytes: {value.size.text}`"
    words = {"True": "true", "False": "false", "None": "~"}
    text = f"{value:g}" if isinstance(value, float) else words.get(str(value), str(value))
    return f"`{text}`" if text and value != () else ""


def accuracy() -> str:
    """The accuracy tables, as the commands print them today."""
    import accuracy

    named = os.environ.get("ORACLE_REFERENCE")
    return accuracy.markdown(Path(named) if named else None)


def doubt() -> str:
    """How often the intervals hold, as the benchmark says today."""
    import accuracy

    named = os.environ.get("ORACLE_REFERENCE")
    return accuracy.sure(Path(named) if named else None)


def peers() -> str:
    """What other tools reach on the tables that we are judged by."""
    from benchmarks.published import TABLES

    rows = [f"| `{name}` | {table.peers} |" for name, table in TABLES.items() if table.peers]
    return "\n".join(["| table | MAPE, τ, regret of peers |", "|---|---|", *rows])


FILLED: dict[str, Callable[[], str]] = {
    f"{{{{{fill.__name__}}}}}": fill
    for fill in (
        strategies, algorithms, topologies, reading, loading, unsaid, references, codes, verbs,
        settings, shipped, software,
        accuracy, doubt, peers,
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

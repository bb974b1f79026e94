"""What pages say of the code, written into them: `python docs/filled.py`.

Between `<!-- filled: NAME -->` and `<!-- end -->` a page, or the README, has what the function of
that name below says; each verb has a page of its own, README's session is run again. Thus pages
read the same in a repository as on the site.

    python docs/filled.py                  write all anew; the tables of accuracy take minutes
    python docs/filled.py verbs codes      these alone
    python docs/filled.py --check verbs    write nothing; 1 and the names of what is stale

`--reference DIR` names another folder of measured tables.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from types import MemberDescriptorType
from typing import Any, Literal, get_args, get_origin

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]
import accuracy as tables  # noqa: E402  beside this file

DOCS = ROOT / "docs"
BAR = "\\|"  # in a table
COLUMNS = ("table", "rows", "MAPE", "median", "bias", "τ", "our pick is best", "mean regret",
           "in 90 %", "best peer")  # fmt: skip
MARK = re.compile(r"(<!-- filled: (\w+) -->\n).*?(\n<!-- end -->)", re.DOTALL)


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


MEMBERS = {
    "Estimate": ("plan", "seconds_low", "seconds_high", "memory", "fits", "feasible", "broken",
                 "iterations", "epoch", "speed_of_light"),
    "Ranking": ("best", "likely_best", "misses", "rivals", "riskier"),
}  # fmt: skip


def python() -> str:
    """Every public name: how it is called, its docstring, and of answers what they have."""
    import oracle

    parts = []
    for name in sorted(oracle.__all__, key=lambda one: (one[0].isupper(), one)):
        what = getattr(oracle, name)
        parts += [f"### `oracle.{name}`", ""]
        if inspect.isfunction(what):
            parts += ["```py", _called(name, what), "```", ""]  # the tests run ```python
        parts += [_examples(inspect.getdoc(what) or ""), ""]
        rows = [f"| `{member}` | {_is(what, member)} |" for member in MEMBERS.get(name, ())]
        parts += ["| it has | which is |", "|---|---|", *rows, ""] if rows else []
    return "\n".join(parts)


def _called(name: str, what: Callable[..., Any]) -> str:
    """A call with every argument: those without a default as they are, the rest with it."""
    said, starred = [], False
    for each in inspect.signature(what).parameters.values():
        if each.kind is each.KEYWORD_ONLY and not starred:
            said, starred = [*said, "*"], True
        default = "" if each.default is each.empty else "=..." if callable(each.default) else (
            f"={each.default!r}")  # fmt: skip
        said.append("**" * (each.kind is each.VAR_KEYWORD) + each.name + default)
    return "\n".join(textwrap.wrap(f"{name}({', '.join(said)})", 96, subsequent_indent="    "))


def _is(what: type, member: str) -> str:
    """What a member is: the first words of its docstring, or of a field its comment."""
    text = inspect.getdoc(getattr(what, member, None)) if hasattr(what, member) else ""
    if not text or isinstance(getattr(what, member), MemberDescriptorType):
        source = inspect.getsource(what)
        (text,) = re.findall(rf"^    {member}: [^#\n]*(?:# (.*))?$", source, re.M)
    assert text, f"{what.__name__}.{member} says nothing of itself"
    return text.split("\n\n")[0].replace("\n", " ").replace("|", BAR)


def _examples(text: str) -> str:
    """A docstring with what is typed into Python as blocks."""
    lines, inside = [], False
    for line in text.splitlines():
        typed = line.startswith((">>>", "...")) or (inside and bool(line.strip()))
        if typed != inside:
            runs = "```py" if "+SKIP" in text else "```python"
            lines.append(runs if typed else "```\n")
            inside = typed
        lines.append(re.sub(r" +# doctest: .*", "", line))
    return "\n".join([*lines, *(["```"] if inside else [])])


def verbs() -> str:
    """The command line, verb by verb."""
    from oracle.commands.parser import VERBS

    rows = [f"| [`oracle {verb}`](verbs/{verb}.md) | {what} |" for verb, what in VERBS.items()]
    return "\n".join(["| verb | what it does |", "|---|---|", *rows])


def verb(name: str) -> str:
    """A page on a verb: what its help says, as tables."""
    from oracle.commands.parser import module_of, parser_of, parsers

    text = inspect.cleandoc(module_of(name).__doc__ or "")
    first, *rest = text.split("\n\n")
    parts = [f"# oracle {name}", "", first, ""]
    for paragraph in rest:
        lines = paragraph.splitlines()
        shown = all(line.startswith((" ", "oracle ")) for line in lines)
        parts += [*(["```text", *lines, "```"] if shown else [_plain(line) for line in lines]), ""]
    outer, *inner = parsers(parser_of(name))
    parts += _groups(outer, "##")
    for kind in inner:
        parts += [f"## {kind.prog}", "", *_groups(kind, "###")]
    return "\n".join(parts)


def _groups(parser: argparse.ArgumentParser, depth: str) -> Iterator[str]:
    """What a parser takes, a table for each title of its help."""
    for group in parser._action_groups:
        actions = [one for one in group._group_actions if one.help != argparse.SUPPRESS]
        if not actions or (depth == "###" and "--help" in actions[0].option_strings):
            continue
        what = "option" if actions[0].option_strings else "argument"
        title = "arguments" if what == "argument" else str(group.title)
        yield from (f"{depth} {title.capitalize()}", "", f"| {what} | what it is |", "|---|---|")
        yield from (*map(_option, actions), "")


def _option(action: argparse.Action) -> str:
    """A row of a verb's page."""
    from oracle.commands.parser import help_of

    takes = action.metavar or action.dest.upper() if action.nargs != 0 else ""
    if not action.metavar and action.choices is not None:
        takes = "|".join(map(str, action.choices))
    said = ", ".join(f"{flag} {takes}".strip() for flag in action.option_strings) or str(takes)
    return f"| `{said.replace('|', BAR)}` | {_plain(help_of(action))} |"


def _plain(text: str) -> str:
    """Words of a help that are nobody's markup, but for what stands in backticks."""
    parts = text.replace("%%", "%").split("`")
    parts[::2] = [re.sub(r"([|<*_\[\]])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [f"`{part.replace('|', BAR)}`" for part in parts[1::2]]
    return "".join(parts)


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
    plain = {bool: "`true` `false`", str: "text", tuple[str, ...]: "a list",
             dict[str, tuple[str, ...]]: "lists by table"}  # fmt: skip
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
    return tables.markdown(REFERENCE)


def doubt() -> str:
    """How often the intervals hold, as the benchmark says today."""
    return tables.sure(REFERENCE)


def peers() -> str:
    """What other tools reach on the tables that we are judged by."""
    from benchmarks.published import TABLES

    rows = [f"| `{name}` | {table.peers} |" for name, table in TABLES.items() if table.peers]
    return "\n".join(["| table | MAPE, τ, regret of peers |", "|---|---|", *rows])


def recipe() -> str:
    """NVIDIA's own plan of a large mixture beside the first that is recommended, priced alike."""
    import oracle
    from benchmarks.published.megatron import grid

    model, system, batch = "qwen3-235b-a22b", "gb200-nvl72", 8192
    said: dict[str, Any] = {"precision": "mxfp8", "optimizer": "adam",
                            "software": "nemo,graphs=iteration"}  # fmt: skip
    cuts = ",cuts=" + "/".join(str(4 * k) for k in range(1, 24))  # 94 layers and the two ends
    theirs = grid(8, 32, 1, 256, ep=32, interleave=3, zero=1, knobs=cuts)
    ours = oracle.recommend(model, system, devices=256, batch=batch, **said).best.plan
    found = oracle.estimate(model, system, [theirs, ours], batch, **said)
    rows = [
        f"| {who} | `{plan.replace(cuts, ',cuts=4/8/…/92')}` | {found.seconds[i]:.1f} s "
        f"({found.seconds_low[i]:.1f} to {found.seconds_high[i]:.1f}) "
        f"| {found.memory[i] / 2**30:.0f} GiB |"
        for i, (who, plan) in enumerate((("NVIDIA's recipe", theirs), ("our first", ours)))
    ]  # fmt: skip
    return "\n".join(["| | plan | iteration | memory |", "|---|---|---|---|", *rows])


def session() -> str:
    """README's console block with each command's output as it is now."""
    commands = re.findall(
        r"^\$ (oracle .*)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE
    )
    spoken = (f"$ {line}\n{said(*shlex.split(line))}" for line in commands)
    return "```console\n" + "\n\n".join(spoken) + "\n```"


def said(*words: str) -> str:
    """What a module of ours prints, 80 columns wide and without colour."""
    plain = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    command = [sys.executable, "-m", *words]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=plain)
    return ran.stdout.rstrip()


# of all tables those that README shows, in words: many nodes, one paper, new machines, CNNs
FIVE = {
    "vtrain_multi": "GPT of many sizes, several nodes of A100, Megatron-LM (vTrain)",
    "narayanan2021": "GPT up to a trillion parameters, A100, Megatron-LM (SC'21)",
    "nemo_h100": "language models, H100, NeMo",
    "nemo_blackwell": "language models, Blackwell, NeMo",
    "cnn": "convolutional networks, several frameworks",
}


def five() -> str:
    """README's rows of accuracy."""
    rows = {row["table"]: row for row in tables.judged(REFERENCE) if row["table"] in FIVE}
    lines = [f"| {words} | {rows[name]['rows']} | {rows[name]['mape']:.1f} % | "
             f"{rows[name]['coverage']:.0f} % |" for name, words in FIVE.items()]  # fmt: skip
    head = "| measured | steps | mean error | inside the 90 % interval |\n|---|---:|---:|---:|"
    return "\n".join([head, *lines])


def practice() -> str:
    """What communities run beside what is recommended, and where that is written."""
    from benchmarks.practice import table

    found = table()
    names = list(dict.fromkeys(key for row in found["rows"] for key in row))
    lines = [f"| {' | '.join(names)} |", f"|---|---|---|{'---:|' * (len(names) - 3)}"]
    lines += [f"| {' | '.join(str(row.get(name, '–')) for name in names)} |"
              for row in found["rows"]]  # fmt: skip
    return "\n".join([*lines, "", *(f"* {note}" for note in found["notes"])])


def judged() -> str:
    """The table of accuracy beside other tools."""
    found = [row for row in tables.judged(REFERENCE) if "mape" in row]
    head = f"| {' | '.join(COLUMNS)} |\n|---|{'---:|' * 8}---|"
    return "\n".join([head, *map(line, found)])


def line(row: dict[str, Any]) -> str:
    """One table of measurements as a line."""

    def cell(key: str, form: str = "{:.1f} %") -> str:
        return form.format(row[key]) if key in row else ""

    cells = (
        row["table"], str(row["rows"]), cell("mape"), cell("median"), cell("bias", "{:+.1f} %"),
        cell("tau", "{:.2f}"), cell("best_pick", "{:.0f} %"), cell("regret_mean"),
        cell("coverage", "{:.0f} %"), row["peers"],
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


REFERENCE: Path | None = None  # a folder of measured tables, where not ours
FILLED: dict[str, Callable[[], str]] = {
    fill.__name__: fill
    for fill in (
        strategies, algorithms, topologies, reading, loading, unsaid, references, codes, python,
        verbs, settings, shipped, software, peers, recipe, session, five, practice,
        judged, accuracy, doubt,
    )
}  # fmt: skip


def pages() -> Iterator[tuple[Path, list[str]]]:
    """Pages with something to fill in, and what that is."""
    for path in (ROOT / "README.md", *sorted(DOCS.glob("*.md"))):
        if names := [found[2] for found in MARK.finditer(path.read_text("utf-8"))]:
            yield path, names


def written(path: Path, wanted: Iterable[str]) -> str:
    """The text of a page as it should be."""

    def anew(found: re.Match[str]) -> str:
        name = found[2]
        return f"{found[1]}{FILLED[name]().strip()}{found[3]}" if name in wanted else found[0]

    return MARK.sub(anew, path.read_text("utf-8"))


def due(wanted: Iterable[str]) -> dict[Path, str | None]:
    """Each file as it should be; None: not at all."""
    from oracle.commands.parser import VERBS

    wanted = list(wanted)
    found: dict[Path, str | None] = {
        path: written(path, wanted) for path, names in pages() if {*names} & {*wanted}
    }
    if "verbs" in wanted:
        found |= dict.fromkeys((DOCS / "verbs").glob("*.md"))
        found |= {DOCS / "verbs" / f"{name}.md": verb(name) for name in VERBS}
    return found


def main(words: list[str] | None = None) -> int:
    global REFERENCE
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FILLED))
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if something is old")
    parser.add_argument("--reference", type=Path, metavar="DIR")
    asked = parser.parse_args(words)
    if unknown := {*asked.names} - {*FILLED}:
        parser.error(
            f"nothing is called {', '.join(sorted(unknown))}; there are {', '.join(FILLED)}"
        )
    REFERENCE = asked.reference
    stale = []
    for path, text in due(asked.names or FILLED).items():
        if text == (path.read_text("utf-8") if path.is_file() else None):
            continue
        stale.append(path.relative_to(ROOT))
        if not asked.check and text is None:
            path.unlink()
        elif not asked.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(str(text), encoding="utf-8")
    if stale:
        print(f"{'stale' if asked.check else 'wrote'}: {', '.join(map(str, stale))}")
    return int(asked.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())

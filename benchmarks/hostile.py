"""The command lines of `benchmarks.attack`, with the worlds that they run in."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SPECS, DATA = ROOT / "specs", ROOT / "tests" / "data"
LONG = "n" * 5000
ODD = (
    "", " ", "-", "--", "-1", "0", "²", "٣", "1e9", "nan", "inf", "1" * 30, "9" * 5000, LONG,
    "a\0b", "a\nb", "\r=cmd", "../../x", "/dev/zero", "/dev/full", "/proc/self/mem", ".", "/", "~",
    "$(id)", "`id`", "<b>", "%s", "{}", "\ud800", "\u202e", "=1+1", "1..", "..1", "1..99999999:1",
    ",", "1,,2", "data:2", "data:²", "data:1000000000", "data:2 " * 999, "serial serial", "abci",
    "resnet50",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A command line, and the world that it runs in."""

    family: str
    name: str
    arrange: Callable[[Path], list[str]]  # makes the files in the target; the line
    enter: Callable[[], Any] = lambda: None  # in the process, before the line
    beside: Callable[[int], None] = field(default=lambda pid: None)  # meanwhile, outside
    markup: Callable[[Path], str] = lambda target: ""  # what a name has become


ONE = ["lenet5", "abci", "--plan", "data:2", "--batch", "8"]
SOME = ["lenet5", "abci", "--devices", "2", "--batch", "8"]
READERS: dict[str, list[str]] = {
    "model": ["estimate", "FILE", "abci", "--plan", "data:2", "--batch", "8"],
    "system": ["recommend", "lenet5", "FILE", "--devices", "2", "--batch", "8"],
    "dataset": ["recommend", *SOME, "--dataset", "FILE"],
    "profile": ["estimate", *ONE, "--profile", "FILE"],
    "check": ["specs", "check", "FILE"], "show": ["specs", "show", "FILE"],
    "compare": ["compare", "FILE", "lenet5", "abci"],
    "calibrate": ["calibrate", "FILE", "--onto", "abci"],
    "run": ["calibrate", "run", "FILE", "lenet5", "abci", "--plan", "data:2", "--batch", "8"],
    "kernels": ["calibrate", "compute", "FILE", "--onto", "v100-sxm2-16gb"],
    "rows": ["plot", "scaling", "--rows", "FILE", "-o", "figure.svg"],
    "measured": ["plot", "measured", "FILE", "-o", "figure.svg"],
    "bars": ["plot", "breakdown", "--rows", "FILE", "--measured", "FILE", "-o", "figure.svg"],
    "config": ["import", "huggingface", "FILE"], "onnx": ["import", "onnx", "FILE"],
    "sweep": ["sweep", "FILE", "abci", "--devices", "2", "--batch", "8", "--jobs", "1"],
    "export": ["export", "slurm", "FILE", "abci", "--plan", "data:2", "--batch", "8"],
    "report": ["report", "FILE", "abci", "--devices", "2", "--batch", "8", "-o", "r.html"],
    "software": ["estimate", *ONE, "--software", "FILE"],
    "software ranked": ["recommend", *SOME, "--software", "FILE,gradients=fp32"],
    "job": ["import", "job", "FILE"],
    "job predicted": ["import", "job", "FILE", "--system", "dgx-a100", "--devices", "8"],
    "job's model": ["import", "job", str(DATA / "jobs" / "deepspeed.sh"), "--model", "FILE",
                    "--system", "dgx-a100"],
    "job written": ["export", "job", "FILE", "dgx-a100", "--plan", "data:8", "--batch", "8",
                    "--software", "pytorch-ddp", "-o", "job"],
    "job's software": ["export", "job", *ONE, "--software", "FILE", "-o", "job"],
    "pareto": ["plot", "pareto", "--rows", "FILE", "-o", "figure.svg"],
    "timeline": ["plot", "timeline", "FILE", "abci", "--plan", "data:2", "--batch", "8",
                 "-o", "figure.svg"],
    "network": ["plot", "contention", "FILE", "--plan", "data:2", "-o", "figure.svg"],
    "explain": ["explain", "FILE", "abci", "--plan", "data:2", "--batch", "8"],
}  # fmt: skip
VERBS: dict[str, list[str]] = {
    "recommend": ["recommend", *SOME], "estimate": ["estimate", *ONE],
    "explain": ["explain", *ONE], "sweep": ["sweep", *SOME, "--jobs", "1"],
    "report": ["report", *SOME, "-o", "r.html"], "specs": ["specs", "list"],
    "plot": ["plot", "parts", *SOME, "-o", "p.svg"], "export": ["export", "torchrun", *ONE],
    "config": ["config", "show"], "schema": ["schema", "models"],
    "completion": ["completion", "bash"], "import": ["import", "huggingface", "none.json"],
    "calibrate": ["calibrate", "none.log", "--onto", "abci"],
    "compare": ["compare", "none.json", "lenet5", "abci"],
    "job": ["export", "job", "gpt2", "dgx-a100", "--plan", "data:8", "--batch", "64",
            "--software", "megatron-core"],
    "import job": ["import", "job", str(DATA / "jobs" / "gpt.sbatch"), "--system", "dgx-a100"],
    "software": ["estimate", "gpt2", "dgx-a100", "--plan", "data:8", "--batch", "64",
                 "--software", "nemo,gradients=bf16"],
    "timeline": ["plot", "timeline", *ONE, "-o", "p.svg"],
    "contention": ["plot", "contention", "abci", "--plan", "data:8", "-o", "p.svg"],
    "pareto": ["plot", "pareto", *SOME, "-o", "p.svg"],
    "run": ["run", "nosuch", "--plan", "serial", "--batch", "8", "-o", "x"],
    "measure": ["measure", "compute", "--model", "nosuch", "--plan", "serial", "--batch", "8",
                "-o", "x"],
}  # fmt: skip


def _written(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content) and None


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**31)


FILES: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo, "sparse": _sparse, "folder": lambda path: path.mkdir(),
    "nothing": lambda path: None, "loop": lambda path: path.symlink_to(path),
    "zero": lambda path: path.symlink_to("/dev/zero"),
    "random": lambda path: path.symlink_to("/dev/urandom"),
    "memory": lambda path: path.symlink_to("/proc/self/mem"),
    "kernel": lambda path: path.symlink_to("/proc/kmsg"),
    "terminal": lambda path: path.symlink_to("/dev/ptmx"),
    "empty": _written(b""), "null": _written(b"\0" * 4096),
    "binary": _written(bytes(range(256)) * 99),
    "utf16": _written("name: x\n".encode("utf-16")), "mark": _written(b"\xef\xbb\xbf"),
    "lists": _written(b"[" * 200_000), "maps": _written(b'{"a":' * 100_000),
    "dashes": _written(b"- " * 200_000), "indents": _written(
        b"".join(b" " * i + b"a:\n" for i in range(1400))),
    "twice": _written(b"{" + b",".join(b'"k%d": 0' % i for i in range(40_000)) + b', "k0": 1}'),
    "unknown": _written(b"".join(b"k%d: 1\n" % i for i in range(60_000))),
    "layers": _written(b"name: x\nsource: x\ninput: [3, 8, 8]\nlayers:\n" + b"- relu\n" * 60_000),
    "wide": _written(b"a," * 400_000 + b"a\n" + b"1,\n" * 1000), "line": _written(b"9" * 900_000),
    "lines": _written(b"\n" * 16_000_000),
    "rows": _written(b"predicted,measured\n" + b"1,1\n" * 900_000),
    "empties": _written(b"[" + b"[]," * 5_000_000 + b"0]"), "number": _written(b"9" * 10**6),
    "numbers": _written(b"[" + b"1," * 8_000_000 + b"1]"),
    "aliases": _written(b"a: &a [x]\n" + b"".join(
        b"%c: &%c [*%c,*%c]\n" % (98 + i, 98 + i, 97 + i, 97 + i) for i in range(20))),
    "onnx": _written(b"\x3a\xff\xff\xff\xff\x07" + b"\x0a\x02\x22\x01" * 90_000),
    "nodes": _written(b"\x3a\x80\x80\x80\x04" + b"\x0a\x00" * 2**22),
    "nest": _written(b":\xc8\x01" * 60_000),
}  # fmt: skip


def _strange_files() -> Iterator[Case]:
    for reader, line in READERS.items():
        for kind, make in FILES.items():

            def arrange(target: Path, line: list[str] = line, make: Any = make) -> list[str]:
                path = target / "given.yaml"
                make(path)
                return [word.replace("FILE", str(path)) for word in line]

            yield Case("files", f"{reader} {kind}", arrange)


def _odd_words(dice: random.Random) -> Iterator[Case]:
    """Every option of every verb with every odd word, one at a time."""
    from oracle.commands.parser import parser_of, parsers

    for verb, line in VERBS.items():
        if line[0] in ("run", "measure"):
            continue
        flags = sorted(
            {
                flag
                for one in parsers(parser_of(line[0]))
                for action in one._actions
                for flag in action.option_strings
                if flag.startswith("--") and action.nargs != 0 and flag != "--dask"
            }
        )
        for flag in flags:
            for word in ODD:
                name = f"{verb} {flag} {word[:20]!r}"
                yield Case("words", name, lambda target, words=[*line, f"{flag}={word}"]: words)
        for at in range(1, len(line)):
            for word in dice.sample(ODD, 12):
                words = [*line[:at], word, *line[at + 1 :]]
                yield Case("words", f"{verb} {at} {word[:20]!r}", lambda target, words=words: words)


def _closed_streams() -> Iterator[Case]:
    for verb, line in VERBS.items():
        for which in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)):

            def enter(which: tuple[int, ...] = which) -> None:
                for number in which:
                    os.close(number)
                    setattr(sys, ("stdin", "stdout", "stderr")[number], None)

            words = ["-" if word == "abci" and 0 in which else word for word in line]
            yield Case("streams", f"{verb} {which}", lambda target, words=words: words, enter)
        for place in ("/dev/full",):

            def full(place: str = place) -> None:
                handle = os.open(place, os.O_WRONLY)
                os.dup2(handle, 1)
                os.close(handle)

            yield Case("streams", f"{verb} {place}", lambda target, words=line: words, full)


def _environments() -> Iterator[Case]:
    def case(name: str, line: list[str], **environment: str | None) -> Case:
        def enter() -> None:
            for key, value in environment.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value

        return Case("environment", name, lambda target: line, enter)

    for verb, line in VERBS.items():
        yield case(f"{verb} no home", line, HOME=None)
        for home in ("/nonexistent", "", "/dev/null", "relative", LONG, "/proc/1/root"):
            yield case(f"{verb} home {home[:9]}", line, HOME=home, XDG_CONFIG_HOME=home)
        yield case(f"{verb} folders", line, XDG_CONFIG_DIRS=":::/dev/zero:" + LONG)
        for name in ("LANG", "TERM", "COLUMNS", "NO_COLOR", "TMPDIR", "PYTHONIOENCODING"):
            yield case(f"{verb} {name}", line, **{name: "²\r\n" + LONG[:99]})
    from oracle.commands.settings import SETTINGS, variable

    for key in SETTINGS:
        for word in (w for w in ODD if "\0" not in w and "\ud800" not in w):
            for verb in ("recommend", "config"):
                yield case(f"{verb} {key} {word[:9]!r}", VERBS[verb], **{variable(key): word})


def _settings_files() -> Iterator[Case]:
    deep = {"lists": b"a = " + b"[" * 20_000, "tables": b"[a" + b".a" * 20_000 + b"]\n",
            "many": b"".join(b"k%d = 1\n" % i for i in range(6000)),
            "long": b"top = " + b"9" * 60_000,
            "large": b"#" * 2**20, "heads": b"".join(b"[t%d]\n" % i for i in range(9000)),
            "latin": b'precision = "\xe9"', "dotted": b"a" + b".a" * 30_000 + b" = 1\n",
            "inline": b"a = " + b"{b=" * 20_000,
            "key": b'"' + b"k" * 60_000 + b'" = 1'}  # fmt: skip
    makers = {**{name: _written(content) for name, content in deep.items()}, **FILES}
    for kind, make in makers.items():
        for verb in ("recommend", "specs", "config", "export"):

            def arrange(target: Path, verb: str = verb, make: Any = make) -> list[str]:
                make(target / "oracle.toml")
                return VERBS[verb]

            yield Case("settings", f"{verb} {kind}", arrange)


def _sweep_folders() -> Iterator[Case]:
    line = ["sweep", "lenet5", "abci", "--devices", "1,2", "--batch", "8", "--jobs", "1",
            "--out", "runs"]  # fmt: skip

    def case(name: str, make: Callable[[Path, Path], None]) -> Case:
        def arrange(target: Path) -> list[str]:
            (target / "runs").mkdir()
            make(target / "runs", target.parent / "outside")
            return line

        return Case("sweeps", name, arrange)

    for place in ("sweep.json", "rows", "rows/a.jsonl", "result.csv"):
        for kind, make in FILES.items():

            def put(folder: Path, outside: Path, place: str = place, make: Any = make) -> None:
                (folder / place).parent.mkdir(exist_ok=True)
                make(folder / place)

            yield case(f"{place} {kind}", put)
        for to in ("kept", "new", ".", "none/new"):

            def link(folder: Path, outside: Path, place: str = place, to: str = to) -> None:
                (folder / place).parent.mkdir(exist_ok=True)
                (folder / place).symlink_to(outside / to)

            yield case(f"{place} -> {to}", link)


def _left_results() -> Iterator[Case]:
    """What stands where a run, or a measurement, would go on with what an earlier one left."""
    lines = {"run": ["run", "lenet5", "--plan", "data:2", "--batch", "8", "-o", "st.json"],
             "measure": ["measure", "compute", "--model", "lenet5", "--plan", "data:2",
                         "--batch", "8", "-o", "st.json"]}  # fmt: skip
    for verb, line in lines.items():
        for place in ("st.json.parts/rank-00000.jsonl", "st.json.parts"):
            for kind, make in FILES.items():

                def arrange(target: Path, line: list[str] = line, place: str = place,
                            make: Any = make) -> list[str]:  # fmt: skip
                    (target / place).parent.mkdir(exist_ok=True)
                    make(target / place)
                    return line

                yield Case("results", f"{verb} {place} {kind}", arrange)


def _too_wide() -> Iterator[Case]:
    """More devices than there are, on purpose and not, of every verb."""
    for verb, line in VERBS.items():
        for number in ("4353", "1000003", "9999999"):
            words = [
                re.sub(r"^(data:)?[28]$", rf"\g<1>{number}", word)
                if before in ("--plan", "--devices", "--batch") else word
                for before, word in pairwise(["", *line])
            ]  # fmt: skip
            for more in ([], ["--grow"]):
                yield Case("wide", f"{verb} {number} {more}",
                           lambda target, words=[*words, *more]: words)  # fmt: skip


def _full_and_shut() -> Iterator[Case]:
    """A disk without room, a folder that is not writable, a place that is no file."""
    writing = {"report": "-o", "plot": "-o", "export": "-o", "recommend": "-o", "estimate": "-o",
               "sweep": "--out", "completion": "-o", "schema": "-o"}  # fmt: skip
    for verb, flag in writing.items():
        line = [word for word in VERBS[verb] if word not in ("-o", "r.html", "p.svg")]
        end = {"report": ".html", "plot": ".svg"}.get(verb, "")
        for room in (0, 1, 100, 5000):

            def enter(room: int = room) -> None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

            words = [*line, flag, f"made{end}"]
            yield Case("disks", f"{verb} {room} B", lambda target, words=words: words, enter)
        for place in ("/proc/x", "/dev/full", "/dev/null/x", "none/such/x", "a\0b", LONG, "", ".",
                      "/sys/kernel/x"):  # fmt: skip
            words = [*line, flag, place if place == "" else f"{place}{end}"]
            yield Case("disks", f"{verb} {place[:20]!r}", lambda target, words=words: words)


def _names() -> Iterator[Case]:
    """Names of specs in reports, tables and scripts."""
    nasty = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "$(touch PWNED)",
             "`touch PWNED`", "a'; touch PWNED; '", "=cmd|' /C calc'!A0", "\x1b[2J", "a\nb",
             "../../outside/new", "-rf", "{{placeholder}}", "%d%s", "x" * 3000)  # fmt: skip
    lines = {
        "report": ["report", "m.yaml", "abci", "--devices", "2", "--batch", "8", "-o", "r.html"],
        "csv": ["recommend", "m.yaml", "abci", "--devices", "2", "--batch", "8", "--format", "csv"],
        "md": ["recommend", "m.yaml", "abci", "--devices", "2", "--batch", "8", "--format", "md"],
        "slurm": ["export", "slurm", "m.yaml", "abci", "--plan", "data:2", "--batch", "8",
                  "-o", "job"],
        "torchrun": ["export", "torchrun", "m.yaml", "abci", "--plan", "data:2", "--batch", "8",
                     "-o", "job"],
        "trace": ["export", "trace", "m.yaml", "abci", "--plan", "data:2", "--batch", "8",
                  "-o", "job"],
    }  # fmt: skip
    for word in nasty:
        for kind, line in lines.items():

            def arrange(target: Path, word: str = word, line: list[str] = line) -> list[str]:
                spec = {"name": word, "title": word, "source": word, "input": [3, 8, 8],
                        "layers": ["flatten", {"dense": 10}]}  # fmt: skip
                (target / "m.yaml").write_text(json.dumps(spec))
                return line

            def markup(target: Path) -> str:
                page = target / "r.html"
                if page.exists():
                    content = page.read_text()
                    return "markup" * ("<script>alert" in content or "<img src=x" in content)
                scripts = [path for path in (target / "job").glob("*.s*") if shutil.which("sh")]
                for path in scripts:  # every command of a name is in quotes, or not there
                    if (
                        os.system(
                            f"cd '{target}' && grep -v '^#' '{path}' | "
                            "grep -n 'touch PWNED' | grep -qv \"'[^']*touch PWNED[^']*'\""
                        )
                        == 0
                    ):
                        return path.name
                return ""

            yield Case("names", f"{kind} {word[:20]!r}", arrange, markup=markup)


def _two_writers() -> Iterator[Case]:
    """Two that write one place at once: each is whole or refused."""
    for verb, line in (("report", [*VERBS["report"]]),
                       ("sweep", [*VERBS["sweep"], "--out", "runs"]),
                       ("recommend", [*VERBS["recommend"], "-o", "made"]),
                       ("export", [*VERBS["export"], "-o", "job"])):  # fmt: skip

        def enter(line: list[str] = line) -> None:
            if os.fork() == 0:
                from oracle.commands.cli import main

                os._exit(main(line))

        yield Case("writers", verb, lambda target, line=line: line, enter)


def cases(seed: int, quick: bool) -> Iterator[Case]:
    """Every case, or of each family a few."""
    dice = random.Random(seed)
    for family in (_strange_files(), _left_results(), _sweep_folders(), _names(),
                   _full_and_shut(), _two_writers(), _closed_streams(), _settings_files(),
                   _environments(), _too_wide(), _odd_words(dice)):  # fmt: skip
        found = list(family)
        yield from dice.sample(found, min(len(found), 12)) if quick else found

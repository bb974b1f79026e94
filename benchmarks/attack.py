"""Hostile inputs: what a reader, a verb or a folder is given by nobody well-meaning.

    python -m benchmarks.attack [--quick] [--seed S] [--only FAMILY,…] [--json]

Texts are mutated and read in batches, each batch in a process of its own (`benchmarks.hostile`);
command lines run in a fork each, in a folder of their own, with the streams, the environment and
the limits of the case. What must never happen is counted:

    tracebacks   an exit code that says a fault of ours, a Traceback, a warning of Python's, the
                 end by a signal
    hangs        5 s of processor time, or 20 s by the clock and then 5 s of next to none: a
                 machine that others use makes a case late, not hung
    memory       256 MiB more than when the case began
    outside      a file changed or made beside the folder that was named
    markup       a name of a spec that became markup of a report, or a command of a script
    nonsense     an answer with a number that is none

Each is said on the error stream when it is found.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.hostile import Case, cases
from benchmarks.hostile_texts import texts
from benchmarks.table import Table, figure, text

CPU, WALL, STILL, MEMORY = 5.0, 20.0, 5.0, 256 * 2**20
TEXTS = 100.0  # of a processor, for a batch of texts, of which each has 5
MOST = 300.0  # by the clock, whatever a case does
SOUND = {0, 1, 2, 3, 130, 143}
FAULTS = ("tracebacks", "hangs", "memory", "outside", "markup", "nonsense")
OF_PYTHON = re.compile(r"Traceback \(most recent|\w*Warning: |Exception ignored")
NONE = re.compile(r"(?<![\w`'./-])-?(nan|inf|NaN|Infinity)(?![\w`'./-])")

SAID = re.compile(r"(?i)\b(nan|inf|infinity)\b")  # the same in the words of a case


def attack(quick: bool = False, seed: int = 0, only: Sequence[str] = ()) -> Table:
    """Figures of all cases, or of some families."""
    warm()
    found: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    families: Counter[str] = Counter()
    begin, whole = time.monotonic(), False
    signal.signal(signal.SIGTERM, _enough)

    def note(family: str, name: str, count: int, bad: dict[str, str]) -> None:
        found["inputs"] += count
        families[family] += count
        for kind, words in bad.items():
            found[kind] += 1
            rows.append(
                {"fault": kind, "family": family, "case": name[:100], "words": words[-160:]}
            )
            print(found["inputs"], *rows[-1].values(), file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="oracle-attack-") as scratch, suppress(Enough):
        for number, batch in enumerate(texts(seed, quick)):
            if only and "texts" not in only:
                break
            box = Path(scratch) / f"t{number}"
            note("texts", batch.name, batch.count, forked(box, batch.run, {}, most=TEXTS))
            shutil.rmtree(box, ignore_errors=True)
        for number, case in enumerate(cases(seed, quick)):
            if only and case.family not in only:
                continue
            box = Path(scratch) / f"c{number}"
            note(case.family, case.name, 1, struck(box, case))
            shutil.rmtree(box, ignore_errors=True)
        whole = not only
    figures = {f"attack.{kind}": figure(found[kind], "", "0") for kind in FAULTS}
    goal = "≥ 300" if quick else "≥ 10000"
    figures["attack.inputs"] = figure(found["inputs"], "", goal)
    figures["attack.whole"] = figure(int(whole), "", "1")
    figures["attack.seconds"] = figure(round(time.monotonic() - begin, 1), "s", "")
    notes = [f"{count} of {name}" for name, count in families.most_common()]
    return {"title": "hostile inputs", "rows": rows, "figures": figures, "notes": notes}


class Enough(Exception):
    """Ended before the last case: what was found until then is said."""


def _enough(number: int, frame: Any) -> None:
    raise Enough


def warm() -> None:
    """Import once what every fork would: what it costs is nobody's attack."""
    import oracle
    from oracle.commands.parser import VERBS, module_of, parser_of
    from oracle.readers.logs import formats
    from oracle.show.plot import style  # noqa: F401

    with suppress(ImportError):
        import matplotlib.backends.backend_svg
        import matplotlib.figure  # noqa: F401
    with suppress(ImportError):
        from oracle.readers.importers import onnx  # noqa: F401
    for verb in VERBS:
        module_of(verb)
        parser_of(verb)
    formats()
    oracle.recommend("resnet50", "abci", devices=4, batch=32)
    gc.collect()
    gc.freeze()


def struck(box: Path, case: Case) -> dict[str, str]:
    """What went wrong with one command line."""
    box.mkdir()
    target = box / "target"
    target.mkdir()
    (box / "outside").mkdir()
    (box / "outside" / "kept").write_text("kept")
    line = case.arrange(target)
    before = listing(box)

    def run() -> int:
        os.chdir(target)
        case.enter()
        from oracle.commands.cli import main

        return main(line)

    about = {"argv": " ".join(map(repr, line))[:200], "name": case.name}
    bad = forked(box, run, about, case.beside)
    after = listing(box)
    if changed := {name for name in before.keys() | after.keys()
                   if before.get(name) != after.get(name)}:  # fmt: skip
        bad["outside"] = ", ".join(sorted(changed))
    if words := case.markup(target):
        bad["markup"] = words
    return bad


def listing(box: Path) -> dict[str, bytes]:
    """What stands in a box beside the target and the streams."""
    found = {}
    for path in sorted((box / "outside").rglob("*")):
        found[str(path)] = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    found |= {path.name: b"" for path in box.iterdir() if path.name not in ("out", "err")}
    return found


def forked(
    box: Path, run: Callable[[], int], about: dict[str, str],
    beside: Callable[[int], None] = lambda pid: None, most: float = CPU,
) -> dict[str, str]:  # fmt: skip
    """Run in a process of its own, watched from here; what went wrong."""
    box.mkdir(exist_ok=True)
    out, err = box / "out", box / "err"
    held = resident()
    pid = os.fork()
    if pid == 0:
        _child(out, err, run)
    beside(pid)
    status, used, hung = _watched(pid, most)
    said = err.read_bytes()[-100_000:].decode(errors="replace") if err.exists() else ""
    bad: dict[str, str] = {}
    argv = about.get("argv", "")
    if hung:
        bad["hangs"] = argv
    elif os.WIFSIGNALED(status):
        bad["tracebacks"] = f"signal {os.WTERMSIG(status)} {argv}"
    elif os.WEXITSTATUS(status) not in SOUND or OF_PYTHON.search(said):
        last = [line for line in said.splitlines() if line and "oracle" not in line[:9]]
        raised = [line for line in last if re.search("Error|Exception|Warning", line)]
        bad["tracebacks"] = f"exit {os.WEXITSTATUS(status)} {argv} {' | '.join(raised[-2:])}"
    # a word of the case that is shown again is no number
    if argv and not SAID.search(f"{argv} {about.get('name')}") and out.exists():
        answer = out.read_bytes()[:1_000_000].decode(errors="replace")
        if strange := NONE.search(answer):
            near = answer[max(0, strange.start() - 40) : strange.end() + 20]
            bad["nonsense"] = f"{near!r} {argv}"
    if used.ru_maxrss * 1024 - held > MEMORY:
        bad["memory"] = f"{(used.ru_maxrss * 1024 - held) >> 20} MiB {argv}"
    return bad


def _child(out: Path, err: Path, run: Callable[[], int]) -> None:
    """The other side of the fork: streams to files, the case, and an end without ceremony."""
    code = 70
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setpgid(0, 0)
        for number, (path, flags) in enumerate(
            (("/dev/null", os.O_RDONLY), (out, os.O_WRONLY | os.O_CREAT),
             (err, os.O_WRONLY | os.O_CREAT))):  # fmt: skip
            handle = os.open(path, flags, 0o600)
            os.dup2(handle, number)
            os.close(handle)
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        code = run()
    except BaseException:
        import traceback

        with suppress(Exception):
            os.write(2, traceback.format_exc().encode())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(code if isinstance(code, int) and 0 <= code < 256 else 71)


def _watched(pid: int, most: float) -> tuple[int, resource.struct_rusage, bool]:
    """(status, what it used, whether it had to be ended)."""
    begin, pause, hung = time.monotonic(), 0.001, False
    moved, before = begin, 0.0  # when the case last had the processor, and how much until then
    while True:
        done, status, used = os.wait4(pid, os.WNOHANG)
        if done:
            return status, used, hung or used.ru_utime + used.ru_stime > most
        now = time.monotonic()
        if now - begin > 1 and not hung:
            had = busy(pid)
            if had > before + 0.02:
                moved, before = now, had
            blocked = now - begin > WALL and now - moved > STILL
            if had > most or blocked or now - begin > MOST * (1 + (most > CPU)):
                hung = True
                with suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(0.05, 1.3 * pause)


def busy(group: int) -> float:
    """Seconds of processor time that a case and the processes it started have had."""
    found, tick = 0, os.sysconf("SC_CLK_TCK")
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                words = (each / "stat").read_text().rpartition(")")[2].split()
                if int(words[2]) == group:  # with those of children that have ended
                    found += sum(int(words[at]) for at in (11, 12, 13, 14))
    return found / tick


def resident() -> int:
    """Bytes of memory that this process holds."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def shown(rows: Iterable[dict[str, Any]], most: int = 60) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(rows):
        if number < most:
            yield row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="some hundreds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=lambda words: words.split(","), default=[],
                        help="families of cases: texts, files, words, …")  # fmt: skip
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = attack(asked.quick, asked.seed, asked.only)
    print(json.dumps(found, indent=1) if asked.json
          else text({**found, "rows": list(shown(found["rows"]))}))  # fmt: skip
    return int(any(found["figures"][f"attack.{kind}"]["value"] for kind in FAULTS))


if __name__ == "__main__":
    sys.exit(main())

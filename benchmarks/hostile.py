"""The cases of `benchmarks.attack`: texts that are mutated, and command lines with their worlds."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SPECS, DATA = ROOT / "specs", ROOT / "tests" / "data"
JOB = DATA / "jobs" / "gpt.sbatch"
BATCH = 100  # texts that one process reads
WORDS = (
    b"0 1 -1 nan inf 1e999 -0 1e308 010 1_000 \xc2\xb2 \xd9\xa3 9223372036854775808 { } [ ] < > ' "
    b'" '
    b", : = # & * ! | - ? % @ ` ~ null true {} [] [[[[ {{{{ !!python/object:os.system &a *a << \\ "
    b"\t \r \n \0 \xff \xe2\x80\xae \xed\xa0\x80 GiB Gb B/s s us % ../ /dev/zero $(id) ${HOME} ; "
    b"repeat "
    b"conv dense abci resnet50 data:2 pipeline:4,segments=2 name: - 99999999999999999999 x\rx"
).split(b" ")
LONG = "n" * 5000
SET = tuple(f"TP={word}" for word in (
    "", "$TP", "${TP}", "$((TP))", "$((1/0))", "$((2**99999))", "$((9999999999*9999999999))", "-1",
    "0", "8; touch PWNED", "$(touch PWNED)", "`touch PWNED`", "${TP:-$TP}", "(" * 900, "\0",
    "\n--bf16", "1e99", "$" * 900, "${" * 900, "'", '"', "8 --micro-batch-size 0", "[" * 9000,
))  # fmt: skip
ODD = (
    "", " ", "-", "--", "-1", "0", "²", "٣", "1e9", "nan", "inf", "1" * 30, "9" * 5000, LONG,
    "a\0b", "a\nb", "\r=cmd", "../../x", "/dev/zero", "/dev/full", "/proc/self/mem", ".", "/", "~",
    "$(id)", "`id`", "<b>", "%s", "{}", "\ud800", "\u202e", "=1+1", "1..", "..1", "1..99999999:1",
    ",", "1,,2", "data:2", "data:²", "data:1000000000", "data:2 " * 999, "serial serial", "abci",
    "resnet50",
)  # fmt: skip


def mutated(seed: bytes, dice: random.Random) -> bytes:
    """A text after one to five accidents."""
    data = bytearray(seed[: 2**16])
    for _ in range(dice.randrange(1, 6)):
        at = dice.randrange(len(data) + 1)
        end = at + dice.randrange(1, 64)
        kind = dice.randrange(8)
        if kind == 0:
            data[at:at] = dice.choice(WORDS)
        elif kind == 1:
            data[at:end] = dice.choice(WORDS)
        elif kind == 2:
            del data[at:end]
        elif kind == 3:
            data[at:at] = data[at:end] * dice.randrange(1, 40)
        elif kind == 4 and at < len(data):
            data[at] = dice.randrange(256)
        elif kind == 5:
            del data[at:]
        elif kind == 6:
            data[at:at] = dice.choice((b"[", b"{", b"[{", b"- ", b"a: ")) * dice.randrange(1, 3000)
        else:
            lines = data.split(b"\n")
            dice.shuffle(lines)
            data = bytearray(b"\n".join(lines))
    return bytes(data)


# ------------------------------------------------------------------ texts


@dataclass(frozen=True)
class Texts:
    """A batch of mutated texts of one reader."""

    name: str
    seeds: tuple[bytes, ...]
    read: Callable[[Path], Any]
    suffix: str
    seed: str

    def run(self) -> int:
        """Read them all; 70 where something else than a refusal comes out."""
        from oracle.spec.document import SpecError

        signal.signal(signal.SIGALRM, _too_long)
        dice = random.Random(self.seed)
        folder = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path.cwd()
        path, code = folder / f"attack-{os.getpid()}{self.suffix}", 0
        try:
            for _ in range(BATCH):
                path.write_bytes(mutated(dice.choice(self.seeds), dice))
                signal.alarm(20)
                try:
                    self.read(path)
                except SpecError as error:
                    str(error)
                except Exception:
                    code = 70
                    sys.stderr.write(f"{path.read_bytes()[:300]!r}\n{traceback.format_exc()}")
                signal.alarm(0)
        finally:
            path.unlink(missing_ok=True)
        return code


def _too_long(number: int, frame: Any) -> None:
    raise TimeoutError("a text took 20 s")


def seeds_of(*places: Path) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for place in places for path in sorted(place.glob("*"))
                 if path.is_file() and path.stat().st_size < 2**17)  # fmt: skip


def _estimated(path: Path) -> None:
    import oracle

    oracle.estimate(oracle.model(path), "abci", ["data:2", "pipeline:2,segments=4"], 8)


def _on_system(path: Path) -> None:
    import oracle

    system = oracle.system(path)
    oracle.estimate("lenet5", system, f"data:{min(4, system.devices)}", 8)


def _plans(path: Path) -> None:
    from oracle.plan.plan import parse
    from oracle.spec.files import read_text

    for line in read_text(path).splitlines():
        parse(line, 64.0)


def _settings(path: Path) -> None:
    from oracle.commands.settings import _read

    list(_read(path))


def _rows(path: Path) -> None:
    from oracle.show.plot.rows import SWEPT, columns, read_bars, read_rows

    columns(read_rows(str(path)), SWEPT, str(path))
    read_bars(str(path))


def _profiled(path: Path) -> None:
    import oracle

    oracle.estimate("lenet5", "abci", "data:2", 8, profile=path)


def _job(path: Path) -> None:
    from oracle.readers import frameworks, jobs
    from oracle.readers.frameworks.training import Given

    frameworks.training(jobs.read([str(path)], {"TP": "2"}), Given("gpt2", 8, None))


def readers() -> dict[str, tuple[Callable[[Path], Any], tuple[bytes, ...], str]]:
    """Name -> (function of a path, sound texts, ending) of every reader of texts."""
    import oracle
    from oracle.calibration import structure
    from oracle.executor.measured import read as measurement
    from oracle.readers import kernels, logs
    from oracle.readers.importers import huggingface
    from oracle.spec import catalogue
    from oracle.spec.files import read_text

    def logged(path: Path) -> None:
        reading = logs.read(path)
        if reading.levels:
            structure.learned([reading], catalogue.system("abci"))

    plans = b"data:4\npipeline:2,segments=4,schedule=1f1b data:2,zero=1 tensor:2,sequence=on\n" \
            b"spatial:2x2\nrecompute:full\nserial\nfilter:2 channel:2,x=1\n"  # fmt: skip
    toml = b'precision = "bf16"\nmax-memory = "70 GiB"\ntop = 3\n[report]\ntop = 40\n'
    table = b"device,family,precision,part,shape,seconds\na,gemm,bf16,,m=2 n=3 k=4,1e-5\n" * 2
    header = b"point,model,system,what_if,way,devices,batch,status,plan,seconds,seconds_low," \
             b"seconds_high,samples_per_second,forward,backward,recompute,update,bubble,exposed," \
             b"memory,capacity\n0,a,b,,best,2,8,ok,data:2,1,1,1,8,1,1,0,0,0,0,1,2\n"  # fmt: skip
    profile = b'{"oracle-profile": 1, "precision": "fp32"}\n{"optimizer": "momentum", ' \
              b'"weights": 100, "seconds": 0.1}\n'  # fmt: skip
    run = json.dumps({"schema": 1, "measured": True, "plans": [{
        "plan": "data:2", "seconds": {"iteration": 1.0}, "compute": {"forward": 0.5},
        "exchange": [{"what": "g", "op": "allreduce", "group": 2, "calls": 1, "bytes": 8.0,
                      "seconds": 0.1}], "memory": {"total": 1.0},
        "measured": {"model": "lenet5", "batch": 8, "devices": 2, "each": [1.0], "ranks": [],
                     "options": {}, "environment": {}, "stages": [[0, 1]], "complete": True},
    }]}).encode()  # fmt: skip
    config = json.dumps({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
                         "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100,
                         "max_position_embeddings": 64,
                         "num_key_value_heads": 2}).encode()  # fmt: skip
    logged_ = seeds_of(DATA / "logs", DATA / "topology") or (b"# nccl-tests\n",)
    return {
        "model": (_estimated, seeds_of(SPECS / "models"), ".yaml"),
        "system": (_on_system, seeds_of(SPECS / "systems"), ".yaml"),
        "device": (oracle.device, seeds_of(SPECS / "devices"), ".yaml"),
        "data set": (oracle.dataset, seeds_of(SPECS / "datasets"), ".yaml"),
        "plan": (_plans, (plans,), ".txt"), "settings": (_settings, (toml,), ".toml"),
        "log": (logged, logged_, ".log"), "kernels": (kernels.read, (table,), ".csv"),
        "rows": (_rows, (header, b'{"rows": [{"point": 0, "devices": 2}]}'), ".csv"),
        "profile": (_profiled, (profile,), ".jsonl"), "measurement": (measurement, (run,), ".json"),
        "config": (huggingface.read, (config,), ".json"),
        "software": (catalogue.software, seeds_of(SPECS / "software"), ".yaml"),
        **{f"job {end}": (_job, seeds_of(*[DATA / "jobs"]), f".{end}")
           for end in ("sh", "sbatch", "json", "toml", "log")},
        "text": (read_text, (plans, toml, run), ".txt"),
    }  # fmt: skip


def texts(seed: int, quick: bool) -> Iterator[Texts]:
    """Batches of every reader."""
    for name, (read, seeds, suffix) in readers().items():
        for number in range(1 if quick else 6):
            yield Texts(name, seeds, read, suffix, f"{seed} {name} {number}")


# ---------------------------------------------------------- command lines


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
    "kernels": ["calibrate", "compute", "FILE", "--onto", "v100-sxm2-16gb"],
    "rows": ["plot", "scaling", "--rows", "FILE", "-o", "figure.svg"],
    "measured": ["plot", "measured", "FILE", "-o", "figure.svg"],
    "bars": ["plot", "breakdown", "--rows", "FILE", "--measured", "FILE", "-o", "figure.svg"],
    "config": ["import", "huggingface", "FILE"], "onnx": ["import", "onnx", "FILE"],
    "sweep": ["sweep", "FILE", "abci", "--devices", "2", "--batch", "8", "--jobs", "1"],
    "export": ["export", "slurm", "FILE", "abci", "--plan", "data:2", "--batch", "8"],
    "job": ["export", "job", "FILE", "dgx-h100", "--plan", "data:8", "--batch", "8", "-o", "job"],
    "software": ["estimate", *ONE, "--software", "FILE"],
    "told": ["export", "job", "gpt2", "dgx-h100", "--plan", "data:8", "--batch", "8",
             "--software", "FILE", "-o", "job"],
    "script": ["import", "job", "FILE.sh", "--system", "dgx-a100", "--devices", "8"],
    "batch": ["import", "job", "FILE.sbatch", "--set", "TP=2", "-o", "launch"],
    "sheet": ["import", "job", "FILE.json", "--model", "gpt2", "--devices", "8"],
    "toml": ["import", "job", "FILE.toml"], "log": ["import", "job", "FILE.log"],
    "report": ["report", "FILE", "abci", "--devices", "2", "--batch", "8", "-o", "r.html"],
}  # fmt: skip
VERBS: dict[str, list[str]] = {
    "recommend": ["recommend", *SOME], "estimate": ["estimate", *ONE],
    "explain": ["explain", *ONE], "sweep": ["sweep", *SOME, "--jobs", "1"],
    "report": ["report", *SOME, "-o", "r.html"], "specs": ["specs", "list"],
    "plot": ["plot", "parts", *SOME, "-o", "p.svg"], "export": ["export", "torchrun", *ONE],
    "job": ["export", "job", "gpt2", "dgx-h100", "--plan", "data:8", "--batch", "8", "-o", "job"],
    "from": ["import", "job", str(JOB), "--set", "TP=8", "--system", "dgx-a100", "-o", "launch"],
    "config": ["config", "show"], "schema": ["schema", "models"],
    "completion": ["completion", "bash"], "import": ["import", "huggingface", "none.json"],
    "calibrate": ["calibrate", "none.log", "--onto", "abci"],
    "compare": ["compare", "none.json", "lenet5", "abci"],
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
                end = next((word for word in line if word.startswith("FILE.")), "FILE.yaml")
                path = target / end.replace("FILE", "given")
                make(path)
                return [str(path) if word.startswith("FILE") else word for word in line]

            yield Case("files", f"{reader} {kind}", arrange)


def _odd_words(dice: random.Random) -> Iterator[Case]:
    """Every option of every verb with every odd word, one at a time."""
    from oracle.commands.parser import parser_of, parsers

    for verb, line in VERBS.items():
        if verb in ("run", "measure"):
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
            for word in (*ODD, *SET) if flag == "--set" else ODD:
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


def _full_and_shut() -> Iterator[Case]:
    """A disk without room, a folder that is not writable, a place that is no file."""
    writing = {"report": "-o", "plot": "-o", "export": "-o", "recommend": "-o", "estimate": "-o",
               "sweep": "--out", "completion": "-o", "schema": "-o", "job": "-o",
               "from": "-o"}  # fmt: skip
    for verb, flag in writing.items():
        line = VERBS[verb]
        line = line[: line.index("-o")] if "-o" in line else line
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
        "software": ["export", "job", "gpt2", "dgx-h100", "--plan", "data:8", "--batch", "8",
                     "--software", "s.yaml", "-o", "job"],
        "job": ["import", "job", "j.sbatch", "--system", "dgx-a100", "-o", "job"],
    }  # fmt: skip
    script, told = JOB.read_text(), (SPECS / "software" / "nemo.yaml").read_text()
    for word in nasty:
        for kind, line in lines.items():

            def arrange(target: Path, word: str = word, line: list[str] = line) -> list[str]:
                spec = {"name": word, "title": word, "source": word, "input": [3, 8, 8],
                        "layers": ["flatten", {"dense": 10}]}  # fmt: skip
                (target / "m.yaml").write_text(json.dumps(spec))
                (target / "s.yaml").write_text(
                    f"name: {json.dumps(word)}\n{told[told.index(chr(10)) + 1 :]}"
                )
                (target / "j.sbatch").write_text(
                    script.replace("job-name=gpt", f"job-name={word}")
                    .replace('"bf16"', json.dumps(word), 1).replace("pretrain_gpt.py", word)
                )  # fmt: skip
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
    for family in (_strange_files(), _odd_words(dice), _closed_streams(), _environments(),
                   _settings_files(), _sweep_folders(), _full_and_shut(), _names(),
                   _two_writers()):  # fmt: skip
        found = list(family)
        yield from dice.sample(found, min(len(found), 12)) if quick else found

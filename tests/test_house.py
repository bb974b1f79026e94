"""The rules of the house, checked: floors, printing, imports, names, sources, lengths."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import settings

import oracle
from oracle.plan.strategies import Strategy, strategies

ROOT = Path(__file__).parents[1]
FLOORS = [
    {"spec"},
    {"models"},
    {"kernels"},
    {"network", "storage"},
    {"plan"},
    {"readers", "executor"},
    {"predict"},
    {"run"},
    {"calibration"},
    {"writers"},
    {"ask"},
    {"show"},
    {"api"},
    {"__init__"},
    {"commands"},
    {"__main__"},
]
FLOOR = {room: level for level, floor in enumerate(FLOORS) for room in floor}
TOP = {"__init__.py", "__main__.py", "py.typed", "citations.bib"}  # beside the rooms
HEAVY = {"scipy", "pandas", "networkx", "matplotlib", "torch", "onnx", "dask", "pyarrow"}
TRACED = ("readers/importers/torch", "readers/torch_")  # models of torch, read by running them
# a module beyond 400 lines says why; this list may only grow shorter
LONG: dict[str, int] = {}


@dataclass(frozen=True)
class File:
    name: str
    text: str
    tree: ast.Module

    @property
    def module(self) -> str:
        """As it is imported, `oracle.spec.units`."""
        parts = ["oracle", *self.name.removesuffix(".py").split("/")]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def room(self) -> str:
        return self.name.split("/")[0].removesuffix(".py")


FILES = [
    File(str(path.relative_to(ROOT / "oracle")), text := path.read_text(encoding="utf-8"),
         ast.parse(text))
    for path in sorted((ROOT / "oracle").rglob("*.py"))
]  # fmt: skip


def imported(tree: ast.AST, typing: bool = False) -> Iterator[tuple[str, list[str]]]:
    """(module, names) of every import that runs; with `typing` those for type checkers too."""
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not typing:
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", [alias.name for alias in node.names]


def of_the_house(file: File) -> Iterator[str]:
    """Rooms that a file imports from."""
    for module, names in imported(file.tree):
        first, *rest = module.split(".")
        if first == "oracle":
            yield from rest[:1] or names


def calls(file: File) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield ast.unparse(node.func), node


def test_imports_only_go_down() -> None:
    assert {file.room for file in FILES} == set(FLOOR), "a new room gets a floor in this file"
    upward = [
        f"{file.name} imports {name}"
        for file in FILES
        for name in of_the_house(file)
        if name != file.room and FLOOR[name] >= FLOOR[file.room]
    ]
    assert not upward


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports that run and those for type checkers alone, inside a function or not."""
    known = {file.module for file in FILES}
    graph = nx.DiGraph()
    for file in FILES:
        for module, names in imported(file.tree, typing=True):
            targets = {f"{module}.{name}" for name in names} & known or {module} & known
            graph.add_edges_from((file.module, target) for target in targets - {file.module})
    assert not [sorted(circle) for circle in nx.strongly_connected_components(graph)
                if len(circle) > 1]  # fmt: skip


def test_the_top_has_rooms_and_little_else() -> None:
    listed = {path.name for path in (ROOT / "oracle").iterdir() if path.is_file()}
    assert listed == TOP


@pytest.mark.parametrize("room", sorted({f.room for f in FILES if "/" in f.name}))
def test_a_room_says_what_it_is_for_and_lists_its_files(room: str) -> None:
    folder = ROOT / "oracle" / room
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert said.splitlines()[0].endswith("."), "its first line is a sentence"
    words = set(re.findall(r"[\w/]+", said))
    files = {p.stem for p in folder.glob("*.py")} - {"__init__"}
    folders = {f"{p.name}/" for p in folder.iterdir() if (p / "__init__.py").is_file()}
    assert not (files | folders) - words, "its docstring lists every file"


def test_the_executor_does_not_know_the_answer() -> None:
    """It runs the splits and the messages of `plan`, whatever anybody predicts of them."""
    found = [(f.name, n) for f in FILES if f.room == "executor" for n in of_the_house(f)
             if n in ("predict", "ask", "show", "api")]  # fmt: skip
    assert not found


def test_only_the_command_line_prints() -> None:
    found = [(f.name, c.lineno) for f in FILES if f.name != "commands/cli.py" for n, c in calls(f)
             if n == "print"]  # fmt: skip
    assert not found


# files that take in a file, or a text of it: all others ask them
DOOR = {"spec/files.py": "the door", "spec/strict_json.py": "JSON of a text"}
# and files that write one, or talk over a pipe of their own
WRITE = {
    "commands/cli.py": "closed streams", "writers/export.py": "launch files, all or none",
    "ask/sweep/ledger.py": "rows as they come", "ask/sweep/crew.py": "a worker's pipes",
    "executor/checkpointing/folder.py": "the state of a training",
    "executor/ranks/records.py": "samples as they come",
    "executor/ranks/launch.py": "logs of ranks",
    "executor/ranks/forked_ranks.py": "logs of ranks",
    "executor/measure/disk.py": "a file made to be read back",
    "executor/loading/files.py": "samples, which are what is measured",
    "executor/loading/throttle.py": "a mapped file",
    "kernels/whole_numbers.py": "what a solver prints, to nowhere",
    "executor/ranks/rank.py": "progress", "executor/ranks/heartbeat.py": "a mapped file",
}  # fmt: skip
READS = {
    "json.load", "json.loads", "tomllib.load", "tomllib.loads", "yaml.safe_load_all", "onnx.load",
    "torch.load", "np.load", "np.fromfile", "np.loadtxt", "np.genfromtxt", "np.memmap", "sys.stdin",
}  # fmt: skip


def test_every_file_comes_in_by_one_door() -> None:
    """`oracle.spec.files` alone opens files to read, and parses what they hold."""
    found = []
    for file in FILES:
        if file.name in DOOR:
            continue
        for name, call in calls(file):
            last = name.rpartition(".")[2]
            if last in ("open", "fdopen"):
                # a call that opens to write says so
                write = file.name in WRITE and any(
                    word in ast.unparse(call)
                    for word in ("'w'", "'a'", "'ab'", "'r+b'", "os.O_", "flags")
                )
                found += [] if write else [(file.name, call.lineno, name)]
            elif name != last and last in ("read_bytes", "read_text"):
                found.append((file.name, call.lineno, name))
        pipes = file.name == "ask/sweep/crew.py"
        found += [(file.name, node.lineno, name) for node in ast.walk(file.tree)
                  if isinstance(node, ast.Attribute) and (name := ast.unparse(node)) in READS
                  and not (pipes and name == "sys.stdin")]  # fmt: skip
    assert not found


def test_torch_stays_in_its_rooms() -> None:
    found = [
        file.name for file in FILES
        if file.room != "executor" and not file.name.startswith(TRACED)
        and "torch" in {module.split(".")[0] for module, _ in imported(file.tree)}
    ]  # fmt: skip
    assert not found


def at_once(path: Path) -> Iterator[str]:
    """Modules that a file loads when it is imported; a test module may ask for torch first."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if "importorskip('torch')" in ast.unparse(node) and isinstance(node, ast.Expr):
            return
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Try):
            for module, names in imported(node):
                yield from (module, *(f"{module}.{name}" for name in names))


@pytest.mark.slow
def test_tests_are_collected_without_torch() -> None:
    places = {path.stem: path for path in (ROOT / "tests").glob("*.py")}
    for room in ("oracle", "benchmarks"):
        for path in (ROOT / room).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            places[name.removesuffix(".__init__")] = path
    loads = nx.DiGraph(
        (name, module) for name, path in places.items() for module in at_once(path)
    )  # fmt: skip
    needing = nx.ancestors(loads, "torch")
    assert {"benchmarks.recovery_loop", "checkpoint_tasks"} <= set(loads)
    assert "checkpoint_tasks" in needing
    assert not [name for name in needing if name.startswith("test_")]


def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    found = [
        (file.name, module)
        for file in FILES
        if file.room != "executor" and not file.name.startswith((*TRACED, "readers/importers/onnx"))
        for node in file.tree.body
        if not isinstance(node, ast.FunctionDef | ast.ClassDef)
        for module, _ in imported(node)
        if module.split(".")[0] in HEAVY
    ]
    assert not found


def test_no_untrusted_text_is_run() -> None:
    """No pickle, eval, exec, shell, or loader that builds objects from a file."""
    for file in FILES:
        modules = {module.split(".")[0] for module, _ in imported(file.tree)}
        assert not modules & {"pickle", "marshal", "shelve", "dill"}, file.name
        for name, call in calls(file):
            where, words = (file.name, call.lineno), {k.arg: k.value for k in call.keywords}
            assert name not in {"eval", "exec", "os.system", "os.popen"}, where
            assert name not in {"yaml.load", "yaml.unsafe_load", "yaml.full_load"}, where
            assert "shell" not in words or ast.unparse(words["shell"]) == "False", where
            if name == "torch.load":
                assert ast.unparse(words["weights_only"]) == "True", where


def test_no_drawer_for_odds_and_ends() -> None:
    drawers = {"utils", "util", "helpers", "core", "common", "manager", "managers", "misc"}
    assert not [f.name for f in FILES if drawers & set(f.name.removesuffix(".py").split("/"))]


def test_names_say_what_is_done() -> None:
    found = [
        (file.name, node.name)
        for file in FILES
        for node in ast.walk(file.tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and re.match(r"_?(get|compute|handle|do)_", node.name)
    ]
    assert not found


# words that say nothing of what they stand for, and rooms that were cleared of them
EMPTY = set(re.findall(r"\w+", """
    found one each said told made given whole own mine other others again at of some few many
    most least known seen such what where taken got here there both apart beside along asked
    shown wanted let put kept held
"""))  # fmt: skip
CLEARED = ("predict/", "plan/", "executor/", "calibration/", "network/", "commands/", "api/",
           "writers/", "readers/", "run/", "storage/", "models/", "ask/search.py", "ask/space.py",
           "ask/candidates.py", "ask/climb.py")  # fmt: skip


def bound(tree: ast.Module) -> Iterator[str]:
    """Every name that a module binds, as often as it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


@pytest.mark.parametrize("room", CLEARED)
def test_names_say_what_they_stand_for(room: str) -> None:
    names = [name for file in FILES if file.name.startswith(room) for name in bound(file.tree)]
    assert names
    empty = [name for name in names if name.strip("_") in EMPTY]
    assert len(empty) < 0.02 * len(names), sorted(set(empty))


def test_modules_say_what_they_are_and_end() -> None:
    silent = [f.name for f in FILES if not ast.get_docstring(f.tree) and f.name != "__main__.py"]
    assert not silent, "a module begins by saying what it is"
    long = [
        (file.name, count)
        for file in FILES
        if (count := file.text.count("\n")) > LONG.get(file.name, 400)
    ]
    assert not long
    wide = [
        (file.name, number)
        for file in FILES
        for number, line in enumerate(file.text.splitlines(), 1)
        if len(line) > 120  # the linter holds them to 100, where nothing else is said
    ]
    assert not wide


def test_no_text_names_a_folder_of_the_machine_that_it_was_written_on() -> None:
    texts = {f.name: f.text for f in FILES} | {
        str(path): path.read_text(encoding="utf-8") for path in (ROOT / "specs").rglob("*.yaml")
    }
    places = [f"{place}/" for place in (ROOT, Path.home(), tempfile.gettempdir())]
    assert not [name for name, text in texts.items() if any(each in text for each in places)]


@pytest.mark.parametrize("new", strategies().values(), ids=lambda new: new.name)
def test_every_strategy_cites_its_source(new: type[Strategy]) -> None:
    known = keys()
    for part in new.source.split(";"):
        word = part.split(",")[0].strip()
        if not word.startswith("eq"):  # more places in the same work
            assert word in known, f"`{word}` is not in citations.bib"
    assert new.source.split(",")[0] in known
    text = new.__doc__ or ""
    assert "=" in text, "the docstring has the equation"
    assert text.splitlines()[0].endswith("."), "its first line is a sentence"
    assert new.bound or not new.degrees
    assert new.limited_by


def test_every_algorithm_cites_its_source() -> None:
    from oracle.network.collectives import ALGORITHMS

    known = keys()
    cited = [new.source.split(",")[0] for each in ALGORITHMS.values() for new in each.values()]
    assert cited
    assert not set(cited) - known


def keys() -> set[str]:
    text = (ROOT / "oracle" / "citations.bib").read_text(encoding="utf-8")
    found = re.findall(r"^@\w+\{([^,\s]+),", text, re.MULTILINE)
    assert len(found) == len(set(found)), "a key stands twice"
    return set(found)


def test_public_names_are_pinned() -> None:
    assert sorted(oracle.__all__) == [
        "Dataset", "Device", "Estimate", "Model", "Ranking", "SpecError", "System",
        "calibrate", "choose", "compare", "dataset", "design_network", "device", "estimate",
        "explain", "export", "model", "plot", "recommend", "sweep", "system", "workflow",
    ]  # fmt: skip
    for name in oracle.__all__:
        assert getattr(oracle, name) is not None
    assert set(oracle.__all__) <= set(dir(oracle))
    with pytest.raises(AttributeError, match="no attribute 'recomend'"):
        _ = oracle.recomend


def loaded(code: str) -> set[str]:
    """Modules that a fresh interpreter has loaded after `code`."""
    code += "\nimport sys, json; sys.stderr.write(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return set(json.loads(done.stderr))


def test_importing_is_cheap() -> None:
    modules = loaded("import oracle")
    assert len(modules) < 150
    assert not {m.split(".")[0] for m in modules} & (HEAVY | {"numpy", "yaml"})


@pytest.mark.parametrize("line", [
    ["--help"],
    ["recommend", "lenet5", "abci", "--devices", "8", "--batch", "512"],
    ["recommend", "gpt2", "dgx-a100", "--devices", "16", "--batch", "64", "--json"],
    ["estimate", "resnet50", "abci", "--plan", "data:8", "--batch", "256"],
    ["specs", "list"],
], ids=lambda line: " ".join(line[:2]))  # fmt: skip
def test_a_prediction_loads_nothing_heavy(line: list[str]) -> None:
    code = (
        "import contextlib, io\nfrom oracle.commands.cli import main\n"
        f"with contextlib.redirect_stdout(io.StringIO()):\n    assert main({line!r}) == 0"
    )
    modules = {m.split(".")[0] for m in loaded(code)}
    assert not modules & HEAVY
    if line == ["--help"]:
        assert "numpy" not in modules


MEETS = ("executor/", "writers/")  # which run each strategy, or say it in a format's words


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_says_which_strategies_it_names_and_why(file: File) -> None:
    """Only where two meet by nature: elsewhere a strategy says itself what others want to know."""
    if file.name.startswith(("plan/strategies/", *MEETS)):
        return
    asked = {
        ast.literal_eval(call.args[0])
        for name, call in calls(file)
        if name.endswith(".axis") and call.args and isinstance(call.args[0], ast.Constant)
    }
    classes = {
        module.rpartition(".")[2]
        for module, _ in imported(file.tree)
        if module.startswith("oracle.plan.strategies.") and not module.endswith(".base")
    }
    said = ast.get_docstring(file.tree) or ""
    named = (asked & set(strategies())) | classes
    assert not {name for name in named if f"`{name}`" not in said}


def test_every_run_draws_the_same_examples(request: pytest.FixtureRequest) -> None:
    """Unless a search at random is asked for, whose last line says how to repeat it."""
    assert settings().derandomize == (not request.config.option.soak)
    if request.config.option.soak:
        assert int(request.config.option.hypothesis_seed) >= 0


# tests that read a clock, for ratios of two readings in one run or for the least that a wait takes
CLOCKS = {"growth", "launch_tasks", "test_fuzz_specs", "test_growth", "test_loading", "test_rows"}


def test_no_other_test_reads_a_clock() -> None:
    """A slow machine passes what a fast one does: seconds belong to `benchmarks`."""
    reading = {
        path.stem
        for path in (ROOT / "tests").glob("*.py")
        if re.search(r"\b(process_time|perf_counter|thread_time)\b", path.read_text())
    }
    assert reading - {"test_house"} == CLOCKS

"""Every key of a spec counts or is refused; what looks wrong, or is done otherwise, is said."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from conftest import SYSTEM
from grids import rest_slow
from test_spec_mistakes import TOY

import oracle
from oracle.ask.explain.factors import anatomy
from oracle.commands.cli import main
from oracle.network import contention
from oracle.network.collectives import ALGORITHMS
from oracle.network.topology import KINDS
from oracle.predict.defaults import options_for
from oracle.predict.estimate import estimate
from oracle.run.costs import costs
from oracle.run.failures import goodput_of
from oracle.run.target import given, training
from oracle.spec import catalogue, level, storage, system
from oracle.spec.plausible import warnings

# keys that a later feature brings to life, and its subject
LATER = {
    "Calibrated.uncertainty.base": "calibration", "Calibrated.uncertainty.latency": "calibration",
}  # fmt: skip
MODEL = oracle.model("gpt2")  # what failures interrupt
TRIED = 12  # numbers that are turned before a key is called dead
BEFORE: dict[tuple[str, bool, int], str] = {}  # answers of shipped systems, by their number


def turned(spec: Any) -> Iterator[tuple[str, Any]]:
    """(`Level.bandwidth`, the spec with that number halved, then doubled) for each number of it.

    Half of some means nothing: one group at a time, or fewer links up than devices below.
    """
    for each in fields(spec):
        value = getattr(spec, each.name)
        key = f"{type(spec).__name__}.{each.name}"
        if each.name == "calibrated_on" or isinstance(value, str | bool) or value is None:
            continue
        for inner, other in turned_value(key, value):
            yield inner, replace(spec, **{each.name: other})


def turned_value(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(value):
        yield from turned(value)
    elif isinstance(value, dict):
        for name, number in value.items():
            for inner, other in turned_value(f"{key}.{name}", number):
                yield inner, {**value, name: other}
    elif isinstance(value, tuple):
        for i, one in enumerate(value):
            for inner, other in turned_value(key, one):
                yield inner, (*value[:i], other, *value[i + 1 :])
    elif isinstance(value, int | float):
        for factor in (0.5, 2):
            if (other := max(type(value)(value * factor), isinstance(value, int))) != value:
                yield key, other


def asked(where: Any) -> Iterator[tuple[str, str, int, str]]:
    """Model, plans, batch and precision, the most telling questions first."""
    n = min(64, where.devices)
    inner = min(where.levels[0].devices, 8, n)
    for model, plans, precision in (
        ("gpt2", f"tensor:{inner} data:{max(1, n // inner)}", "bf16"),
        ("resnet50", f"data:{n}", "fp32"),
        ("gpt2", f"sharded:{n}", "fp16"), ("gpt2", f"context:{n},kind=alltoall", "tf32"),
        ("gpt2", f"pipeline:{min(n, 4)},segments=4 data:{max(1, n // 4)}", "fp32"),
        ("gpt2", "serial", "fp8"), ("gpt2", "serial", "mxfp8"),
        ("gpt2", "serial", "nvfp4"), ("deepcam", f"data:{n}", "fp16"), ("vgg16", "serial", "fp32"),
        ("resnet50", "data:2", "fp32"), ("gpt2", "data:4 tensor:2", "bf16"),
        ("gpt2", f"data:{n} offload:optimizer,update=device", "bf16"),
        ("gpt2", f"data:{n} offload:optimizer", "bf16"),
        ("resnet50", f"filter:{inner}", "fp32"), ("resnet50", f"spatial:{inner}", "fp32"),
        ("resnet50", f"data:{where.devices}", "fp32"),
    ):  # fmt: skip
        yield model, plans, 4 * where.devices, precision


def bill(where: Any) -> str:
    """What an hour costs, worked half as hard as can be."""
    return repr(costs(where, min(64, where.devices), 3600.0, 0.5))


def answers(where: Any) -> Iterator[Callable[[Any], str]]:
    yield bill
    for model, plan, batch, precision in asked(where):
        what = oracle.model(model)

        def answer(there: Any, what: Any = what, plan: str = plan, batch: int = batch,
                   precision: str = precision) -> str:  # fmt: skip
            options = options_for(what, there, precision)
            return json.dumps(estimate(what, there, plan, batch, options).to_dict()["plans"])

        yield answer
    yield offers
    yield failing


def readings(where: Any) -> Iterator[Callable[[Any], str]]:
    """How small samples are read and large ones, by few devices and by all; and writing."""
    for name, count in (("resnet50", min(2 * where.node, where.devices)),
                        ("deepcam", where.devices), ("llama2-7b", where.devices)):  # fmt: skip
        model = oracle.model(name)
        yield lambda there, model=model, count=count: json.dumps(
            explain_reading(model, there, count)
        )


def explain_reading(model: Any, where: Any, devices: int) -> Any:
    options = options_for(model, where, reading="best")
    found = anatomy(model, where, f"data:{devices}", 64 * devices, options)
    told = found.shown.plan_dict(0)
    return told["reading"], told["seconds"], [note.words for note in found.notes]


def failing(where: Any) -> str:
    """What failures make of the hours of a training."""
    shown = estimate(MODEL, where, f"data:{min(64, where.devices)}", 256,
                     options_for(MODEL, where))  # fmt: skip
    found = goodput_of(shown)
    return json.dumps([found.to_dict(), found.spread(1e6)])


def whole_training(model: Any, where: Any) -> Any:
    """What ten epochs take, evaluated on the way."""
    shown = estimate(model, where, "data:16", 64, options_for(model, where))
    return training(shown, 0, given(shown, epochs=10.0)).to_dict()


def offers(where: Any) -> str:
    """What the network offers for every operation, among ever more devices."""
    sizes = [2**k for k in range(1, 11) if 2**k <= where.devices]
    return repr([
        contention.lines(where, op, ((p, 1),), p)
        for op in ALGORITHMS
        for p in {*sizes, *(level.devices for level in where.levels if level.devices <= 64)}
    ])  # fmt: skip


def moves(where: Any, other: Any, first: bool = False) -> bool:
    """Whether any answer of a system is another on the other; `first` what reading takes."""
    for number, answer in enumerate((*(readings(where) if first else ()), *answers(where))):
        try:
            if (where.name, first, number) not in BEFORE:
                BEFORE[where.name, first, number] = answer(where)
            if BEFORE[where.name, first, number] != answer(other):
                return True
        except (ValueError, oracle.SpecError):  # half a torus, say: refused, so not ignored
            return True
    return False


def held(kind: str) -> dict[str, list[tuple[Any, Any]]]:
    """Key -> pairs of systems, as it is and with the number turned, at most some."""
    found: dict[str, list[tuple[Any, Any]]] = {}
    for name in catalogue.shipped("systems"):
        where = catalogue.system(name)
        for key, other in turned(where):
            if kind in key and key not in LATER and len(found.setdefault(key, [])) < TRIED:
                found[key].append((where, other))
    return found


@pytest.mark.parametrize("kind", [
    "Device.", "Power.",
    *(pytest.param(kind, marks=pytest.mark.slow)
      for kind in ("System.", "Disk.", "Level.", "SharedFiles.", "Host.", "Curve.", "Calibrated.")),
])  # fmt: skip
def test_every_number_of_a_system_moves_an_answer(kind: str) -> None:
    found = held(kind)
    assert found or kind in ("System.", "Host.")
    stores = kind in ("SharedFiles.", "Disk.", "Host.")
    dead = {key for key, pairs in found.items() if not any(moves(*pair, stores) for pair in pairs)}
    assert not dead, "a number that changes nothing: use it, or refuse the key"


@pytest.mark.slow
def test_every_number_of_a_data_set_moves_an_answer() -> None:
    moved: dict[str, bool] = {}
    where = oracle.system("dgx-a100")  # that says how fast its storage is

    def answer(model: str, data: Any) -> str:
        what = oracle.model(model, data)
        return json.dumps([explain_reading(what, where, 16), whole_training(what, where)])

    for name in catalogue.shipped("datasets"):
        data = catalogue.dataset(name)
        model = next((m for m in ("resnet50", "gpt2", "cosmoflow-256", "deepcam", "mnist-cnn")
                      if _reads(m, data)), None)  # fmt: skip
        before = model and answer(model, data)
        for key, other in turned(data):
            if model is None or key == "Dataset.sample":  # a shape, which a model must have
                continue
            moved[key] = moved.get(key, False) or answer(model, other) != before
    assert {key for key, some in moved.items() if not some} <= set(LATER)


def _reads(model: str, data: Any) -> bool:
    given = oracle.model(model).rows[0].given
    return data.sample[:1] == (given.channels,) and len(data.sample) == 1 + len(given.extents)


def test_what_waits_is_a_key() -> None:
    """And leaves the list when a feature reads it."""
    known = {"SharedFiles": storage.SharedFiles, "Disk": storage.Disk, "Host": storage.Host,
             "Dataset": oracle.Dataset, "Device": oracle.Device,
             "Calibrated": system.Calibrated}  # fmt: skip
    for key in LATER:
        kind, name, *_ = key.split(".")
        assert name in {each.name for each in fields(known[kind])}


# --- refused ---------------------------------------------------------------------------------


def test_kinds_are_those_of_the_network() -> None:
    assert set(level.KINDS) == set(KINDS)


def made(**level: Any) -> Any:
    tree = copy.deepcopy(SYSTEM)
    tree["levels"][-1] |= level
    return oracle.system(tree)


@pytest.mark.parametrize(("level", "said"), [
    ({"kind": "banana"}, "no level is of a kind called `banana`"),
    ({"kind": "fattree"}, "did you mean `fat-tree`"),
    ({"routing": "telepathy"}, "no routing called `telepathy`"),
    ({"routing": "adaptiv"}, "did you mean `adaptive`"),
    ({"routing": "valiant"}, "no routing called `valiant`"),
    ({"kind": "torus", "shape": [3, 5]}, "3 x 5 does not hold the"),
    ({"shape": [4, 4]}, "a switch has no shape"),
    ({"ports": 2, "oversubscription": 2}, "say one of the two"),
    ({"interference": [2.0, 1.5]}, "the second no smaller"),
    ({"interference": [0.5, 1.5]}, "out of range"),
    ({"interference_pairs": [2.0, 1.5]}, "the second no smaller"),
    ({"reduces": "shrap"}, "did you mean `sharp`"),
    ({"reduces": "nvls"}, "is of network, where switches reduce otherwise"),
    ({"reduces": "sharp", "kind": "ring"}, "a ring has no switches that could"),
])  # fmt: skip
def test_what_nobody_knows_is_refused(level: dict[str, Any], said: str) -> None:
    with pytest.raises(oracle.SpecError) as caught:
        made(**level)
    assert said in str(caught.value)


WIDE = {
    "estimate": ["estimate", "lenet5", "ethernet-pair", "--plan", "WIDE", "--batch", "64"],
    "two plans": ["estimate", "lenet5", "ethernet-pair", "--plan", "data:2", "--plan", "WIDE",
                  "--batch", "64"],
    "explain": ["explain", "--plan", "WIDE", "lenet5", "ethernet-pair", "--batch", "64"],
    "recommend": ["recommend", "lenet5", "ethernet-pair", "--devices", "N", "--batch", "64"],
    "report": ["report", "lenet5", "ethernet-pair", "--devices", "N", "--batch", "64",
               "-o", "r.html"],
    "export": ["export", "torchrun", "lenet5", "ethernet-pair", "--plan", "WIDE", "--batch", "64"],
    "export job": ["export", "job", "gpt2", "ethernet-pair", "--plan", "WIDE", "--batch", "64",
                   "--software", "pytorch-ddp"],
    "timeline": ["plot", "timeline", "lenet5", "ethernet-pair", "--plan", "WIDE", "--batch", "64",
                 "-o", "f.svg"],
    "parts": ["plot", "parts", "lenet5", "ethernet-pair", "--plan", "WIDE", "--batch", "64",
              "-o", "f.svg"],
    "contention": ["plot", "contention", "ethernet-pair", "--plan", "WIDE", "--axes", "data",
                   "-o", "f.svg"],
    "scaling": ["plot", "scaling", "lenet5", "ethernet-pair", "--devices", "N", "--batch", "64",
                "-o", "f.svg", "--jobs", "1"],
}  # fmt: skip


@pytest.mark.parametrize("verb", rest_slow(list(WIDE), [verb for verb in WIDE if verb != "report"]))
def test_more_devices_than_there_are_are_refused(
    verb: str, capsys: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    if "plot" in WIDE[verb]:
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    size = 2 * oracle.system("ethernet-pair").devices
    line = [{"WIDE": f"data:{size}", "N": str(size)}.get(word, word) for word in WIDE[verb]]
    assert main(line) == 2
    out, err = capsys.readouterr()
    assert f"{size} devices, but ethernet-pair has" in err
    assert out == ""
    assert not list(tmp_path.iterdir())
    assert main([*line, "--grow"]) == 0


def test_what_a_figure_leaves_out_is_said(capsys: Any, tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    size = oracle.system("ethernet-pair").devices
    line = ["plot", "scaling", "lenet5", "ethernet-pair", "--devices", f"{size},{2 * size}",
            "--batch", "64", "--jobs", "1", "-o", str(tmp_path / "f.svg")]  # fmt: skip
    assert main(line) == 0
    assert f"left out: {2 * size} devices, but ethernet-pair has" in capsys.readouterr().err


def test_a_plan_without_room_is_not_free_either() -> None:
    """In a table of plans it stays, broken, at what it would take on a system that has grown."""
    two = oracle.system("ethernet-pair")
    plans = ["data:2", f"data:{2 * two.devices}"]
    table = oracle.estimate("lenet5", two, plans, 64)
    grown = oracle.estimate("lenet5", two, plans, 64, grow=True)
    assert grown.feasible.all()
    assert grown.exchange[1][0]["seconds"] > 0
    assert grown.system.devices == 2 * two.devices
    assert table.broken[1] == (f"{2 * two.devices} devices, but ethernet-pair has {two.devices}",)
    assert table.seconds.tolist() == grown.seconds.tolist()
    with pytest.raises(oracle.SpecError, match="shape"):
        oracle.system("tpu-v3-pod").of_size(10**6, grow=True)


@pytest.mark.parametrize(("old", "new"), [
    ("bandwidth: 25 GB/s", "bandwidth: 1e-300 GB/s"),
    ("bandwidth: 25 GB/s", "bandwidth: 1e30 GB/s"),
    ("latency: 2 us", "latency: 1e-99 s"), ("latency: 2 us", "latency: 1e99 s"),
    ("sustained: 0.9", "sustained: 0"), ("sustained: 0.9", "sustained: 1e-300"),
    ("start: 3 us", "start: 1e-200 s"),
])  # fmt: skip
def test_numbers_beyond_arithmetic_are_refused(old: str, new: str, tmp_path: Any) -> None:
    """They were read, and every time became nan or infinite."""
    assert TOY.count(old) >= 1
    (tmp_path / "toy.yaml").write_text(TOY.replace(old, new, 1))
    with pytest.raises(oracle.SpecError, match=r"too (large|small)|out of range"):
        oracle.system(tmp_path / "toy.yaml")


def test_a_key_that_is_gone_says_what_to_do(tmp_path: Any) -> None:
    """Device files of before had a `cache` that nothing was priced by."""
    (tmp_path / "toy.yaml").write_text(TOY.replace("  processors: 80", "  cache: 6 MiB", 1))
    with pytest.raises(oracle.SpecError, match="no field is called `cache` any more") as caught:
        oracle.system(tmp_path / "toy.yaml")
    assert len(caught.value.faults) == 1
    assert "leave the line out" in caught.value.faults[0].hint


def test_a_file_is_of_the_kind_that_its_fields_are_of() -> None:
    """A device has `kernels` and `launch`, as software has."""
    from oracle.commands.specs import FOLDERS, kind_of

    for folder in FOLDERS:
        for name, path in catalogue.shipped(folder).items():
            assert kind_of(str(path)) == folder, name


# --- said ------------------------------------------------------------------------------------


def test_no_shipped_spec_looks_wrong() -> None:
    read = {"systems": catalogue.system, "devices": catalogue.device, "datasets": catalogue.dataset}
    for folder, opened in read.items():
        for name in catalogue.shipped(folder):
            assert not [*warnings(opened(name))], name


def test_a_device_of_before_libraries_were_said_is_warned_of() -> None:
    device = oracle.device("a100-sxm4-80gb")
    assert not list(warnings(device))
    (one,) = warnings(replace(device, library=""))
    assert "library" in one.field
    assert "NCCL" in one.what


def test_a_value_out_of_this_world_is_said_and_used(tmp_path: Any, capsys: Any) -> None:
    text = catalogue.shipped("systems")["abci"].read_text(encoding="utf-8")
    slow = text.replace("latency: ", "latency: 4 ms  # ", 1)
    path = tmp_path / "slow.yaml"
    path.write_text(slow, encoding="utf-8")
    assert main(["specs", "check", str(path)]) == 0
    out, err = capsys.readouterr()
    line = slow.splitlines().index(next(s for s in slow.splitlines() if "4 ms" in s)) + 1
    assert "sound system spec" in out
    assert f"warning: {path}:{line}: levels.0.latency: 4 ms is above 1 ms" in err
    assert main(["specs", "check", str(path), "--json"]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert file["sound"]
    assert not file["faults"]
    assert [(w["field"], w["line"]) for w in file["warnings"]] == [("levels.0.latency", line)]
    ask = ["estimate", "lenet5", str(path), "--plan", "data:2", "--batch", "64"]
    assert main([*ask, "-v"]) == 0
    assert "levels.0.latency: 4 ms is above 1 ms" in capsys.readouterr().err
    assert main([*ask, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["warnings"]
    assert [one["field"] for one in said] == ["system.levels.0.latency"]


@pytest.mark.parametrize(("where", "precision", "own"), [
    ("abci", "fp8", "fp16"), ("abci", "bf16", None), ("dgx-a100", "fp8", "bf16"),
    ("dgx-h100", "fp8", "fp8"),
])  # fmt: skip
def test_a_precision_that_is_not_there_is_said(
    where: str, precision: str, own: str | None, capsys: Any
) -> None:
    line = ["gpt2", where, "--batch", "64", "--precision", precision]
    for verb in (["estimate", "--plan", "data:8"], ["recommend", "--devices", "8"]):
        assert main([*verb, *line]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert main([*verb, *line, "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert data["computed_in"] == own or own is None
        lacks = data["computed_in"] != precision
        assert lacks == (f"has no {precision}: its kernels are priced in" in text)
        assert lacks == any(one["field"] == "precision" for one in data["warnings"])
        assert lacks == (own != precision)


@pytest.mark.slow
@pytest.mark.parametrize("line", [
    ["sweep", "lenet5", "abci", "--devices", "2", "--batch", "8", "--jobs", "1"],
    ["report", "lenet5", "abci", "--devices", "2", "--batch", "8", "-o", "made.html"],
    ["export", "torchrun", "lenet5", "abci", "--plan", "data:2", "--batch", "8"],
    ["plot", "timeline", "lenet5", "abci", "--plan", "data:2", "--batch", "8", "-o", "made.svg"],
    ["explain", "lenet5", "abci", "--plan", "data:2", "--batch", "8"],
], ids=lambda line: line[0])  # fmt: skip
def test_every_verb_says_what_it_is_priced_in(
    line: list[str], capsys: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    if line[0] == "plot":
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    assert main([*line, "--precision", "bf16"]) == 0
    out, err = capsys.readouterr()
    page = "".join(path.read_text() for path in tmp_path.glob("*.html"))
    wanted = "precision: v100-sxm2-16gb has no bf16: its kernels are priced in fp32"
    assert wanted in " ".join(f"{out} {err}".split())
    assert wanted in page or not page


def test_an_algorithm_that_an_operation_lacks_is_said(capsys: Any) -> None:
    line = ["estimate", "resnet50", "abci", "--batch", "256", "--plan"]
    pairs = (("ring", False), ("nccl", False), ("shd", True), ("torus2d", False))
    for name, said in pairs:  # shifted halving-doubling takes powers of two alone
        assert main([*line, "data:6", "--algorithm", name]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert ("allreduce is priced as" in text) == said, name
    assert main([*line, "data:4 pipeline:2,segments=4", "--algorithm", "ring"]) == 0
    assert "no ring has sendrecv: sendrecv is priced as" in " ".join(
        capsys.readouterr().out.split()
    )


def test_an_algorithm_that_fits_no_operation_is_refused_with_the_right_word(capsys: Any) -> None:
    line = ["estimate", "resnet50", "abci", "--plan", "data:8", "--batch", "256", "--algorithm"]
    for name, said in (
        (
            "pairwise",
            "`pairwise` is an algorithm of alltoall, halo, sparse_allreduce; `data:8` has",
        ),
        ("switching", "write it in the plan, `data:…,compress=topk,sparse=switching`"),
        ("recursive_halving", "an algorithm of reduce_scatter; `data:8` has allreduce only"),
        ("torus2d:x", "no algorithm is called `torus2d:x`"),
        ("ring:3", "no algorithm is called `ring:3`"),
    ):
        assert main([*line, name]) == 2
        assert said in " ".join(capsys.readouterr().err.split()), name
    assert main([*line[:3], "--plan", "serial", "--batch", "8", "--algorithm", "ring"]) == 0

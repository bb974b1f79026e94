"""Spec files: every trap refused with its place, every fault at once, nothing crashes."""

from __future__ import annotations

import cProfile
import json
import math
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
import yaml

import oracle
from oracle.models.build import Network
from oracle.models.transformer import Transformer
from oracle.spec import catalogue
from oracle.spec.dataset import Dataset
from oracle.spec.device import Curve, Device
from oracle.spec.document import CODES, SpecError, load
from oracle.spec.files import SPEC as LARGEST
from oracle.spec.json_schema import json_schema
from oracle.spec.schema import Between, fields_of
from oracle.spec.software import Software
from oracle.spec.storage import Disk, Host, SharedFiles
from oracle.spec.system import Calibrated, Level, System
from oracle.spec.units import Quantity, parse

SYSTEM = """\
name: small
source: made up
device:
  name: toy
  source: made up
  memory: 16 GiB
  memory_bandwidth: 900 GB/s
  peak: {fp32: 15 TFLOP/s}
levels:
  - name: node
    devices: 4
    ports: 2
    bandwidth: 25 GB/s
    latency: 2 us
    source: made up
"""
MODEL = """\
name: small
source: made up
input: [3, 32, 32]
layers:
  - conv: {filters: 16, kernel: 3, padding: 1}
  - relu
  - pool: {kernel: 2}
  - flatten
  - dense: 10
"""
DATASET = """\
name: pictures
source: made up
samples: 1000
sample: [3, 32, 32]
size: 10 GB
files: 1000
"""
READ: dict[str, Callable[[Any], Any]] = {
    "system": catalogue.system, "model": oracle.model, "dataset": catalogue.dataset,
    "device": catalogue.device,
}  # fmt: skip


def refused(tmp_path: Path, text: str | bytes, kind: str = "system") -> SpecError:
    path = tmp_path / "spec.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    with pytest.raises(SpecError) as caught:
        READ[kind](str(path))
    return caught.value


def codes(error: SpecError) -> list[str]:
    return [fault.code for fault in error.faults]


def test_the_texts_to_be_broken_are_sound(tmp_path: Path) -> None:
    for kind, text in (("system", SYSTEM), ("model", MODEL), ("dataset", DATASET)):
        (tmp_path / "spec.yaml").write_text(text)
        assert READ[kind](str(tmp_path / "spec.yaml")).name in ("small", "pictures")


def bombs() -> dict[str, tuple[str | bytes, str]]:
    """Texts that ought to be refused, and with which code."""
    nine = "a0: &a0 [x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
    )
    merges = "a0: &a0 {k: 1}\n" + "".join(
        f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 400)
    )
    return {
        "nine to the eighth aliases": (nine, "E107"),
        "an alias of itself": ("a: &a [*a]\n", "E107"),
        "an anchor": ("name: &x small\n", "E107"),
        "merges": (merges, "E107"),
        "a merge of plain data": ("<<: {name: small}\nname: x\n", "E107"),
        "a hundred thousand brackets": ("[" * 100_000, "E108"),
        "a hundred thousand braces": ("{a: " * 100_000, "E108"),
        "a hundred thousand closing brackets": ("]" * 100_000, "E101"),
        "a thousand nested blocks": ("".join(f"{' ' * i}a:\n" for i in range(1000)), "E108"),
        "dashes nested": ("- " * 50_000, "E108"),
        "question marks nested": ("? " * 50_000 + "a", "E108"),
        "many values": ("[" + "1," * 200_000 + "]", "E108"),
        "a scalar of ten megabytes": ("name: " + "x" * 10_000_000, "E100"),
        "a scalar of a megabyte": (SYSTEM.replace("900 GB/s", "9" * 900_000 + " GB/s"), "E105"),
        "a hundred thousand digits": (SYSTEM.replace("devices: 4", "devices: " + "4" * 100_000),
                                      "E105"),
        "an object": ("name: !!python/object/apply:os.system ['true']\n", "E107"),
        "a tag": ("name: !!str small\n", "E107"),
        "a local tag": ("name: !mine small\n", "E107"),
        "a byte-order mark in the middle": (SYSTEM.replace("made up", "made\ufeff up"), ""),
        "a tab for an indent": (SYSTEM.replace("  name: toy", "\tname: toy"), "E101"),
        "a NUL": (SYSTEM.replace("made up", "made\0up"), "E101"),
        "bidirectional text": (SYSTEM.replace("small", "sm\u202eall"), "E101"),
        "an isolate": (SYSTEM.replace("small", "sm\u2066all"), "E101"),
        "a surrogate": (SYSTEM.replace("small", "sm\udc80all"), "E100"),
        "an escaped surrogate": (SYSTEM.replace("small", '"\\ud800"'), "E101"),
        "an escaped NUL": (SYSTEM.replace("small", '"a\\0b"'), "E101"),
        "latin-1": (SYSTEM.replace("small", "größer").encode("latin-1"), "E100"),
        "utf-16": (SYSTEM.encode("utf-16"), "E100"),
        "noise": (bytes(range(256)) * 20, "E100"),
        "nothing": ("", "E103"),
        "white space": ("\n  \n", "E103"),
        "a comment": ("# nothing here\n", "E103"),
        "a list": ("- 1\n- 2\n", "E104"),
        "a word": ("hello\n", "E104"),
        "a number": ("42\n", "E104"),
        "null": ("~\n", "E104"),
        "two documents": (SYSTEM + "---\n" + SYSTEM, "E104"),
        "an unclosed quote": ('name: "small\n', "E101"),
        "an unclosed brace": ("name: {a: 1\n", "E101"),
        "a list for a key": ("[1, 2]: 3\n", "E104"),
        "a mapping for a key": ("? {a: 1}\n: 3\n", "E104"),
        "an empty key": ("? \n: 3\n", "E102"),
        "a directive": ("%YAML 9.9\n---\nname: x\n", "E101"),
        "a colon in a value": ("name: a: b\n", "E101"),
    }  # fmt: skip


@pytest.mark.parametrize("what", bombs())
def test_a_trap_is_refused_in_few_steps(tmp_path: Path, what: str) -> None:
    text, code = bombs()[what]
    if not code:  # read, but not as if nothing were there
        return
    error = refused(tmp_path, text)  # and what is imported on the way
    profiler = cProfile.Profile()
    profiler.runcall(refused, tmp_path, text)
    assert sum(entry.callcount for entry in profiler.getstats()) < 20_000, "calls"
    assert code in codes(error)
    assert len(str(error)) < 20_000, "a message one can read"
    assert "Nothing was computed." in str(error)
    for fault in error.faults:
        assert fault.code in CODES
        assert fault.code == "E100" or fault.place.line > 0


def test_a_trap_takes_little_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    for text, code in bombs().values():
        if code and len(text) < 2 * LARGEST:
            refused(tmp_path, text)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most <= 100 * 2**20


def test_a_byte_order_mark_in_front_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_bytes(SYSTEM.encode("utf-8-sig"))
    assert catalogue.system(str(tmp_path / "spec.yaml")).name == "small"


def test_windows_line_ends_are_nothing(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_bytes(SYSTEM.replace("\n", "\r\n").encode())
    assert catalogue.system(str(tmp_path / "spec.yaml")).levels[0].devices == 4


NOBODY = 65534  # the number of a user without rights


@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "dangling", "loop", "secret"])
def test_what_is_not_a_file_is_refused(tmp_path: Path, kind: str) -> None:
    import os

    path = tmp_path / "spec.yaml"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "dangling":
        path.symlink_to(tmp_path / "nowhere.yaml")
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "secret":
        path.write_text(SYSTEM)
        path.chmod(0)
    user = os.geteuid()
    if kind == "secret" and user == 0:  # who may read everything
        os.seteuid(NOBODY)
    try:
        with pytest.raises(SpecError) as caught:
            catalogue.system(str(path))
    finally:
        os.seteuid(user)
    assert codes(caught.value) == ["E100"]


@pytest.mark.parametrize("name", ["a\0b.yaml", "x" * 5000 + ".yaml", "\udc80.yaml", "$(rm).yaml"])
def test_a_strange_path_is_refused(name: str) -> None:
    with pytest.raises(SpecError):
        catalogue.system(name)


# --- numbers ---------------------------------------------------------------------------------

BAD_QUANTITIES = [
    "0", "-1", "nan", ".nan", "NaN GB/s", "inf", ".inf", "-.inf", "inf GB/s", "-2 GB/s", "1e308",
    "1e400 GB/s", "5e-324", "9223372036854775808", "1000000000000000000000000000000", "25e9",
    "true", "''", "1:30", "010", "25 Gb", "25 Gbps", "25 GB", "25 GHz", "25 XB/s", "25 G B/s",
    "GB/s", "25,000 MB/s", "1_000 MB/s", "0x10 GB/s", "25 GB/s/s", "25 gb/s", "~", "[25 GB/s]",
    "{a: 1}", "25 GB/s 26 GB/s", "٢٥ GB/s", "- 25 GB/s", "'25'", "1e-6", "0 GB/s", "1e999 GB/s",
]  # fmt: skip
GOOD_QUANTITIES = {
    "25e9 B/s": 25e9, "25 GB/s": 25e9, "200 Gbit/s": 25e9, "25GB/s": 25e9, "0.025 TB/s": 25e9,
    "'25 GB/s'": 25e9, "25.0 GB/s": 25e9, "+25 GB/s": 25e9, "2.5e1 GB/s": 25e9, "1 GiB/s": 2**30,
}  # fmt: skip


@pytest.mark.parametrize("value", BAD_QUANTITIES)
def test_a_bad_quantity_is_refused_on_its_line(tmp_path: Path, value: str) -> None:
    error = refused(tmp_path, SYSTEM.replace("25 GB/s", value))
    assert error.faults[0].place.line == 13
    assert error.faults[0].code in ("E104", "E105", "E101")


@pytest.mark.parametrize("value", GOOD_QUANTITIES)
def test_a_good_quantity_is_exact(tmp_path: Path, value: str) -> None:
    (tmp_path / "spec.yaml").write_text(SYSTEM.replace("25 GB/s", value))
    found = catalogue.system(str(tmp_path / "spec.yaml")).levels[0].bandwidth
    assert found == GOOD_QUANTITIES[value]


BAD_COUNTS = [
    "0", "-1", "nan", ".nan", ".inf", "1e308", "5e-324", "1.5", "9007199254740993",
    "1000000000000000000000000000000", "25e9 B/s", "'4'", "true", "yes", "''", "1:30", "010",
    "0o10", "0x4", "4 GB", "4,0", "4_0", "~", "[4]", "{a: 4}", "four", "٤", "-0", "1e400", "--4",
]  # fmt: skip


@pytest.mark.parametrize("value", BAD_COUNTS)
def test_a_bad_count_is_refused_on_its_line(tmp_path: Path, value: str) -> None:
    error = refused(tmp_path, SYSTEM.replace("devices: 4", f"devices: {value}"))
    assert error.faults[0].place.line == 11


T3 = ["0", "-1", "nan", ".nan", "inf", "-.inf", ".inf", "1e308", "5e-324", str(2**63),
      str(10**30), "25e9", "25e9 B/s", "true", "''", "1:30", "010"]  # fmt: skip


def numeric(kind: type) -> Iterator[tuple[str, Any]]:
    """Fields of a spec type that hold one number."""
    for key, (_, hint, _) in fields_of(kind).items():
        whole = (hint,) if get_origin(hint) is Annotated else get_args(hint)
        for option in () if get_origin(hint) in (dict, tuple) else whole:
            if get_origin(option) is Annotated and isinstance(get_args(option)[1],
                                                              Between | Quantity):  # fmt: skip
                yield key, option
                break
        else:
            if hint in (int, float):
                yield key, Annotated[hint, Between()]


HOMES: dict[str, tuple[type, str, list[Any]]] = {
    "device": (Device, "system", ["device"]),
    "level": (Level, "system", ["levels", 0]),
    "system": (System, "system", []),
    "dataset": (Dataset, "dataset", []),
    "transformer": (Transformer, "model", ["transformer"]),
    "curve": (Curve, "system", ["device", "kernels", 0]),
    "calibrated": (Calibrated, "system", ["collectives", 0]),
    "shared": (SharedFiles, "system", ["storage", "shared"]),
    "disk": (Disk, "system", ["storage", "local"]),
    "host": (Host, "system", ["host"]),
}


def whole(kind: str) -> dict[str, Any]:
    """A sound document with every optional part, to put one bad value into."""
    if kind == "dataset":
        return dict(yaml.safe_load(DATASET))
    if kind == "model":
        family = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 128, "sequence": 32,
                  "kv_heads": 2, "ffn": 128, "experts": 4, "active": 2}  # fmt: skip
        return {"name": "small", "source": "made up", "transformer": family}
    found = dict(yaml.safe_load(SYSTEM))
    found["device"]["kernels"] = [{"family": "gemm", "source": "made up"}]
    found["collectives"] = [{"op": "allreduce", "level": "node", "algorithm": "ring",
                             "bandwidth": "1 GB/s", "source": "made up"}]  # fmt: skip
    found["storage"] = {"shared": {"bandwidth": "1 GB/s"}, "local": {"read": "1 GB/s"},
                        "source": "made up"}  # fmt: skip
    found["host"] = {"memory": "64 GiB", "cores": 8, "source": "made up"}
    return found


CASES = [(home, key) for home, (kind, _, _) in HOMES.items() for key, _ in numeric(kind)]


@pytest.mark.parametrize(("home", "key"), CASES)
def test_every_number_is_exact_or_refused(tmp_path: Path, home: str, key: str) -> None:
    """Whatever is written for it: the very number, or a fault on its own line."""
    kind, file, path = HOMES[home]
    hint = dict(numeric(kind))[key]
    rule = get_args(hint)[1]
    for value in T3:
        tree = whole(file)
        at: Any = tree
        for step in path:
            at = at[step]
        at[key] = "PUT-IT-HERE"
        text = yaml.safe_dump(tree, sort_keys=False, width=1000).replace("PUT-IT-HERE", value)
        (tmp_path / "spec.yaml").write_text(text, encoding="utf-8")
        try:
            built = READ[file](str(tmp_path / "spec.yaml"))
        except SpecError as error:
            lines = {fault.place.line for fault in error.faults}
            assert lines, value
            assert all(lines), f"{value}: a fault without a line"
            continue
        if file == "model":
            continue  # its rows are tested elsewhere; here it must only not crash
        for step in path:
            built = built[step] if isinstance(step, int) else getattr(built, step)
        found = getattr(built, fields_of(kind)[key][0])
        if isinstance(rule, Quantity):
            assert found == parse(value, rule.unit)
            assert found > 0 or rule.zero
        elif found is not None:
            assert found == float(value)
            assert rule.low <= found <= rule.high
        assert found is None or math.isfinite(found)


def test_every_numeric_field_was_tried() -> None:
    assert len(CASES) >= 46


@pytest.mark.parametrize("value", ["NaN", "1e999", "Infinity", "-Infinity"])
def test_numbers_of_json_that_are_none(tmp_path: Path, value: str) -> None:
    body = json.dumps(yaml.safe_load(SYSTEM)).replace('"25 GB/s"', value)
    path = tmp_path / "spec.json"
    path.write_text(body)
    with pytest.raises(SpecError):
        catalogue.system(str(path))


def test_json_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(yaml.safe_load(SYSTEM), indent=1))
    assert catalogue.system(str(path)).levels[0].bandwidth == 25e9
    path.write_text('{"name": "a", "name": "b", "samples": 3, "source": "x"}')
    with pytest.raises(SpecError) as caught:
        catalogue.dataset(str(path))
    assert "E106" in codes(caught.value)


# --- faults ----------------------------------------------------------------------------------


def test_every_fault_of_a_file_comes_at_once(tmp_path: Path) -> None:
    bad = SYSTEM
    for old, new in {
        "16 GiB": "16", "900 GB/s": "900 Gb", "fp32:": "fp31:", "devices: 4": "devices: -4",
        "ports: 2": "portz: 2", "25 GB/s": "25", "2 us": "2 GB",
    }.items():  # fmt: skip
        bad = bad.replace(old, new)
    bad = bad.replace("source: made up\n", "", 1) + "nmae: x\n"
    error = refused(tmp_path, bad)
    assert len(error.faults) >= 8
    lines = [fault.place.line for fault in error.faults]
    assert lines == sorted(lines)
    assert str(error).count("error[") == len(error.faults)
    assert f"{len(error.faults)} problems in" in str(error)


def test_twenty_faults_of_a_model_come_at_once(tmp_path: Path) -> None:
    layers = "".join(f"  - conv: {{filters: {-i}, kernel: 3}}\n" for i in range(1, 13))
    layers += "".join(f"  - dens: {i}\n" for i in range(1, 11))
    error = refused(tmp_path, MODEL.split("layers:")[0] + "layers:\n" + layers, "model")
    assert len(error.faults) == 22
    assert {fault.place.line for fault in error.faults} == set(range(5, 27))


def test_a_fault_shows_file_line_column_caret_and_help(tmp_path: Path) -> None:
    error = refused(tmp_path, SYSTEM.replace("    bandwidth", "    bandwith"))
    fault = next(f for f in error.faults if f.code == "E102")
    assert (fault.place.line, fault.place.column, fault.length) == (13, 5, 8)
    text = str(error)
    assert "error[E102]: unknown field `bandwith`" in text
    assert f"{tmp_path / 'spec.yaml'}:13:5" in text
    assert "13 |     bandwith: 25 GB/s" in text
    assert "   |     ^^^^^^^^ did you mean `bandwidth`?" in text


def test_a_duplicate_key_is_a_fault_at_the_second(tmp_path: Path) -> None:
    error = refused(tmp_path, SYSTEM + "name: again\n")
    assert codes(error) == ["E106"]
    assert error.faults[0].place.line == 16
    assert "line 1" in error.faults[0].what


def test_a_field_that_is_missing_is_named(tmp_path: Path) -> None:
    error = refused(tmp_path, SYSTEM.replace("source: made up\n", "", 1))
    assert codes(error) == ["E103"]
    assert "lacks the field `source`" in error.faults[0].what


def test_a_small_number_is_not_text(tmp_path: Path) -> None:
    """YAML reads `1e-6` as text; here it is the number that it looks like, where one is due."""
    text = SYSTEM.replace("latency: 2 us", "latency: 1e-6 s")
    (tmp_path / "spec.yaml").write_text(text)
    assert catalogue.system(str(tmp_path / "spec.yaml")).levels[0].latency == 1e-6
    node = load("a: 1e-6\nb: 010\nc: yes\nd: 1:30\n", "x")
    assert [child.text for child in node.entries.values()] == ["1e-6", "010", "yes", "1:30"]


def test_values_that_do_not_go_together(tmp_path: Path) -> None:
    second = "  - {name: rack, devices: 6, bandwidth: 1 GB/s, latency: 1 us, source: x}\n"
    error = refused(tmp_path, SYSTEM + second)
    assert codes(error) == ["E109"]
    assert error.faults[0].place.line == 16

    def third(link: str) -> str:
        return second.replace("devices: 6", f"devices: 8, link: {link}")

    error = refused(tmp_path, SYSTEM + third("infiniband"))
    assert codes(error) == ["E109"]
    assert "unknown link `infiniband`" in str(error)
    inner = SYSTEM.replace("    devices: 4\n", "    devices: 4\n    link: network\n")
    error = refused(tmp_path, inner + third("nvlink"))
    assert "`rack` lies above a network" in str(error)
    assert error.faults[0].place.line == 17
    for change, code in {
        "- conv: {filters: 16, kernel: 99}": "E111",
        "- add: {from: [nobody, input]}": "E110",
        "- conv: {filters: 16, kernel: 3, groups: 2}": "E111",
        "- attention: {heads: 4}": "E111",
    }.items():
        broken = MODEL.replace("- conv: {filters: 16, kernel: 3, padding: 1}", change)
        error = refused(tmp_path, broken, "model")
        assert code in codes(error), change
        assert error.faults[0].place.line == 5


def test_a_dict_is_a_spec_too() -> None:
    assert catalogue.system(yaml.safe_load(SYSTEM)).devices == 4
    tree = yaml.safe_load(SYSTEM)
    tree["levels"][0]["bandwidth"] = 25e9
    with pytest.raises(SpecError) as caught:
        catalogue.system(tree)
    assert caught.value.faults[0].place.path == "levels[0].bandwidth"
    assert "levels[0].bandwidth" in str(caught.value)
    for wrong in ({}, {"name": None}, {"name": float("nan")}, {1: 2}, {"name": b"x"},
                  {"levels": [[[[]]]]}, {"device": object()}):  # fmt: skip
        with pytest.raises(SpecError):
            catalogue.system(wrong)


def test_a_dict_that_holds_itself_is_refused() -> None:
    tree: dict[str, Any] = yaml.safe_load(SYSTEM)
    tree["device"] = tree
    with pytest.raises(SpecError):
        catalogue.system(tree)


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_explained(code: str) -> None:
    assert len(CODES[code]) > 20
    assert CODES[code].endswith(".")


# --- JSON Schema -----------------------------------------------------------------------------

KINDS: dict[str, type] = {
    "models": Network, "systems": System, "devices": Device,
    "datasets": Dataset, "software": Software,
}  # fmt: skip
SHIPPED = [(folder, path) for folder in KINDS for path in catalogue.shipped(folder).values()]


def mismatches(schema: Any, value: Any, root: Any, path: str = "") -> list[str]:
    """What of a small part of JSON Schema a value breaks."""
    if "$ref" in schema:
        return mismatches(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], value, root, path)
    if "anyOf" in schema:
        tried = [mismatches(option, value, root, path) for option in schema["anyOf"]]
        if all(tried):
            return [f"{path}: none of the options"]
        if "properties" not in schema:
            return []
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{path}: {value!r} is not in the list"]
    types = {
        "null": type(None), "object": dict, "array": list, "string": str, "integer": int,
        "boolean": bool, "number": (int, float),
    }  # fmt: skip
    kind = schema.get("type")
    if kind and not isinstance(value, types[kind]):
        return [f"{path}: {value!r} is not a {kind}"]
    found = []
    if isinstance(value, dict):
        found += [f"{path}: lacks {key}" for key in schema.get("required", []) if key not in value]
    if kind == "object":
        known = schema.get("properties", {})
        rest = schema.get("additionalProperties", True)
        for key, inner in value.items():
            if key in known:
                found += mismatches(known[key], inner, root, f"{path}.{key}")
            elif rest is False:
                found.append(f"{path}: unknown {key}")
            elif isinstance(rest, dict):
                found += mismatches(rest, inner, root, f"{path}.{key}")
    elif kind == "array":
        for i, inner in enumerate(value):
            found += mismatches(schema.get("items", {}), inner, root, f"{path}[{i}]")
    elif kind in ("integer", "number") and not (
        schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf)
    ):
        found.append(f"{path}: {value} is out of range")
    return found


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    found = {folder: json_schema(kind, folder) for folder, kind in KINDS.items()}
    return dict(json.loads(json.dumps(found)))  # serialisable, as an editor reads it


@pytest.mark.parametrize(("folder", "path"), SHIPPED, ids=lambda v: getattr(v, "stem", v))
def test_a_schema_accepts_what_is_shipped(schemas: dict[str, Any], folder: str, path: Path) -> None:
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert mismatches(schemas[folder], tree, schemas[folder]) == []


def test_a_schema_refuses_what_is_wrong(schemas: dict[str, Any]) -> None:
    sound = yaml.safe_load(SYSTEM)
    for change in ({"nmae": 1}, {"levels": 3}, {"device": {"name": "x"}}, {"name": 4},
                   {"levels": [{"name": "node"}]}):  # fmt: skip
        assert mismatches(schemas["systems"], sound | change, schemas["systems"])
    assert not mismatches(schemas["systems"], sound, schemas["systems"])
    for layers in ([{"conw": {}}], [{"conv": {"filters": 3}}], ["relo"], [3]):
        broken = yaml.safe_load(MODEL) | {"layers": layers}
        assert mismatches(schemas["models"], broken, schemas["models"]), layers


def test_every_code_can_come_up(tmp_path: Path) -> None:
    """Each published code of spec files is raised by something in this file."""
    raised = set()
    for text, code in bombs().values():
        if code:
            raised |= set(codes(refused(tmp_path, text)))
    raised |= set(codes(refused(tmp_path, SYSTEM + "name: again\nfoo: 1\n")))
    raised |= set(codes(refused(tmp_path, SYSTEM.replace("toy", "[]").replace("4", "x"))))
    raised |= {"E109", "E110", "E111"}  # see `test_values_that_do_not_go_together`
    assert raised >= {code for code in CODES if code < "E112"}  # the rest are not of spec files


@pytest.mark.parametrize("digits", [17, 60, 309, 400])
def test_a_whole_number_too_large_for_a_float_is_refused(tmp_path: Path, digits: int) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(MODEL.replace("padding: 1", f"padding: {'9' * digits}"))
    with pytest.raises(SpecError, match="out of range") as told:
        oracle.model(str(path))
    assert [fault.place.line for fault in told.value.faults] == [5]


@pytest.mark.parametrize("factor", ["tree: 0", "few: 0", "bandwidth: {LL: 0}"])
def test_a_library_of_no_bandwidth_is_refused(tmp_path: Path, factor: str) -> None:
    library = f"library:\n  - {{level: node, source: made up, {factor}}}\n"
    assert "of 0 leaves no bandwidth" in str(refused(tmp_path, SYSTEM + library))

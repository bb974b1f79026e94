"""The command line: pinned verbs and options, the contract of its JSON, exit codes, manners."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from grids import rest_slow

from oracle.commands import cli
from oracle.commands.cli import main
from oracle.predict.memory import KINDS
from oracle.show.first_screen import SCREEN

ROOT = Path(__file__).parents[1]
SMALL = ["resnet50", "abci", "--devices", "16", "--batch", "1024"]
FEW = [*SMALL, "--only", "data,filter"]
ONE = ["resnet50", "abci", "--plan", "data:4 filter:4", "--batch", "256"]
ALWAYS = {"-q", "--quiet", "-v", "--verbose", "-h", "--help", "--color", "--counts"}
RESULT = {"--json", "--format", "-o", "--output"}
MODEL = {"--sequence", "--layers", "--vocab", "--train", "--inference"}
PREDICT = MODEL | ALWAYS | RESULT | {"--dataset", "--max-memory", "--precision", "--optimizer",
                             "--ideal", "--gamma", "--algorithm", "--profile",
                             "--software", "--any", "--grow", "--reading",
                             "--shuffle", "--epochs", "--workspace"}  # fmt: skip
BATCH = {"--batch", "--batch-per-device"}
LENGTH = {"--to-target", "--tokens", "--steps", "--price", "--pue", "--grid", "--failures",
          "--checkpoint"}  # fmt: skip
LIMITS = {"--within", "--budget"}
OPTIONS = {
    "choose": PREDICT | BATCH | LENGTH | LIMITS | {
        "--systems", "--devices", "--objective", "--only", "--without", "--risk",
    },
    "design-network": ALWAYS | RESULT | {
        "--devices", "--ports", "--for", "--system", "--nics", "--link", "--plans", "--plan",
        "--within", "--switch-price", "--cable-price", "--precision", "--optimizer", "--software",
        "--any",
    },
    "recommend": PREDICT | BATCH | LENGTH | LIMITS | {"--compress"} | {
        "--fewer", "--devices", "--top", "--objective", "--only", "--without", "--all", "--risk",
        "--fastest", "--schedule", "--nodes", "--place", "--what-if",
    },
    "estimate": PREDICT | BATCH | LENGTH | {"--plan", "--schedule", "--nodes", "--place",
                                             "--beside", "--what-if"},
    "specs": ALWAYS | RESULT | {"--kind"} | {
        "--name", "--title", "--source", "--device", "--per-node", "--node-bandwidth",
        "--node-link", "--node-latency", "--nodes", "--network-kind", "--network-ports",
        "--network-bandwidth", "--network-latency", "--storage-bandwidth", "--price", "--memory",
        "--memory-bandwidth", "--fp32", "--bf16", "--fp16", "--tf32", "--processors", "--family",
        "--layers", "--hidden", "--heads", "--kv-heads", "--ffn", "--gated", "--vocab",
        "--sequence", "--input", "--widths", "--classes", "--dataset", "--framework",
        "--gradients", "--buckets", "--overlap", "--masters", "--fused-optimizer",
        "--dispatch", "--version",
        "--samples", "--sample", "--size", "--stored", "--files", "--decode",
    },
    "workflow": PREDICT | LENGTH | {
        "--nodes", "--search", "--trials", "--max-batch", "--batch", "--plan", "--spread",
        "--table",
        "--price", "--pue", "--grid",
    },
    "sweep": PREDICT | BATCH | {"--devices", "--each", "--plan", "--what-if", "--objective",
                                "--only", "--without", "--jobs", "--out", "--shard",
                                "--dask"},
}  # fmt: skip


def told(capsys: Any, *line: str) -> tuple[int, str, str]:
    code = main(list(line))
    out, err = capsys.readouterr()
    return code, out, err


def spawn(*line: str, python: tuple[str, ...] = (), **more: Any) -> Any:
    return subprocess.run(
        [sys.executable, *python, "-m", "oracle", *line], capture_output=True, text=True,
        cwd=ROOT, timeout=120, check=False, **more,
    )  # fmt: skip


def test_verbs_are_pinned() -> None:
    assert list(cli.VERBS) == [
        "recommend", "estimate", "explain", "choose", "design-network", "sweep", "workflow",
        "report", "serve", "plot", "specs", "import", "export", "measure", "calibrate", "run",
        "compare", "config", "schema", "completion", "selftest",
    ]  # fmt: skip


@pytest.mark.parametrize("verb", OPTIONS)
def test_options_are_pinned(capsys: Any, verb: str) -> None:
    code, out, _ = told(capsys, verb, "--help", "all")
    assert code == 0
    assert set(re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", out.split("options:")[1])) == OPTIONS[verb]


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_there_is_has_help(capsys: Any, verb: str) -> None:
    code, out, err = told(capsys, verb, "--help")
    assert (code, err) == (0, "")
    assert out.startswith("usage: oracle " + verb)


def test_help_lists_every_verb_and_examples(capsys: Any) -> None:
    for line in ([], ["--help"], ["-h"], ["help"]):
        code, out, _ = told(capsys, *line)
        assert code == 0
        assert all(f"  {verb} " in out for verb in cli.VERBS)
        assert out.index("examples:") < out.index("commands:")
        assert max(map(len, out.splitlines())) <= 100
    assert told(capsys, "--version")[1].startswith("oracle ")


# --- contract --------------------------------------------------------------------------------

PLAN_FIELDS = {"plan": str, "feasible": bool, "broken": list, "seconds": dict, "compute": dict,
               "exchange": list, "memory": dict}  # fmt: skip
MESSAGE_FIELDS = {
    "what": str,
    "op": str,
    "algorithm": str,
    "group": int,
    "calls": (int, float),
    "bytes": (int, float),
    "seconds": float,
    "exposed": float,
    "phi": float,
}


def check_contract(found: Any, devices: int, batch: int) -> None:
    assert found["schema"] == 1
    assert isinstance(found["model"], str)
    assert isinstance(found["system"], str)
    assert (found["devices"], found["batch"]) == (devices, batch)
    for plan in found["plans"]:
        for name, kind in PLAN_FIELDS.items():
            assert isinstance(plan[name], kind), name
        assert plan["rank"] is None or isinstance(plan["rank"], int)
        assert set(plan["seconds"]) >= {"iteration", "low", "high", "epoch"}
        seconds = plan["seconds"]
        assert 0 < seconds["low"] <= seconds["iteration"] <= seconds["high"]
        assert set(plan["compute"]) == {"forward", "backward", "update", "bubble", "recompute"}
        assert set(plan["memory"]) >= {"total", "weights", "gradients", "optimizer", "activations",
                                       "workspace"}  # fmt: skip
        parts = [plan["memory"][kind] for kind in KINDS]
        assert sum(parts) == pytest.approx(plan["memory"]["total"])
        total = sum(plan["compute"].values()) + sum(m["exposed"] for m in plan["exchange"])
        total += plan["reading"]["exposed"] if plan["reading"] else 0.0
        assert total == pytest.approx(seconds["iteration"], rel=1e-9)
        for message in plan["exchange"]:
            for name, kind in MESSAGE_FIELDS.items():
                assert isinstance(message[name], kind), name
        assert plan["feasible"] == (not plan["broken"])


def test_json_of_recommend(capsys: Any) -> None:
    code, out, err = told(capsys, "recommend", *SMALL, "--json", "--dataset", "imagenet")
    assert (code, err) == (0, "")
    found = json.loads(out, parse_constant=lambda word: pytest.fail(word))
    check_contract(found, 16, 1024)
    assert [plan["rank"] for plan in found["plans"]] == list(range(1, len(found["plans"]) + 1))
    assert all(plan["feasible"] for plan in found["plans"])
    assert found["plans"][0]["seconds"]["epoch"] == pytest.approx(
        found["plans"][0]["seconds"]["iteration"] * 1281167 / 1024
        + found["plans"][0]["reading"]["seconds"]  # of the first batch, which nothing hides
    )


@pytest.mark.slow
def test_json_of_recommend_with_all(capsys: Any) -> None:
    _, out, _ = told(capsys, "recommend", "vgg16", "abci", "--devices", "16", "--batch", "4096",
                     "--max-memory", "2 GiB", "--json", "--all")  # fmt: skip
    found = json.loads(out)
    check_contract(found, 16, 4096)
    missed = [plan for plan in found["plans"] if not plan["feasible"]]
    assert missed
    assert all(plan["rank"] is None and all(plan["broken"]) for plan in missed)


def test_json_of_estimate(capsys: Any) -> None:
    code, out, err = told(capsys, "estimate", *ONE, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    check_contract(found, 16, 256)
    assert [plan["plan"] for plan in found["plans"]] == ["data:4 filter:4"]
    assert {m["what"] for m in found["plans"][0]["exchange"]} >= {"data: gradients",
                                                                 "filter: activations"}  # fmt: skip


@pytest.mark.parametrize(("model", "system"), [
    ("vgg16", "abci"), pytest.param("cosmoflow-512", "abci", marks=pytest.mark.slow),
    pytest.param("gpt3-175b", "dgx-a100", marks=pytest.mark.slow),
])  # fmt: skip
def test_json_at_a_thousand_devices(capsys: Any, model: str, system: str) -> None:
    each = "64" if model == "vgg16" else "0.25" if "cosmo" in model else "1.5"
    code, out, _ = told(capsys, "recommend", model, system, "--devices", "1024",
                        "--batch-per-device", each, "--json")  # fmt: skip
    assert code == 0
    check_contract(json.loads(out), 1024, round(float(each) * 1024))


# --- exit codes and manners ------------------------------------------------------------------


def test_nothing_feasible_is_a_no_with_the_nearest_misses(capsys: Any) -> None:
    line = ["recommend", "gpt3-175b", "dgx-a100", "--devices", "8", "--batch", "8",
            "--only", "data,tensor,pipeline"]  # fmt: skip
    code, out, err = told(capsys, *line)
    assert (code, err) == (1, "")
    assert "Nearest misses" in out
    assert "short" in out
    assert len(out.splitlines()) <= 24
    code, out, _ = told(capsys, *line, "--json")
    assert code == 1
    found = json.loads(out)
    assert found["plans"]
    assert all(plan["broken"] and not plan["feasible"] for plan in found["plans"])


def test_an_infeasible_estimate_is_a_no_in_words(capsys: Any) -> None:
    code, out, _ = told(capsys, "estimate", "gpt3-175b", "dgx-a100", "--plan", "data:8",
                        "--batch", "8")  # fmt: skip
    assert code == 1
    assert "this plan cannot run" in out
    assert "short" in out


@pytest.mark.parametrize(("line", "says"), [
    (["recomend"], "did you mean `recommend`"),
    (["--hlep"], "did you mean `--help`"),
    (["recommend", "resnet5", "abci", "--devices", "4", "--batch", "8"], "did you mean `resnet50`"),
    (["recommend", "resnet50", "abcii", "--devices", "4", "--batch", "8"], "did you mean `abci`"),
    (["recommend", *SMALL, "--dataset", "imagnet"], "did you mean `imagenet`"),
    (["recommend", *SMALL, "--precison", "fp16"], "--precision"),
    (["recommend", *SMALL, "--precision", "fp61"], "did you mean `fp16`"),
    (["recommend", *SMALL, "--optimizer", "adma"], "did you mean `adam`"),
    (["recommend", *SMALL, "--only", "dta"], "did you mean `data`"),
    (["recommend", *SMALL, "--without", "pipelin"], "did you mean `pipeline`"),
    (["recommend", *SMALL, "--max-memory", "16"], "needs its unit"),
    (["recommend", *SMALL, "--max-memory", "-3 GiB"], "memory"),
    (["recommend", *SMALL, "--dev", "8"], "--dev"),
    (["recommend", "resnet50", "abci", "--devices", "0", "--batch", "8"], "whole number"),
    (["recommend", "resnet50", "abci", "--devices", "4", "--batch", "-8"], "whole number"),
    (["recommend", "resnet50", "abci", "--devices", "4", "--batch", "nan"], "whole number"),
    (["recommend", "resnet50", "abci", "--devices", "4"], "--batch"),
    (["recommend", "resnet50", "abci", "--devices", "4", "--batch", "8", "--batch-per-device", "2"],
     "not allowed with"),
    (["recommend", "resnet50", "abci", "--devices", "99999", "--batch", "8"], "4352"),
    (["recommend", "resnet50"], "required"),
    (["estimate", "resnet50", "abci", "--plan", "dat:4", "--batch", "8"], "did you mean `data:4`"),
    (["estimate", "resnet50", "abci", "--plan", "", "--batch", "8"], "the plan is empty"),
    (["estimate", *ONE, "--gamma", "--profile", "nan"], "gamma"),
    (["estimate", *ONE, "--gamma", "-1"], "gamma"),
    (["estimate", *ONE, "--algorithm", "rong"], "algorithm"),
    (["specs", "lst"], "list"),
    (["specs", "show", "abic"], "did you mean `abci`"),
    (["specs", "check"], "at least one name"),
    (["specs", "check", "nowhere.yaml"], "no such file"),
    (["specs", "schema", "modells"], "did you mean `models`"),
])  # fmt: skip
def test_bad_input_is_refused_in_words(capsys: Any, line: list[str], says: str) -> None:
    code, out, err = told(capsys, *line)
    assert code == 2
    assert out == ""
    assert says in err
    assert "Traceback" not in err


def test_a_bad_file_is_shown_with_its_line(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nsource: x\nlevles: []\n")
    for line in (["recommend", "resnet50", str(path), "--devices", "1", "--batch", "8"],
                 ["specs", "check", str(path), "--kind", "systems"]):  # fmt: skip
        code, out, err = told(capsys, *line)
        assert (code, out) == (2, "")
        assert f"{path}:3:1" in err
        assert "did you mean `levels`" in err


def test_the_first_screen_fits(capsys: Any) -> None:
    for line in (SMALL, ["gpt3-175b", "dgx-a100", "--devices", "1024", "--batch", "1536"],
                 ["cosmoflow-512", "abci", "--devices", "256", "--batch", "64"]):  # fmt: skip
        code, out, err = told(capsys, "recommend", *line)
        assert (code, err) == (0, "")
        lines = out.rstrip("\n").split("\n")
        assert len(lines) <= SCREEN
        assert max(map(len, lines)) <= 80
        assert lines[0].startswith("Fastest: ")
        for word in ("plan", "memory", "trust", "fits with", "slower by", "next: oracle"):
            assert word in out, word
        assert "\x1b" not in out, "no colour but on a terminal"


@pytest.mark.slow
def test_options_change_the_answer(capsys: Any) -> None:
    def first(*more: str) -> Any:
        line = FEW if "--only" not in more and "--without" not in more else SMALL
        return json.loads(told(capsys, "recommend", *line, "--json", *more)[1])

    plain, ideal = first(), first("--ideal")
    assert ideal["ideal"] is True
    assert ideal["plans"][0]["seconds"]["iteration"] < plain["plans"][0]["seconds"]["iteration"]
    assert len(first("--top", "2")["plans"]) == 2
    assert {p["plan"].split(":")[0] for p in first("--only", "filter")["plans"]} == {"filter"}
    assert not any("data" in p["plan"] for p in first("--without", "data")["plans"])
    assert first("--precision", "fp16")["precision"] == "fp16"
    lean = first("--objective", "memory")["plans"]
    assert lean[0]["memory"]["total"] <= plain["plans"][0]["memory"]["total"]
    tight = first("--max-memory", "6 GiB")["plans"]
    assert all(p["memory"]["total"] <= 6 * 2**30 for p in tight if p["feasible"])
    text = told(capsys, "recommend", "vgg16", "abci", "--devices", "16", "--batch", "4096",
                "--only", "data,filter", "--all")[1]  # fmt: skip
    assert "These do not fit:" in text


@pytest.mark.parametrize("flags", rest_slow([("-O",), ("-W", "error"), ("-OO",), ("-X", "dev")],
                                            quick=[("-W", "error")]), ids=str)  # fmt: skip
def test_the_same_output_however_python_runs(flags: tuple[str, ...], capsys: Any) -> None:
    plain = told(capsys, "recommend", *FEW, "--json")[1]
    other = spawn("recommend", *FEW, "--json", python=flags)
    assert (other.returncode, other.stdout) == (0, plain)
    assert other.stderr == ""
    bad = spawn("estimate", "resnet50", "abci", "--plan", "data:0", "--batch", "8", python=flags)
    assert bad.returncode == 2
    assert "Traceback" not in bad.stderr


def test_a_closed_pipe_is_quiet() -> None:
    line = [sys.executable, "-m", "oracle", "specs", "show", "abci", "resnet50", "resnet152"] * 1
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as run:
        assert run.stdout is not None
        run.stdout.close()
        assert run.stderr is not None
        assert run.stderr.read() == b""
        assert run.wait(timeout=60) == 0


def test_a_full_disk_is_said_plainly() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with open("/dev/full", "w") as full:
        run = subprocess.run([sys.executable, "-m", "oracle", "specs", "list"], stdout=full,
                             stderr=subprocess.PIPE, cwd=ROOT, check=False, timeout=60)  # fmt: skip
    assert run.returncode not in (0, 1)
    assert b"Traceback" not in run.stderr


def test_an_interrupt_ends_with_130(monkeypatch: Any, capsys: Any) -> None:
    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupted)
    code, out, err = told(capsys, "recommend", *SMALL)
    assert (code, out) == (130, "")
    assert err == "interrupted\n"


@pytest.mark.flaky(reruns=1)
def test_a_real_interrupt_leaves_no_traceback() -> None:
    line = [sys.executable, "-m", "oracle", "sweep", "resnet50", "abci", "--devices",
            "1..4096:all", "--batch-per-device", "16", "--plan", "data:*",
            "--jobs", "1"]  # fmt: skip
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
                          env={**os.environ, "COLUMNS": "80"}) as run:  # fmt: skip
        time.sleep(2.5)
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert b"Traceback" not in err


def test_quiet_says_only_what_was_asked(capsys: Any) -> None:
    assert told(capsys, "recommend", *FEW, "-q")[2] == ""
    assert told(capsys, "specs", "check", "abci", "-q")[0] == 0


def test_shipped_specs_can_be_listed_shown_and_checked(capsys: Any) -> None:
    code, out, _ = told(capsys, "specs", "list", "--json")
    found = json.loads(out)
    assert set(found) == {
        "models", "systems", "devices", "datasets", "software", "workflows",
    }  # fmt: skip
    assert "resnet50" in found["models"]
    code, out, _ = told(capsys, "specs", "show", "abci")
    assert (code, out.splitlines()[0]) == (0, "name: abci")
    for kind in found:
        code, out, _ = told(capsys, "specs", "schema", kind)
        assert code == 0
        assert json.loads(out)["$schema"].startswith("https://json-schema.org")

"""`oracle specs new`: a commented file that is sound and used as it stands, of every kind."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT, told

from oracle.writers.blank import OPEN, QUESTIONS, answered, folder, questions, text

NEEDED = {
    "system": ["--device", "a100-sxm4-80gb", "--per-node", "4", "--node-bandwidth", "300 GB/s"],
    "device": ["--memory", "40 GiB", "--memory-bandwidth", "2 TB/s", "--fp32", "20 TFLOP/s"],
    "model": ["--layers", "4", "--hidden", "256", "--heads", "4", "--vocab", "1000",
              "--sequence", "128"],
    "software": [],
    "dataset": ["--samples", "60000", "--sample", "3,224,224", "--size", "12 GB"],
}  # fmt: skip
ALL = {  # every question answered, otherwise than is usual
    "system": [*NEEDED["system"], "--title", "Ours: the 2nd", "--node-link", "pcie",
               "--node-latency", "3 us", "--nodes", "4", "--network-kind", "fat-tree",
               "--network-ports", "2", "--network-bandwidth", "12.5 GB/s", "--network-latency",
               "4 us", "--storage-bandwidth", "50 GB/s", "--price", "3 USD/h",
               "--source", 'a "page"'],
    "device": [*NEEDED["device"], "--title", "Ours", "--bf16", "200 TFLOP/s", "--fp16",
               "200 TFLOP/s", "--tf32", "100 TFLOP/s", "--processors", "80", "--price",
               "1 USD/h", "--source", "a page"],
    "model": [*NEEDED["model"], "--title", "Ours", "--family", "transformer", "--kv-heads", "2",
              "--ffn", "512", "--gated", "true", "--dataset", "openwebtext", "--source", "x: y"],
    "software": ["--title", "Ours", "--framework", "own", "--version", "1", "--gradients",
                 "compute", "--buckets", "50 MB", "--overlap", "none", "--masters", "none",
                 "--fused-optimizer", "apart", "--dispatch", "9 us", "--source", "x"],
    "dataset": [*NEEDED["dataset"], "--title", "Ours", "--stored", "records", "--files", "60",
                "--decode", "2 ms", "--source", "x"],
}  # fmt: skip
USED = {
    "system": ["resnet50", "{path}"],
    "model": ["{path}", "dgx-a100"],
    "software": ["resnet50", "dgx-a100", "--software", "{path}"],
    "dataset": ["resnet50", "dgx-a100", "--dataset", "{path}"],
}
PICTURES = ["--family", "convolutions", "--input", "3,64,64", "--widths", "16,32", "--classes", "7"]


def written(capsys: Any, kind: str, path: Path, *flags: str) -> str:
    code, out, err = told(capsys, "specs", "new", kind, "--name", "ours", *flags, "-o", str(path))
    assert code == 0, err
    assert "next: oracle" in out
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", QUESTIONS)
@pytest.mark.parametrize("flags", [NEEDED, ALL], ids=["needed", "all"])
def test_a_file_is_sound_commented_and_used(
    tmp_path: Path, capsys: Any, kind: str, flags: dict[str, list[str]]
) -> None:
    path = tmp_path / "ours.yaml"
    content = written(capsys, kind, path, *flags[kind])
    code, out, _ = told(capsys, "specs", "check", str(path), "--kind", folder(kind))
    assert code == 0
    assert "sound" in out
    fields = [line for line in content.splitlines() if line.strip() and "#" not in line]
    for one in questions(kind):
        if one.concerns({"family": "transformer"}) and one.key not in (
            *(key for key in ("family", "nodes")),  # told by the file as a whole
            *(("storage-bandwidth",) if flags is NEEDED else ()),
            *(q.key for q in QUESTIONS["system"] if q.key.startswith("network-")
              and flags is NEEDED),
        ):  # fmt: skip
            assert one.asks[:40] in content, f"no comment says what {one.key} is"
    assert len(fields) > 5
    if kind == "device":
        path = tmp_path / "system.yaml"
        written(capsys, "system", path, "--device", "ours.yaml", "--per-node", "4",
                "--node-bandwidth", "25 GB/s")  # fmt: skip
    line = [word.format(path=path) for word in USED.get(kind, USED["system"])]
    code, out, err = told(capsys, "recommend", *line, "--devices", "2", "--batch", "64",
                          "--only", "data")  # fmt: skip
    assert code == 0, err
    assert "data:2" in out


def test_every_answer_is_in_the_file(tmp_path: Path, capsys: Any) -> None:
    for kind, flags in ALL.items():
        content = written(capsys, kind, tmp_path / f"{kind}.yaml", *flags).replace('\\"', '"')
        content = content.replace("50000000", "50 MB")
        for flag, value in zip(flags[::2], flags[1::2], strict=True):
            said = value.replace(",", ", ") if flag == "--sample" else value
            assert said in content or flag in ("--family", "--nodes"), (kind, flag)
        left = ("price", "ffn", "decode", "version")
        assert not [line for line in content.splitlines()
                    if line.strip().startswith(tuple(f"# {word}: " for word in left))]  # fmt: skip
    assert "devices: 16  #" in (tmp_path / "system.yaml").read_text(encoding="utf-8")


def test_a_network_of_convolutions(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "ours.yaml"
    written(capsys, "model", path, *PICTURES)
    import oracle

    model = oracle.model(str(path))
    assert [row.made.channels for row in model.rows if row.weights][-1] == 7
    assert model.rows[0].given.extents == (64, 64)


def test_nothing_is_written_over(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text("mine")
    code, _, err = told(capsys, "specs", "new", "software", "--name", "x", "-o", str(path))
    assert code == 2
    assert "there is such a file already" in err
    assert path.read_text() == "mine"
    assert [*tmp_path.iterdir()] == [path]


def test_bad_flags_are_told_all_at_once(tmp_path: Path, capsys: Any) -> None:
    line = ["specs", "new", "system", "-o", str(tmp_path / "x.yaml")]
    code, _, err = told(capsys, *line, "--per-node", "8x", "--node-bandwidth", "450 Gb/s",
                        "--hidden", "3")  # fmt: skip
    assert code == 2
    assert "5 problems" in err
    for part in ("`name` is missing", "`device` is missing", "`8x` is not a whole number",
                 "write `450 Gbit/s` or `450 GB/s`", "a system has no `hidden`"):  # fmt: skip
        assert part in err
    code, _, err = told(capsys, "specs", "new", "model", "--name", "x", "--layers", "2", "--hidden",
                        "10", "--heads", "3", "--vocab", "9", "--sequence", "8",
                        "-o", str(tmp_path / "x.yaml"))  # fmt: skip
    assert code == 2
    assert "3 heads do not divide 10" in err
    assert "x.yaml:" in err
    code, _, err = told(capsys, *line, "--name", "x", *NEEDED["system"][2:], "--device", "h100")
    assert code == 2
    assert "did you mean `h100" in err
    assert told(capsys, "specs", "new", "modle")[2].count("did you mean `model`") == 1
    assert told(capsys, "specs", "check", "x.yaml", "--heads", "3")[0] == 2
    assert told(capsys, *PICTURES[:0], "specs", "new", "model", "--name", "x", *PICTURES[:2],
                "--layers", "3", "-o", str(tmp_path / "x.yaml"))[0] == 2  # fmt: skip
    assert not [*tmp_path.iterdir()]


def test_a_terminal_is_asked_and_asked_again(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    typed = ["mine", "", "2 GB", "forty", "40 GiB", "2 TB/s", "20 TFLOP/s", "", "-", "", "108",
             "", ""]  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "oracle", "specs", "new", "device", "--title", "Mine"],
        stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as run:  # fmt: skip
        os.write(ours, "".join(f"{line}\n" for line in [typed[0], *typed[3:]]).encode())
        out, _ = run.communicate(timeout=60)
        said = os.read(ours, 65536).decode()
    os.close(ours)
    os.close(theirs)
    assert run.returncode == 0, said
    assert b"wrote mine.yaml" in out
    assert "cannot read `forty`" in said
    content = (tmp_path / "mine.yaml").read_text(encoding="utf-8")
    assert "memory: 40 GiB" in content
    assert "processors: 108" in content
    assert "# price: " in content
    assert "\n  # bf16: " in content


def test_answers_of_usual_fields_make_the_same_file() -> None:
    """What is usual is what a flag of the same words says."""
    short = answered("software", {"name": "x"})
    assert text("software", short) == text("software", answered("software", dict(short)))
    assert answered("software", {"name": "x", "version": OPEN}) == short

"""Commands of the README and of the pages can be pasted: each is run, in the order of its page.

Where a command needs what no test has, `NEEDS` says what; where it takes seconds, `LONG` leaves it
to the slow tests. The files that a page speaks of are put where it runs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import NCCL, ROOT, told
from grids import rest_slow

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ELSEWHERE = {"limits.md": "test_limits.py", "pictures.md": "docs/pictures.py, which draws them"}
NEEDS = {  # what no test has
    r"\bsrun |^sbatch |^python check\.py|/etc/slurm|^torchrun ": "a cluster",
    r"^ssh ": "another machine",
    r"^nvidia-smi |--backend nccl": "GPUs",
    r"pip install": "a package index; .ci/run takes the README's own",
    r"^oracle serve": "somebody who ends it; test_serve.py asks it",
    r"measure (storage|machine|compute)": "minutes of a machine that nobody else uses",
    r"/scratch|runs/\*": "data or runs of one's own",
    r"job\.log|one\.csv|kernels\.csv|--profile |profile\.jsonl|mpi\.txt|nvme\.json|ior\.out":
        "what one's own machine measured; test_calibrate_command.py and test_run_fit.py read such",
}  # fmt: skip
LONG = (  # what takes a second of a processor or more
    r"^mkdir|^\(cd|^python |import job|/job\b|my-machine/|storage\.jsonl|unet3d|serial offload"
    r"|^oracle (run|choose|design-network|workflow|sweep|report|plot|selftest|compare|explain)\b"
    r"|--to-target|--schedule|^oracle recommend (gpt|llama|cosmoflow)|calibrate convergence"
)
REFUSED = {"--set PP=3", "cuts=join4"}  # shown for the error that they end in


def commands(page: Path) -> Iterator[str]:
    """What one would type, of every block for a shell."""
    text = page.read_text(encoding="utf-8")
    for kind, block in re.findall(r"^ *```(console|bash|sh)\n(.*?)^ *```", text, re.M | re.S):
        whole = re.sub(r"\\\n\s*", "", block)
        for line in map(str.strip, whole.splitlines()):
            if kind == "console" and not line.startswith("$ "):
                continue
            if typed := line.removeprefix("$ "):
                yield typed


COMMANDS = {page: list(commands(page)) for page in PAGES if page.name not in ELSEWHERE}


def need(command: str) -> str:
    """What a command needs that no test has; nothing where it can be run."""
    return next((why for form, why in NEEDS.items() if re.search(form, command)), "")


def taken_to_run(page: Path, *, long: bool) -> list[str]:
    """The commands of a page that are run here."""
    able = [one for one in COMMANDS[page] if not need(one)]
    return able if long else [one for one in able if not re.search(LONG, one)]


def files(page: Path, folder: Path) -> None:
    """What a page calls one's own: a model, a machine, logs, the files of a job."""
    if not any("-o my-model.yaml" in one for one in COMMANDS[page]):
        shutil.copy(ROOT / "specs" / "models" / "lenet5.yaml", folder / "my-model.yaml")
    laptop = (ROOT / "specs" / "systems" / "laptop.yaml").read_text(encoding="utf-8")
    two = laptop.replace("devices: 1", "devices: 4")  # what `measure machine --local 4` writes
    (folder / "my-machine").mkdir()
    (folder / "my-machine" / "system.yaml").write_text(two, encoding="utf-8")
    data = ROOT / "tests" / "data"
    llama = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32000,
        "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
        "num_attention_heads": 32, "num_key_value_heads": 4, "max_position_embeddings": 2048,
        "hidden_act": "silu", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(llama), encoding="utf-8")
    shutil.copy(NCCL, folder / "nccl.log")
    shutil.copy(data / "jobs" / "gpt.sbatch", folder / "train.sbatch")
    (folder / "ds_config.json").write_text('{"zero_optimization": {"stage": 1}}', encoding="utf-8")
    shutil.copy(data / "logs" / "storage.jsonl", folder)
    for name, count in (("one-server", "one-node"), ("two-servers", "two-nodes")):
        text = (ROOT / "notebooks" / "data" / f"{name}.nccl").read_text(encoding="utf-8")
        text = text.replace("Tesla V100-PCIE-16GB", "NVIDIA A100-SXM4-80GB")  # the page's machine
        (folder / f"{count}.nccl").write_text(text, encoding="utf-8")
    rows = ((batch, 40 * (1 + batch / 20000)) for batch in (512, 2048, 8192, 32768))
    text = "\n".join(f"{batch},{epochs:.2f}" for batch, epochs in rows)
    (folder / "runs.csv").write_text(f"batch,epochs\n{text}\n", encoding="utf-8")


def typed(command: str, folder: Path, capsys: Any) -> tuple[int, str]:
    """Its exit code and all that it says: by a shell where it is more than words."""
    words = shlex.split(command, comments=True)
    if words[0] == "oracle" and not re.search(r"[>*~&|]", command.split(" # ")[0]):
        code, out, err = told(capsys, *words[1:])
        return code, out + err
    here = f'oracle() {{ {shlex.quote(sys.executable)} -m oracle "$@"; }}; '
    here += f'python() {{ {shlex.quote(sys.executable)} "$@"; }}; '
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    kept = {**os.environ, "HOME": str(folder), "PYTHONPATH": str(ROOT), "PATH": path}
    done = subprocess.run(["bash", "-c", here + command], capture_output=True, text=True,
                          timeout=240, check=False, env=kept, cwd=folder)  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def run(page: Path, folder: Path, capsys: Any, *, long: bool) -> None:
    """Every command of a page, one after the other in one folder."""
    files(page, folder)
    for command in taken_to_run(page, long=long):
        if re.match("oracle run", command):
            pytest.importorskip("torch")
        code, text = typed(command, folder, capsys)
        refused = any(words in command for words in REFUSED)
        judges = "compare" in command or "check.py" in command  # 1: not within the interval
        fine = (1, 2) if refused else (0, 1) if judges else (0,)
        assert code in fine, f"{page.name}: {command}\n{text}"


@pytest.mark.parametrize(
    "page",
    rest_slow([page for page in COMMANDS if taken_to_run(page, long=False)], [ROOT / "README.md"]),
    ids=lambda page: page.stem,
)
def test_short_commands_of_a_page_run(
    page: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, tmp_path, capsys, long=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page", [page for page in COMMANDS if taken_to_run(page, long=True)], ids=lambda page: page.stem
)
def test_all_commands_of_a_page_run(
    page: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, tmp_path, capsys, long=True)


def test_commands_are_found_and_few_of_them_need_more_than_a_test_has() -> None:
    found = [one for some in COMMANDS.values() for one in some]
    assert len(found) > 90
    assert sum(not need(one) for one in found) > 0.6 * len(found)
    for form in NEEDS:  # each reason is still somebody's
        assert any(re.search(form, one) for one in found), form
    for words in REFUSED:
        assert any(words in one for one in found), words
    for one in found:
        assert "…" not in one.split(" # ")[0] or need(one), f"nobody can paste: {one}"

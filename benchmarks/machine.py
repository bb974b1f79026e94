"""Steps against what a machine measured of itself: `python -m benchmarks.machine`.

    python -m benchmarks.machine [--local 1] [--seconds 120] [--json]

`oracle measure machine` writes a device and a system of the machine at hand; `oracle run` then
times steps on it, which nothing was fitted to, and each is compared with its prediction. With
several ranks the plan is `data`. It needs torch and about five minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from oracle.commands.cli import main as oracle

STEPS = (("lenet5", 64), ("resnet18", 8), ("alexnet", 16), ("resnet50", 4), ("gpt2", 1))


def told(*words: str) -> Any:
    """The JSON answer of a command."""
    out = StringIO()
    with redirect_stdout(out):
        code = oracle([*words, "--json", "-q"])
    if code:
        sys.exit(code)
    return json.loads(out.getvalue())


def compared(folder: Path, ranks: int, seconds: int) -> dict[str, Any]:
    """What curves err by on kernels held out, and predictions by on steps."""
    machine, steps = folder / "machine", []
    found = told("measure", "machine", "--local", str(ranks), "--seconds", str(seconds),
                 "-o", str(machine))  # fmt: skip
    plan = f"data:{ranks}" if ranks > 1 else "serial"
    for model, batch in STEPS:
        if batch % ranks:
            continue
        log = folder / f"{model}.jsonl"
        told("run", model, "--local", str(ranks), "--plan", plan, "--batch", str(batch),
             "-o", str(log))  # fmt: skip
        (one,) = told("compare", str(log), model, str(machine / "system.yaml"), "--precision",
                      "fp32", "--optimizer", "momentum")["plans"]  # fmt: skip
        kept = ("plan", "batch", "predicted", "measured", "accuracy", "covered")
        steps.append({"model": model, **{name: one[name] for name in kept}})
    return {"source": found["source"], "curves": found["curves"], "steps": steps,
            "accuracy": statistics.mean(one["accuracy"] for one in steps)}  # fmt: skip


def text(found: dict[str, Any]) -> str:
    """The same for people."""
    lines = [found["source"], "", f"{'kernels held out':<26}{'number':>7}{'median error':>14}"]
    for one in found["curves"]:
        name = " ".join(filter(None, (one["family"], one["precision"], one["part"])))
        lines.append(f"{name:<26}{one['kernels']:>7}{one['median_error']:>14.1%}")
    lines += ["", f"{'step':<26}{'batch':>7}{'predicted':>12}{'measured':>12}{'accuracy':>10}"]
    for one in found["steps"]:
        name = f"{one['model']} {one['plan']}"
        lines.append(f"{name:<26}{one['batch']:>7}{one['predicted'] * 1e3:>9.1f} ms"
                     f"{one['measured'] * 1e3:>9.1f} ms{one['accuracy']:>10.1%}"
                     + ("" if one["covered"] else "  outside its interval"))  # fmt: skip
    return "\n".join([*lines, f"{'mean':<26}{found['accuracy']:>41.1%}"])


def main() -> None:
    """Measure, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--local", type=int, default=1, metavar="N", help="ranks")
    parser.add_argument("--seconds", type=int, default=120, help="for the machine")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        found = compared(Path(folder), asked.local, asked.seconds)
    print(json.dumps(found, indent=2) if asked.json else text(found))


if __name__ == "__main__":
    main()

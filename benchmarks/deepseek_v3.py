"""DeepSeek-V3 as its report has it, and this year's open models on H100s: hours, MFU, reasons.

    python -m benchmarks.deepseek_v3 [--json]

The report (arXiv 2412.19437, sections 1 and 3.1) says 180 thousand H800-hours for 10¹² tokens on
2,048 H800s: 16 stages, 64 ranks of experts over 8 nodes, the state sharded over replicas (ZeRO-1),
DualPipe, fp8. An H800 is an H100 with 8 of 18 NVLinks. DualPipe is played as its authors' later
half of it (`dualpipe-v`): a bubble of 15 chunks in place of 14, weights held once, not twice. What
the report makes again (norms, up-projections of latent attention) lies between nothing and
`operators`, so both are printed. Micro-batches of one sequence are assumed. Nothing is fitted.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import oracle
from benchmarks.published.table import written

REPORTED = 180e3  # H800-hours for 10¹² tokens
DEVICES, BATCH, SEQUENCE = 2048, 15360, 4096  # the batch that 97 % of the tokens are trained with
PLAN = ("pipeline:16,segments=120,interleave=2,cuts=balanced,schedule=dualpipe-v "
        "data:128,zero=1 expert:64,dispatch=once")  # fmt: skip
OTHERS = [  # the model, devices, batch, what is the fastest that fits
    ("gpt-oss-20b", 16, 256, "data:16,zero=2,accumulate=8 expert:8"),
    ("qwen3-235b-a22b", 256, 1024, "data:256,zero=3 expert:8 recompute:full"),
]


def h800() -> dict[str, Any]:
    """The shipped nodes of H100s with 8 of the 18 NVLinks of each device."""
    found = written("dgx-h100", "systems")
    found["name"] = "dgx-h800"
    found["levels"][0]["ports"] = 8
    return found


def hours(recompute: str = "") -> tuple[float, oracle.Estimate]:
    """H800-hours for 10¹² tokens, and what was asked."""
    plan = f"{PLAN} recompute:{recompute}" if recompute else PLAN
    found = oracle.estimate("deepseek-v3", h800(), plan, BATCH, precision="fp8", optimizer="adam",
                            software="hai-llm", reading="none")  # fmt: skip
    return float(found.seconds[0]) * DEVICES / 3600 / (BATCH * SEQUENCE) * 1e12, found


def utilisation(name: str, batch: int, devices: int, found: oracle.Estimate) -> float:
    """Model FLOP of a second over the devices' bf16 peak."""
    there = oracle.system("dgx-h100").device
    done = oracle.model(name).flop * batch / float(found.seconds[0])
    return done / devices / there.peak["bf16"]


def rows() -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for how in ("", "operators"):
        taken, found = hours(how)
        lines.append({
            "case": f"deepseek-v3, recompute:{how or 'none'}", "value": taken / 1e3,
            "unit": "K H800-hours a 10^12 tokens", "off": taken / REPORTED - 1,
            "mfu": utilisation("deepseek-v3", BATCH, DEVICES, found),
            "memory": float(found.memory[0]) / 2**30, "fits": bool(found.feasible[0]),
        })  # fmt: skip
    for name, devices, batch, plan in OTHERS:
        found = oracle.estimate(name, "dgx-h100", plan, batch, reading="none")
        tokens = batch * SEQUENCE / float(found.seconds[0]) / devices
        lines.append({
            "case": f"{name}, {devices} H100: {plan}", "value": tokens,
            "unit": "tokens/s a device", "off": None,
            "mfu": utilisation(name, batch, devices, found),
            "memory": float(found.memory[0]) / 2**30, "fits": bool(found.feasible[0]),
        })  # fmt: skip
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", dest="as_json")
    found = rows()
    if parser.parse_args().as_json:
        print(json.dumps(found, indent=1))
        return 0
    for row in found:
        off = "" if row["off"] is None else f", {row['off']:+.1%} of the report's"
        fits = "fits" if row["fits"] else "does not fit as predicted"
        print(f"{row['case']}\n  {row['value']:,.0f} {row['unit']}{off}; MFU {row['mfu']:.1%} of "
              f"bf16; {row['memory']:.0f} GiB a device, {fits}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())

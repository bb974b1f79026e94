"""torchtitan's log, which has tokens a second but no seconds a step.

    step: 10  loss: 5.1  memory: 49.66GiB(52.28%)  tps: 5,856  tflops: 339.16  mfu: 34.29%

Tokens are those of one device and of all that its model is cut over: seconds a step are batch ·
sequence / devices / tps, so that batch, sequence and devices must be known. All ranks print.
"""

from __future__ import annotations

import re
from math import prod

from oracle.readers.logs import number
from oracle.readers.runs import RunLog, arguments_of
from oracle.readers.runs.steady import timing

TITLE = "torchtitan's log"
_STEP = re.compile(r"step:\s*(\d{1,12})\s[^\n]{0,300}?\b(?:tps|wps):\s*([\d,.]{1,20})")
_MESH = re.compile(r"device mesh with \[[^\]\n]{0,200}\], \[((?:\d{1,6}, ){0,8}\d{1,6})\]")
_PLAIN = re.compile(r"\x1b\[[\d;]{0,20}m")
ARGUMENTS = {
    "world_size": "devices", "tensor_parallel_degree": "tensor",
    "pipeline_parallel_degree": "pipeline", "context_parallel_degree": "context",
    "expert_parallel_degree": "expert", "global_batch_size": "batch", "seq_len": "sequence",
    "local_batch_size": "local",
}  # fmt: skip


def recognises(text: str) -> bool:
    return bool(_STEP.search(_PLAIN.sub("", text[: 2**20])))


def parse(text: str, path: str) -> RunLog:
    plain = _PLAIN.sub("", text)
    rates: dict[int, float] = {}
    for step, rate in _STEP.findall(plain):
        value = number(rate.replace(",", "").rstrip("."))
        if value:  # the slowest of its ranks
            rates[int(step)] = min(value, rates.get(int(step), value))
    settings = arguments_of(plain, ARGUMENTS)
    if mesh := _MESH.search(plain):
        settings["devices"] = float(prod(int(size) for size in mesh[1].split(",")))
    # tokens a second of one device: the caller, who knows the batch, works out the step
    second_a_token = timing([1 / rates[step] for step in sorted(rates)])
    return RunLog(path, TITLE, second_a_token, settings={**settings, "token": 1.0})

"""NeMo's and Lightning's lines of steps: `train_step_timing in s: 0.031`, in either notation."""

from __future__ import annotations

import re

from oracle.readers.logs import number
from oracle.readers.runs import RunLog, arguments_of
from oracle.readers.runs.steady import timing

TITLE = "NeMo's log"
_STEP = re.compile(r"train_step_timing in s['\"]?\s*[:=]\s*([\d.eE+-]{1,30})")
_AT = re.compile(r"global_step['\"]?\s*[:=]\s*([\d.eE+]{1,20})")
_BATCH = re.compile(r"global_batch_size['\"]?\s*[:=]\s*(\d{1,12})")
ARGUMENTS = {
    "world_size": "devices", "tensor_model_parallel_size": "tensor",
    "pipeline_model_parallel_size": "pipeline", "context_parallel_size": "context",
    "expert_model_parallel_size": "expert", "micro_batch_size": "micro", "seq_length": "sequence",
}  # fmt: skip


def recognises(text: str) -> bool:
    return bool(_STEP.search(text))


def parse(text: str, path: str) -> RunLog:
    steps: dict[str, float] = {}
    for number_of_line, line in enumerate(re.split(r"[\r\n]", text)):
        match = _STEP.search(line[:4000])
        if match and (value := number(match[1])) is not None:
            step = _AT.search(line[:4000])  # progress bars print the same step again
            steps[step[1] if step else str(number_of_line)] = value
    settings = arguments_of(text, ARGUMENTS)
    if batches := _BATCH.findall(text):
        settings["batch"] = float(batches[-1])
    return RunLog(path, TITLE, timing(list(steps.values())), settings=settings)

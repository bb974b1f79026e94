"""Megatron-LM's log: its lines of iterations, and of its arguments when it starts.

     iteration  43/ 100 | … elapsed time per iteration (ms): 5444.9 | throughput per GPU
     (TFLOP/s/GPU): 239.8 | … global batch size:   128 | …

With `--timing-log-level 1` it prints the optimizer's time too: the update.
"""

from __future__ import annotations

import re

from oracle.readers.logs import number
from oracle.readers.runs import RunLog, arguments_of
from oracle.readers.runs.steady import timing

TITLE = "Megatron-LM's log"
_STEP = re.compile(r"elapsed time per iteration \(ms\):\s*([\d.eE+-]{1,30})")
_BATCH = re.compile(r"global batch size:\s*(\d{1,12})")
_UPDATE = re.compile(
    r"^[ \t]*optimizer ?\.{3,80}:? ?\(?\s*([\d.]{1,20})(?:,\s*([\d.]{1,20})\))?", re.M
)
ARGUMENTS = {
    "world_size": "devices", "tensor_model_parallel_size": "tensor",
    "pipeline_model_parallel_size": "pipeline", "context_parallel_size": "context",
    "expert_model_parallel_size": "expert", "data_parallel_size": "data",
    "global_batch_size": "batch", "micro_batch_size": "micro", "seq_length": "sequence",
    "num_layers": "layers", "hidden_size": "hidden",
}  # fmt: skip


def recognises(text: str) -> bool:
    return "elapsed time per iteration (ms)" in text


def parse(text: str, path: str) -> RunLog:
    steps = [value / 1e3 for match in _STEP.findall(text) if (value := number(match)) is not None]
    settings = arguments_of(text, ARGUMENTS)
    # a batch that grows is another run's: the steps are those of the last lines' batch
    batches = _BATCH.findall(text)
    if batches:
        last = batches[-1]
        alike = next((i for i, size in enumerate(reversed(batches)) if size != last), len(batches))
        if alike < len(steps) and len(batches) == len(steps):
            steps = steps[len(steps) - alike :]
        settings["batch"] = float(last)
    updates = [max(map(float, filter(None, match))) / 1e3 for match in _UPDATE.findall(text)
               if all(number(word) is not None for word in filter(None, match))]  # fmt: skip
    update = timing(updates)
    return RunLog(
        path, TITLE, timing(steps), {"update": update} if update else {}, settings=settings
    )

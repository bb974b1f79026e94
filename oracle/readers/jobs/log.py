"""The list of arguments that Megatron-LM prints when it starts: `  hidden_size .... 4096`."""

from __future__ import annotations

import re

from oracle.readers.jobs.sheet import Sheet

TITLE = "a log with Megatron-LM's arguments"
PRECEDENCE = 1

_LINE = re.compile(r"(?:^|\s)([a-z]\w{1,60}) \.{3,80} ?([^\n]{0,200})")
# settings of the framework that a log names by what their flag turns off
TURNED = {
    "add_bias_linear": "disable_bias_linear", "add_position_embedding": "no_position_embedding",
    "overlap_p2p_comm": "no_overlap_p2p_communication", "fp8": "fp8_format",
}  # fmt: skip
# what a start fills in by itself, from the other settings
DERIVED = (
    "data_parallel_size", "virtual_pipeline_model_parallel_size", "params_dtype",
    "transformer_pipeline_model_parallel_size", "decoder_num_layers", "encoder_num_layers",
    "encoder_seq_length", "rank", "local_rank", "consumed_train_samples",
)  # fmt: skip


def recognises(text: str) -> bool:
    """Whether five lines of the list stand anywhere in it."""
    dotted = (line for line in text.splitlines() if " ....." in line)
    return (
        sum(bool(_LINE.search(line[:400])) for line, _ in zip(dotted, range(100), strict=False))
        >= 5
    )


def parse(text: str, name: str, sheet: Sheet) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        found = _LINE.search(line[:400])
        if not found:
            continue
        key, value = found[1], found[2].strip().rpartition("AttnBackend.")[2]
        if key == "world_size":
            sheet.started("world", value, name, number)
        elif key in ("add_bias_linear", "add_position_embedding", "overlap_p2p_comm"):
            if value == "False":
                sheet.put(TURNED[key], "True", name, number)
        elif key not in DERIVED and value not in ("None", "False", ""):
            sheet.put(TURNED.get(key, key), value, name, number)

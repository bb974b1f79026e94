"""The list of arguments that Megatron-LM prints when it starts: `  hidden_size .... 4096`."""

from __future__ import annotations

import re

from oracle.readers.jobs.sheet import Sheet

TITLE = "a log with Megatron-LM's arguments"
PRECEDENCE = 1

_LINE = re.compile(r"(?:^|\s)([a-z]\w{1,60}) \.{3,80} ?([^\n]{0,200})")
# settings that a log names by the feature that their flag turns off
TURNED = {
    "add_bias_linear": "disable_bias_linear", "add_position_embedding": "no_position_embedding",
    "overlap_p2p_comm": "no_overlap_p2p_communication", "fp8": "fp8_format",
}  # fmt: skip
# settings that the framework derives from the others when it starts
DERIVED = (
    "data_parallel_size", "virtual_pipeline_model_parallel_size", "params_dtype",
    "transformer_pipeline_model_parallel_size", "decoder_num_layers", "encoder_num_layers",
    "encoder_seq_length", "rank", "local_rank", "consumed_train_samples",
)  # fmt: skip


def recognises(text: str) -> bool:
    """Return whether a text has five lines of the list anywhere."""
    dotted = (line for line in text.splitlines() if " ....." in line)
    return (
        sum(bool(_LINE.search(line[:400])) for line, _ in zip(dotted, range(100), strict=False))
        >= 5
    )


def parse(text: str, name: str, sheet: Sheet) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.search(line[:400])
        if not match:
            continue
        key, value = match[1], match[2].strip().rpartition("AttnBackend.")[2]
        if key == "world_size":
            sheet.started("world", value, name, number)
        elif key in ("add_bias_linear", "add_position_embedding", "overlap_p2p_comm"):
            if value == "False":
                sheet.add(TURNED[key], "True", name, number)
        elif key not in DERIVED and value not in ("None", "False", ""):
            sheet.add(TURNED.get(key, key), value, name, number)

"""The fields of a model's `config.json`, read by type; every fault is collected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oracle.spec.document import Fault, Place

LARGEST = 2**40  # of any count in a config; a larger one is a slip or an attack
NAMES: dict[str, tuple[str, ...]] = {  # the names of each field, in order of preference
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "ffn": (
        "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "hidden_dim", "d_ff",
        "encoder_ffn_dim",
    ),
    "vocab": ("vocab_size",),
    "sequence": (
        "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx",
    ),
    "width": ("head_dim",),
}  # fmt: skip


@dataclass
class Config:
    """The fields of one config file, read by type; every fault is collected."""

    path: str
    fields: Mapping[str, Any]
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    length: int | None = None  # of the sequence, if another than the config's

    def but(self, fields: Mapping[str, Any]) -> Config:
        """Return the config with other fields, but with the same lists of faults and notes."""
        return Config(self.path, fields, self.faults, self.notes, self.length)

    def fault(self, key: str, complaint: str, hint: str = "") -> None:
        self.faults.append(Fault("E105", complaint, Place(path=key), hint))

    def integer(self, *keys: str, default: int | None = None, smallest: int = 1) -> int | None:
        """Return the first of these fields that exists, as a whole number."""
        for key in keys:
            value = self.fields.get(key)
            if value is None:
                continue
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if (
                isinstance(value, bool)
                or not isinstance(value, int)
                or not smallest <= value <= LARGEST
            ):
                self.fault(key, f"`{key}` is not a whole number from {smallest} on")
                return default
            return value
        return default

    def optional(self, size: str, default: int | None = None) -> int | None:
        """Return a size of `NAMES`, by any of its names."""
        return self.integer(*NAMES[size], default=default)

    def required(self, size: str) -> int:
        """Return a size of `NAMES`; its absence is a fault."""
        value = self.optional(size)
        if value is None:
            if not any(key in self.fields for key in NAMES[size]):
                hint = f"a config says it as `{NAMES[size][0]}`"
                self.faults.append(Fault("E103", f"`{size}` is missing", Place(), hint))
            return 1
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.fields.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fault(key, f"`{key}` is a yes-or-no")
            return default
        return value

    def text(self, key: str, default: str = "") -> str:
        value = self.fields.get(key)
        return value if isinstance(value, str) else default

    def rate(self, *keys: str) -> float:
        """Return the largest of these fields."""
        rates = [self.fields.get(key) for key in keys]
        return max((float(v) for v in rates if isinstance(v, int | float)), default=0.0)

    def counts(self, key: str, default: list[int]) -> list[int]:
        """Return a list of whole numbers, one for each stage of a network."""
        value = self.fields.get(key)
        if value is None:
            return default
        good = isinstance(value, list) and 0 < len(value) <= 64
        if not good or not all(type(v) is int and 0 < v <= LARGEST for v in value):
            self.fault(key, f"`{key}` is not a list of whole numbers")
            return default
        return [int(v) for v in value]

    def nested(self, key: str) -> Mapping[str, Any]:
        value = self.fields.get(key)
        return value if isinstance(value, Mapping) else {}

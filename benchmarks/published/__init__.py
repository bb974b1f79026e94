"""Published measurements of whole training steps, each row as a case to predict.

A table is one function that reads a CSV and yields cases; nothing here is fitted, and no row
carries a constant of its own. What ran a table is said once, with its source: `table` is what a
case, a table and a software are, `megatron`, `deepseek`, `bloom`, `nanotron`, `nemo`, `pytorch`,
`pictures`, `science`, `tpu` and `vision` read; `networks` are families of one shape.
"""

from benchmarks.published import (
    bloom,
    deepseek,
    megatron,
    nanotron,
    nemo,
    pictures,
    pytorch,
    science,
    tpu,
    vision,
)
from benchmarks.published.table import CARRIED, RUNS, TABLES, Case, Row, Table, number, rows, tables

__all__ = [
    "CARRIED", "RUNS", "TABLES", "Case", "Row", "Table", "bloom", "deepseek", "megatron",
    "nanotron", "nemo", "number", "pictures", "pytorch", "rows", "science", "tables", "tpu",
    "vision",
]  # fmt: skip

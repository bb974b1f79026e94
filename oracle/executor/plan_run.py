"""One plan to run, and the question that its results answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oracle.executor.checkpointing.keeping import Keeping
from oracle.executor.question import Question, question

UNITS = ("keep", "offload", "recompute")  # what a unit does with its activations
DTYPES = {"fp32": "float32", "fp64": "float64", "bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True)
class PlanRun:
    """One plan to run, of one model."""

    model: Any  # a shipped name, a path, or the same content as a dict
    plan: str
    batch: int
    steps: int = 8
    warm_up: int = 2
    optimizer: str = "momentum"
    precision: str = "fp32"
    stages: tuple[int, ...] = ()  # edges of the pipeline's stages, in units; () to decide here
    seed: int = 0
    algorithm: str = ""  # the algorithm of sums, `torus2d:2`; empty: the library's own
    units: Sequence[str] = ()  # what each unit does with its activations; () as the plan says
    routing: str = "learned"  # how mixtures choose experts: by their router, or `even`, by turns
    link: Mapping[str, float] | None = None  # B/s of a played link to the host
    data: Mapping[str, Any] | None = None  # fields of `loading.reader.Data`; None: nothing is read
    checkpoint: Mapping[str, Any] | None = None  # fields of `checkpointing.keeping.Keeping`
    fail: Sequence[Mapping[str, Any]] = ()  # fields of `checkpointing.keeping.Planted`
    engine: str = "native"  # that runs it
    software: str = ""  # the software whose buckets and widths the engine uses; empty: its own
    trace: bool = False  # profile one more step; no part of the question

    @property
    def engine_options(self) -> dict[str, str]:
        """The engine and its software, where the engine is not the executor's own."""
        if self.engine == "native":
            return {}
        return {"engine": self.engine, "software": self.software}

    def question(self, ranks: int, backend: str, replay: bool = False) -> Question:
        """The question that results belong to; how many steps are timed is no part of it."""
        options = {"precision": self.precision, "optimizer": self.optimizer, "seed": self.seed,
                   "stages": list(self.stages), "replay": replay}  # fmt: skip
        options |= {"algorithm": self.algorithm} if self.algorithm else {}
        options |= self.engine_options
        options |= {"units": list(self.units)} if self.units else {}
        options |= {"routing": self.routing} if self.routing != "learned" else {}
        options |= {"link": dict(self.link)} if self.link else {}
        if self.data:
            options["data"] = {k: v for k, v in self.data.items() if k not in ("folder", "stage")}
        if self.checkpoint:
            options["checkpoint"] = Keeping(**self.checkpoint).question_fields
        if self.fail:
            options["fail"] = [dict(planted) for planted in self.fail]
        return question(self.model, self.plan, self.batch, options, ranks, backend)

    def state_question(self, ranks: int, backend: str) -> Question:
        """The question that checkpoints belong to, however they are written."""
        full = self.question(ranks, backend)
        results_only = ("replay", "checkpoint", "fail")
        return {k: v for k, v in full.items() if k not in results_only} | {"warm_up": self.warm_up}

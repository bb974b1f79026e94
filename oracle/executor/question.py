"""The question that results answer, kept with them so that none is taken for another's."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from oracle.executor.ranks import records
from oracle.models.model import model
from oracle.spec.document import refusal

Question = dict[str, Any]
PACKAGE = "oracle-training"
# keys of what a plan's ranks record after they have said the question
_OF_A_PLAN = re.compile(r"/((step|again|begin|checkpoint|dies|end) \d+|alive$)")
AGAIN = "name another file with -o, or delete this folder to measure anew"


def question(
    source: Any, plan: str, batch: int, options: Mapping[str, Any], ranks: int, backend: str
) -> Question:
    """All facts that a measured time depends on and that are known before the ranks start."""
    named = model(source)
    return {"model": named.name, "model_sha256": named.fingerprint, "plan": plan, "batch": batch,
            **options, "ranks": ranks, "backend": backend, "oracle": installed(PACKAGE),
            "torch": installed("torch")}  # fmt: skip


def installed(package: str) -> str:
    """The version of a package; `unreleased` for a checkout."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unreleased"


def digest(content: Mapping[str, Any]) -> str:
    """A question's hash."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The facts that differ, in words: `batch was 16 and is 64`."""
    hidden = "model_sha256" if before.get("model") != now.get("model") else ""
    return [
        f"{name} was {_word(before.get(name))} and is {_word(now.get(name))}"
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name) and name != hidden
    ]


def _word(value: Any) -> str:
    return "not said" if value in (None, "", []) else str(value)[:80]


def same(parts: Path, questions: Sequence[Question]) -> None:
    """Refuse to continue what an earlier run left, where it answers another question."""
    by_plan = {entry["plan"]: entry for entry in questions}
    for left in _left(parts):
        before = left.get("question")
        if before is None:
            problem = "an earlier version left results here that do not say what they are of"
            raise refusal(str(parts), problem, AGAIN)
        if before["plan"] not in by_plan:
            problem = f"an earlier run left results of the plan `{before['plan']}` here"
            raise refusal(str(parts), problem, f'add --plan "{before["plan"]}"; or {AGAIN}')
        refuse_changed(parts, before, by_plan[before["plan"]])


def refuse_changed(parts: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise where results that lie there answer another question."""
    if changed := differences(before, now):
        problem = f"an earlier run left results of another question here: {'; '.join(changed)}"
        raise refusal(str(parts), problem, AGAIN)


def _left(parts: Path) -> Iterable[Mapping[str, Any]]:
    """The records that open a plan, or that carry no question, as old versions wrote them."""
    for path in sorted(parts.glob("rank-*.jsonl")):
        for record in records.lines(path):
            if "question" in record or not _OF_A_PLAN.search(str(record.get("key"))):
                yield record

"""The question that results answer: kept with them, so that none is taken for another's."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from oracle.executor import records
from oracle.models.model import model
from oracle.spec.document import refusal

Question = dict[str, Any]
# keys of what a plan's ranks record after they have said the question
_OF_A_PLAN = re.compile(r"/((step|again|begin|checkpoint|dies|end) \d+|alive$)")
AGAIN = "name another file with -o, or delete this folder to measure anew"


def question(
    what: Any, plan: str, batch: int, options: Mapping[str, Any], ranks: int, backend: str
) -> Question:
    """All that a measured time depends on and that is known before the ranks start."""
    found = model(what)
    return {"model": found.name, "model_sha256": found.fingerprint, "plan": plan, "batch": batch,
            **options, "ranks": ranks, "backend": backend, "oracle": installed("oracle-training"),
            "torch": installed("torch")}  # fmt: skip


def installed(package: str) -> str:
    """The version of a package, `unreleased` of a checkout."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unreleased"


def digest(asked: Mapping[str, Any]) -> str:
    """A question's hash."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs, in words: `batch was 16 and is 64`."""
    hidden = "model_sha256" if before.get("model") != now.get("model") else ""
    return [
        f"{name} was {_word(before.get(name))} and is {_word(now.get(name))}"
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name) and name != hidden
    ]


def _word(value: Any) -> str:
    return "not said" if value in (None, "", []) else str(value)[:80]


def same(parts: Path, asked: Sequence[Question]) -> None:
    """Refuse to go on with what an earlier run left, where that answers another question."""
    wanted = {one["plan"]: one for one in asked}
    for left in _left(parts):
        before = left.get("question")
        if before is None:
            what = "an earlier version left results here that do not say what they are of"
            raise refusal(str(parts), what, AGAIN)
        if before["plan"] not in wanted:
            what = f"an earlier run left results of the plan `{before['plan']}` here"
            raise refusal(str(parts), what, f'add --plan "{before["plan"]}"; or {AGAIN}')
        if changed := differences(before, wanted[before["plan"]]):
            what = f"an earlier run left results of another question here: {'; '.join(changed)}"
            raise refusal(str(parts), what, AGAIN)


def _left(parts: Path) -> Iterable[Mapping[str, Any]]:
    """The records that open a plan, or that no version of ours writes without its question."""
    for path in sorted(parts.glob("rank-*.jsonl")):
        for record in records.lines(path):
            if "question" in record or not _OF_A_PLAN.search(str(record.get("key"))):
                yield record

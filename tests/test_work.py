"""The work of an answer is counted: none may grow unnoticed, whatever machine the tests run on."""

from __future__ import annotations

import json

import pytest

from benchmarks import work

RECORD = json.loads(work.RECORD.read_text(encoding="utf-8"))
QUICK = ("help", "recommend_resnet50_1024", "estimate_resnet50_64", "plans_resnet50")


@pytest.mark.parametrize(
    "question",
    [pytest.param(q, marks=() if q in QUICK else pytest.mark.slow) for q in work.QUESTIONS],
)
def test_no_question_takes_more_work_than_recorded(question: str) -> None:
    """What grows for a good reason is recorded anew: `python -m benchmarks.speed --record`."""
    counts = work.counted(question)
    assert counts.keys() == RECORD[question].keys()
    grown = {
        name: (RECORD[question][name], count)
        for name, count in counts.items()
        if count > work.ROOM * RECORD[question][name]
    }
    assert not grown, "grew by more than a tenth: (recorded, now)"


def test_every_question_is_recorded() -> None:
    assert RECORD.keys() == set(work.QUESTIONS)

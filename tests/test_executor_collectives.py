"""The micro-benchmark measures what it says, keeps what it finished, and the reader reads it."""

from pathlib import Path

import pytest

from oracle.executor.measure import collectives
from oracle.executor.measure.collectives import OPERATIONS, measure_collectives, shapes_of
from oracle.executor.messages.calls import GroupShape
from oracle.executor.ranks.launch import DONE
from oracle.executor.ranks.records import Records, lines
from oracle.readers.logs import read
from oracle.spec.document import SpecError


def test_shapes_are_slices_of_the_ranks():
    assert GroupShape(2, 4, 4).members(8) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert GroupShape(4, 1, 2).members(8) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert GroupShape(3).members(2) == []


def test_shapes_of_a_cluster_cover_every_level_alone_and_together():
    shapes = shapes_of(16, 4)
    for wanted in ((16,), (4,), (4, 1, 4), (4, 4), (4, 4, 4)):
        assert GroupShape(*wanted) in shapes
    assert shapes_of(1, 1) == []
    assert shapes_of(4, 4) == [GroupShape(4), GroupShape(2), GroupShape(2, 1, 2)]
    assert shapes_of(3, 3) == [GroupShape(3), GroupShape(2)]


def test_slowest_rank_is_the_time_of_a_repeat(tmp_path):
    for rank, each in enumerate([[1.0, 5.0], [2.0, 4.0], []]):  # the third is in no group
        file = Records(tmp_path / f"rank-{rank:05d}.jsonl")
        file.append({"key": "world", "world": {"ranks": 3, "backend": "gloo"}, "oracle": "1",
                     "date": "2026-11-21"})  # fmt: skip
        file.append({"key": "s", "operation": "allreduce", "bytes": 4, "ranks": 2, "each": each})
        file.close()
    assert collectives.merge(tmp_path, tmp_path / "out.jsonl", complete=False) == 1
    _, sample, end = lines(tmp_path / "out.jsonl")
    assert sample["seconds"] == [2.0, 5.0]
    assert end["end"] == "incomplete"


def test_unknown_operation_is_refused():
    with pytest.raises(SpecError, match="did you mean `allreduce`") as caught:
        measure_collectives(Path("unused"), ranks=2, operations=["allredcue", "gossip"])
    assert len(caught.value.faults) == 2


def test_ranks_that_are_not_those_of_before_are_refused(tmp_path):
    """Four ranks' samples must not come out as those of two, nor the other way round."""
    folder = tmp_path / "out.jsonl.parts"
    folder.mkdir()
    file = Records(folder / "rank-00000.jsonl")
    file.append({"key": "world", "world": {"ranks": 4, "backend": "gloo"}, "oracle": "1",
                 "date": "2026-11-21"})  # fmt: skip
    file.close()
    with pytest.raises(SpecError, match="had ranks 4; this one has 2"):
        measure_collectives(tmp_path / "out.jsonl", ranks=2)
    with pytest.raises(SpecError, match="had backend gloo; this one has nccl"):
        measure_collectives(tmp_path / "out.jsonl", ranks=4, backend="nccl")


@pytest.mark.flaky(reruns=1)
@pytest.mark.slow
def test_measures_every_operation_and_goes_on_where_it_ended(tmp_path):
    pytest.importorskip("torch")
    out, shapes = tmp_path / "out.jsonl", [GroupShape(3), GroupShape(2, 1), GroupShape(1)]
    common = {"ranks": 3, "shapes": shapes[:2], "repeats": 3, "longest": 0.2,
              "backend": "ordered"}  # fmt: skip
    said = []
    assert measure_collectives(out, sizes=[600], say=said.append, **common).code == DONE
    assert len(said) == 2 * len(OPERATIONS)
    assert "to go" in said[-1]
    assert measure_collectives(out, sizes=[600, 6000], say=said.append, **common).code == DONE
    assert len(said) == 4 * len(OPERATIONS)  # nothing twice
    reading = read(str(out))
    assert not reading.skipped
    assert {sample.operation for sample in reading.samples} == set(OPERATIONS)
    assert len(reading.samples) == 4 * len(OPERATIONS)
    assert {sample.nbytes for sample in reading.samples} == {600, 6000}
    assert all(sample.seconds > 0 and sample.iterations >= 3 for sample in reading.samples)

"""Calibration: planted truths come back, degenerate data is refused, nothing is half-written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.calibration import calibrate as calibration
from oracle.calibration import fit
from oracle.calibration.calibrate import calibrate
from oracle.calibration.pools import pooled
from oracle.calibration.spec_block import block, with_block
from oracle.network.contention import lines
from oracle.readers.logs import InputError, Reading, Sample, read
from oracle.spec import catalogue
from oracle.spec.document import SpecError

SIZES = 2.0 ** np.arange(10, 29)
RANKS = (2, 4, 8, 16, 32)

SYSTEM = """name: toy
device:
  name: toy
  memory: 16 GiB
  memory_bandwidth: 900 GB/s
  peak: {fp32: 15 TFLOP/s}
  source: made up
levels:
  - {name: node, devices: 4, bandwidth: 25 GB/s, latency: 2 us, source: made up}
  - {name: room, devices: 128, bandwidth: 12 GB/s, latency: 4 us, source: made up}
# a remark that stays
source: made up
"""


def planted(
    base: float,
    latency: float,
    bandwidth: float,
    ranks: tuple[int, ...] = RANKS,
    sizes: np.ndarray = SIZES,
    noise: float = 0.0,
    seed: int = 0,
    nodes: bool = False,
) -> list[Sample]:
    """Samples of a ring allreduce of known cost."""
    dice = np.random.default_rng(seed)
    return [
        Sample(
            "allreduce", float(m),
            float((base + 2 * (p - 1) * latency + 2 * (p - 1) / p * m / bandwidth)
                  * np.exp(dice.normal(0, noise))),
            p, max(1, p // 4) if nodes else 1, min(p, 4) if nodes else p,
            library="nccl", memory="device", where=f"log.txt:{p}",
        )
        for p in ranks
        for m in sizes
    ]  # fmt: skip


def reading(samples: list[Sample], name: str = "log.txt") -> Reading:
    placed = tuple(sample._replace(where=f"{name}:{k}") for k, sample in enumerate(samples, 1))
    return Reading(name, "nccl-tests text", placed,
                   {"tool": "nccl-tests 2.19", "date": "2024-05-06", "device": "Toy"})  # fmt: skip


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(SYSTEM)
    return path


# fits


def test_an_exact_line_comes_back_exactly() -> None:
    found = pooled("allreduce", "node", planted(7e-6, 3e-6, 40e9)).fitted()
    (line,) = found.lines
    assert line.values == pytest.approx([7e-6, 3e-6, 1 / 40e9], rel=1e-5)
    assert not found.factors
    assert np.abs(found.residual).max() < 1e-6


def test_two_protocols_come_back() -> None:
    small, large = planted(7e-6, 1e-6, 5e9), planted(7e-6, 4e-6, 80e9)
    samples = [min(pair, key=lambda s: s.seconds) for pair in zip(small, large, strict=True)]
    found = pooled("allreduce", "node", samples).fitted()
    slopes = sorted(1 / line.values[2] for line in found.lines)
    assert slopes == pytest.approx([5e9, 80e9], rel=1e-3)


def test_a_parameter_more_must_be_worth_it() -> None:
    """Bayes: n ln(loss/n) + k ln n. Of 20 samples one costs ln 20; a loss 1/e of it gains 20."""
    none = np.ones(20)
    problem = fit.Problem(none, none, none, [fit.Form("ring", none, none)])
    assert problem.criterion(2.0, 4) - problem.criterion(2.0, 3) == pytest.approx(np.log(20))
    assert problem.criterion(2.0, 3) - problem.criterion(2.0 / np.e, 3) == pytest.approx(20)


def test_the_spread_of_residuals_is_that_of_the_middle_one() -> None:
    """Of distances 1, 1, 2, 3, 100 the middle is 2; a normal's is 1/1.4826 of its deviation."""
    assert fit.spread(np.array([-1, 1, 2, -3, 100.0])) == pytest.approx(2 * 1.4826)


def test_a_factor_between_rank_counts_is_halfway_in_logarithms() -> None:
    """1 at 2 ranks and 4 at 8: 2 at 4; beyond them as at the nearest."""
    none = np.zeros(1)
    found = fit.Envelope((), {2.0: 1.0, 8.0: 4.0}, 0.0, 0.0, none, none.astype(int))
    assert found.factor(np.array([1.0, 2, 4, 8, 64])) == pytest.approx([1, 1, 2, 4, 4])


@pytest.mark.parametrize("seed", range(5))
def test_outliers_are_named_and_do_not_move_the_fit(seed: int) -> None:
    samples = planted(7e-6, 3e-6, 40e9, noise=0.02, seed=seed)
    bad = {3, 20, 47, 77}
    samples = [s._replace(seconds=s.seconds * 3) if k in bad else s for k, s in enumerate(samples)]
    found = pooled("allreduce", "node", samples).fitted()
    assert set(found.outliers.tolist()) == bad
    (line,) = found.lines
    assert line.values[1:] == pytest.approx([3e-6, 1 / 40e9], rel=0.02)


def test_planted_truths_lie_in_their_intervals() -> None:
    held, errors = [], []
    for seed in range(15):
        dice = np.random.default_rng(seed)
        truth = np.array(
            [dice.uniform(5e-6, 2e-5), dice.uniform(1e-6, 1e-5), 1 / dice.uniform(5e9, 2e11)]
        )
        samples = planted(truth[0], truth[1], 1 / truth[2], noise=0.05, seed=seed)
        hit = dice.random(len(samples)) < 0.05
        samples = [s._replace(seconds=s.seconds * 2) if h else s
                   for s, h in zip(samples, hit, strict=True)]  # fmt: skip
        (line,) = pooled("allreduce", "node", samples).fitted().lines
        off = np.abs(line.values - truth)
        errors.append(off / truth)
        held.append(off <= fit.NORMAL90 * line.sigma)
    assert (np.median(errors, axis=0)[1:] < 0.02).all()
    assert np.mean(held) >= 0.75  # 90 % of 45, less three standard deviations


@pytest.mark.parametrize(
    ("name", "steps", "volume"),
    [
        ("ring", lambda p: 2 * (p - 1), lambda p: 2 * (p - 1) / p),
        ("recursive_doubling", np.log2, np.log2),
        ("halving_doubling", lambda p: 2 * np.log2(p), lambda p: 2 * (p - 1) / p),
    ],
)
def test_the_algorithm_is_found_by_evidence(name: str, steps, volume) -> None:
    dice = np.random.default_rng(1)
    samples = [
        Sample("allreduce", float(m), float((5e-6 + steps(p) * 4e-6 + volume(p) * m / 2e10)
                                            * np.exp(dice.normal(0, 0.03))), p, 1, p)
        for p in RANKS for m in SIZES
    ]  # fmt: skip
    pool = pooled("allreduce", "node", samples)
    found = pool.fitted()
    assert {pool.forms[line.form].algorithm for line in found.lines} == {name}


def test_a_bandwidth_that_differs_by_rank_count_is_seen() -> None:
    samples = [s._replace(seconds=s.seconds * (1.6 if s.ranks == 4 else 1.0))
               for s in planted(1e-7, 1e-7, 40e9, ranks=(2, 4, 8))]  # fmt: skip
    found = pooled("allreduce", "node", samples).fitted()
    assert found.factors[4.0] / found.factors[8.0] == pytest.approx(1.6, rel=0.02)
    between = found.factor(np.array([6.0]))[0]
    assert found.factors[8.0] < between < found.factors[4.0]


def test_joint_fits_extrapolate_in_ranks() -> None:
    samples = planted(7e-6, 3e-6, 40e9, noise=0.03, sizes=SIZES[::3])
    pool = pooled("allreduce", "node", samples)
    assert np.nanmedian(np.abs(pool.left_out(pool.ranks))) < 0.05
    assert np.nanmedian(np.abs(pool.left_out(pool.nbytes))) < 0.05


@settings(deadline=None, max_examples=12)
@given(st.lists(st.floats(1e-6, 1e-1), min_size=12, max_size=40))
def test_whatever_the_samples_the_envelope_is_monotone_and_positive(seconds: list[float]) -> None:
    samples = [Sample("allreduce", float(2 ** (k % 12 + 6)), t, 2 + 2 * (k % 3), 1, 2 + 2 * (k % 3))
               for k, t in enumerate(seconds)]  # fmt: skip
    pool = pooled("allreduce", "node", samples)
    found = pool.fitted()
    for line in found.lines:
        assert (line.values >= 0).all()
        assert np.isfinite(line.covariance).all()
    sizes = np.geomspace(1, 1e9, 60)
    ranks = np.full(60, 4.0)
    many = pooled("allreduce", "node", [Sample("allreduce", m, 1e-3, 4, 1, 4) for m in sizes])
    names = {form.algorithm: form for form in many.forms}
    if all(form.algorithm in names for form in pool.forms):
        forms = [names[form.algorithm] for form in pool.forms]
        assert (np.diff(fit.predicted(found, forms, ranks)) >= 0).all()


def test_a_fit_carries_over_to_groups_the_log_did_not_have(toy: Path, tmp_path: Path) -> None:
    """Two ranks of two nodes, four pairs at once: no faster than the wires, near to them."""
    between = planted(9e-6, 4e-6, 20e9, ranks=(8, 16, 32), nodes=True)
    calibrate([reading(between)], toy).write(tmp_path / "new.yaml")
    system = catalogue.system(tmp_path / "new.yaml")
    (packed,) = lines(system, "allreduce", ((8, 1),), 8)
    assert packed.per_byte == pytest.approx(2 * 7 / 8 / 20e9, rel=1e-3)
    (strided,) = lines(system, "allreduce", ((2, 4),), 8)
    wires = 4 / (4 * 12e9)  # of each byte four leave a node, which has a port for each device
    assert wires <= strided.per_byte <= 1.5 * wires


# what is refused, and what is said


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        (planted(7e-6, 3e-6, 4e10, sizes=np.array([1024.0])), "one size only"),
        (planted(7e-6, 3e-6, 4e10, sizes=np.array([1024.0, 2048.0, 4096.0])), "factor of eight"),
        (planted(7e-6, 3e-6, 4e10, ranks=(4,), sizes=SIZES[:3] ** 2), "too few"),
        ([s._replace(ranks=None) for s in planted(7e-6, 3e-6, 4e10)], "how many ranks"),
        ([s._replace(per_rank=True) for s in planted(7e-6, 3e-6, 4e10)], "how many ranks"),
        ([s._replace(window=64) for s in planted(7e-6, 3e-6, 4e10)], "no latency"),
        ([s._replace(groups=None) for s in planted(7e-6, 3e-6, 4e10)], "pairs talked"),
        ([s._replace(operation="gossip") for s in planted(7e-6, 3e-6, 4e10)], "priced"),
        ([s._replace(nodes=3, ranks=8) for s in planted(7e-6, 3e-6, 4e10)], "unequal"),
        ([s._replace(nodes=99, ranks=396) for s in planted(7e-6, 3e-6, 4e10)], "do not fit"),
        ([s._replace(operation="sendrecv", nodes=None, ranks=2) for s in planted(7e-6, 3e-6, 4e10)],
         "share a node"),
    ],
)  # fmt: skip
def test_degenerate_data_is_refused_with_its_reason(
    samples: list[Sample], why: str, toy: Path
) -> None:
    found = calibrate([reading(samples)], toy)
    assert not found.entries
    assert any(why in reason for _, reason in found.refused), found.refused
    assert why in found.text()


def test_one_rank_count_says_what_it_cannot_know(toy: Path) -> None:
    found = calibrate([reading(planted(7e-6, 3e-6, 4e10, ranks=(4,)))], toy)
    (entry,) = found.entries
    assert entry.base == pytest.approx(entry.latency * 6, rel=1e-3)  # half each
    assert entry.base + 6 * entry.latency == pytest.approx(25e-6, rel=1e-3)
    assert "cannot be told" in unwrapped(found)


def test_levels_are_kept_apart_and_host_buffers_out(toy: Path) -> None:
    inside = planted(2e-6, 1e-6, 1e11, ranks=(2, 4))
    between = planted(9e-6, 4e-6, 1e10, ranks=(8, 16, 32), nodes=True)
    hosts = [s._replace(memory="host", seconds=s.seconds * 9) for s in between]
    found = calibrate([reading([*inside, *between, *hosts])], toy)
    by_level = {entry.level: entry for entry in found.entries}
    assert by_level["node"].bandwidth == pytest.approx(1e11, rel=1e-3)
    assert by_level["room"].bandwidth == pytest.approx(1e10, rel=1e-3)
    assert by_level["room"].ranks == (8, 32)
    assert any("host" in why for _, why in found.refused)


def test_a_node_of_two_sockets_is_one_node(tmp_path: Path) -> None:
    """Six devices of two sockets are inside; a log of twelve ranks is of two nodes."""
    path = tmp_path / "two.yaml"
    socket = "  - {name: socket, devices: 3, bandwidth: 25 GB/s, latency: 2 us, source: made up}\n"
    path.write_text(SYSTEM.replace("devices: 4,", "devices: 6, link: pcie,")
                    .replace("devices: 128", "devices: 96")
                    .replace("  - {name: node", f"{socket}  - {{name: node"))  # fmt: skip
    inside = planted(2e-6, 1e-6, 1e11, ranks=(6,))
    between = [s._replace(nodes=None, ranks_per_node=None)
               for s in planted(9e-6, 4e-6, 1e10, ranks=(12, 24, 48))]  # fmt: skip
    found = calibrate([reading([*inside, *between])], path)
    assert {entry.level for entry in found.entries} == {"node", "room"}
    assert {s.nodes for fit in found.fits for s in fit.pool.samples} == {1, 2, 4, 8}
    found.write(tmp_path / "new.yaml")
    known = catalogue.system(tmp_path / "new.yaml")
    (six,) = lines(known, "allreduce", ((6, 1),), 6)
    assert (six.origin, six.per_byte) == ("fitted", pytest.approx(2 * 5 / 6 / 1e11, rel=1e-3))
    # a socket was not measured, and what a node says is not of the way out of it
    assert {x.origin for x in lines(known, "allreduce", ((3, 1),), 6)} == {"datasheet"}
    (twelve,) = lines(known, "allreduce", ((12, 1),), 12)
    assert twelve.start == pytest.approx(9e-6 + 2 * 11 * 4e-6, rel=1e-3)
    only = calibrate([reading(inside)], path)
    assert "allreduce beyond it" in only.remaining
    assert "allreduce in the node" not in only.remaining
    only.write(tmp_path / "only.yaml")
    beyond = lines(catalogue.system(tmp_path / "only.yaml"), "allreduce", ((12, 1),), 12)
    assert {x.origin for x in beyond} == {"datasheet"}


def test_devices_that_are_nodes_are_one_pool() -> None:
    """Where a device is a node of its own, every rank count is between nodes."""
    samples = [s._replace(nodes=None, ranks_per_node=None, library="mpi", memory="host")
               for s in planted(9e-6, 4e-6, 1e10, ranks=(2, 4, 8, 16))]  # fmt: skip
    found = calibrate([reading(samples)], "cori-knl")
    assert [fit.pool.level for fit in found.fits] == ["system"]
    assert {s.nodes for s in found.fits[0].pool.samples} == {2, 4, 8, 16}
    assert "allreduce" not in found.remaining
    assert "allgather" in found.remaining


def unwrapped(found: calibration.Calibration) -> str:
    """The report on one line."""
    return " ".join(found.text().split())


def test_nodes_that_a_log_leaves_out_are_taken_as_packed(toy: Path) -> None:
    samples = [s._replace(nodes=None, ranks_per_node=None)
               for s in planted(9e-6, 4e-6, 1e10, ranks=(8, 16))]  # fmt: skip
    assert {e.level for e in calibrate([reading(samples)], toy).entries} == {"room"}


def test_the_report_has_all_that_was_asked_of_it(toy: Path) -> None:
    found = calibrate(
        [reading(planted(7e-6, 3e-6, 4e10, noise=0.03, ranks=(8, 16, 32), nodes=True))], toy
    )
    text = found.text()
    for part in ("ring", "±", "R²", "a size left out", "a rank count left out", "farthest off",
                 "by size", "still at datasheet values", "1 KiB to 256 MiB"):  # fmt: skip
        assert part in text
    data = found.to_dict()
    assert data["fits"][0]["r2"] > 0.99
    assert [row["bytes"] for row in data["fits"][0]["residuals"]] == SIZES.tolist()
    assert data["fits"][0]["errors"]["ranks left out"]["large"] < 0.1


# the new spec


def written(found: calibration.Calibration, path: Path) -> str:
    found.write(path)
    return path.read_text()


def test_the_new_spec_reads_back_and_keeps_the_text(toy: Path, tmp_path: Path) -> None:
    found = calibrate(
        [reading(planted(7e-6, 3e-6, 4e10, noise=0.02, ranks=(8, 16), nodes=True))], toy
    )
    text = written(found, tmp_path / "new.yaml")
    assert text.startswith(SYSTEM)
    (entry,) = catalogue.system(tmp_path / "new.yaml").collectives
    assert entry == found.entries[0]
    assert entry.source == "nccl-tests 2.19: log.txt; 2024-05-06; Toy"
    assert entry.uncertainty["residual"] > 0


def test_calibrating_again_replaces_and_keeps_the_rest(toy: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "1.yaml", tmp_path / "2.yaml"
    inside = planted(2e-6, 1e-6, 1e11, ranks=(2, 4))
    between = planted(9e-6, 4e-6, 1e10, ranks=(8, 16, 32), nodes=True)
    written(calibrate([reading([*inside, *between])], toy), first)
    slower = [s._replace(seconds=s.seconds * 2) for s in inside]
    text = written(calibrate([reading(slower, "newer.txt")], first), second)
    by_level = {e.level: e for e in catalogue.system(second).collectives}
    assert by_level["node"].bandwidth == pytest.approx(5e10, rel=1e-3)
    assert by_level["room"].bandwidth == pytest.approx(1e10, rel=1e-3)
    assert text.count("collectives:") == 1


def test_the_block_may_stand_anywhere() -> None:
    new = "collectives:\n  - {op: x}\n"
    middle = "a: 1\ncollectives:\n  - {op: old,\n     y: 1}\n# note\n- still: old\nb: 2\n"
    assert with_block(middle, new) == "a: 1\n" + new + "b: 2\n"
    assert with_block("a: 1", new) == "a: 1\n" + new


def test_awkward_names_survive(toy: Path, tmp_path: Path) -> None:
    name = "a: [#'\"\\ {x}\n- é\u202e\x00.txt" * 4
    found = calibrate([reading(planted(7e-6, 3e-6, 4e10, ranks=(8, 16), nodes=True), name)], toy)
    written(found, tmp_path / "new.yaml")
    (entry,) = catalogue.system(tmp_path / "new.yaml").collectives
    assert "é" in entry.source
    assert all(len(line) <= 100 for line in block(found.entries).splitlines()
               if " " in line.strip())  # fmt: skip


def test_same_input_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    script = (
        "import sys; from oracle.readers import logs;"
        "from oracle.calibration.calibrate import calibrate;"
        "found = calibrate([logs.read(p) for p in sys.argv[3:]], sys.argv[1]);"
        "found.write(sys.argv[2]); sys.stdout.write(found.text())"
    )
    (tmp_path / "toy.yaml").write_text(SYSTEM)
    log = tmp_path / "log.jsonl"
    rows = [
        f'{{"operation": "allreduce", "bytes": {s.nbytes:.0f}, "ranks": {s.ranks}, "nodes": 1, '
        f'"seconds": {s.seconds!r}}}'
        for s in planted(7e-6, 3e-6, 4e10, ranks=(2, 4), noise=0.05, sizes=SIZES[::2])
    ]
    log.write_text("\n".join(['{"oracle-measurement": 1}', *rows, '{"end": "complete"}']))
    results = set()
    for seed in ("0", "1", "random"):
        out = tmp_path / f"{seed}.yaml"
        told = subprocess.run(
            [sys.executable, "-c", script, tmp_path / "toy.yaml", out, log],
            env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True,
        ).stdout  # fmt: skip
        results.add((out.read_bytes(), told))
    assert len(results) == 1


def test_no_input_is_written_over(toy: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("precious")
    samples = planted(7e-6, 3e-6, 4e10, ranks=(8, 16), nodes=True)
    found = calibrate([reading(samples, str(log))], toy)
    link = tmp_path / "link.yaml"
    link.symlink_to(toy)
    for path in (toy, log, link):
        with pytest.raises(InputError, match="is an input"):
            found.write(path)
    assert toy.read_text() == SYSTEM
    assert log.read_text() == "precious"


def test_a_failed_write_leaves_the_old_file(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = calibrate([reading(planted(7e-6, 3e-6, 4e10, ranks=(8, 16), nodes=True))], toy)
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / "new.yaml"
    target.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left"):
        found.write(target)
    assert target.read_text() == "old"
    assert os.listdir(folder) == ["new.yaml"]
    with pytest.raises(InputError):
        found.write(folder / "none" / "new.yaml")
    with pytest.raises(InputError):
        found.write(folder)


def test_systems_that_are_no_file(toy: Path, tmp_path: Path) -> None:
    as_object = catalogue.system(toy)
    found = calibrate([reading(planted(7e-6, 3e-6, 4e10, ranks=(8, 16), nodes=True))], as_object)
    assert len(found.entries) == 1
    with pytest.raises(InputError, match="no file"):
        found.write(tmp_path / "new.yaml")
    with pytest.raises(SpecError):
        calibrate([], "no-such-system")


def test_noise_and_changes_of_the_library_are_told_apart(toy: Path) -> None:
    """Repeats that agree while the fit does not: the library jumps; noise alone says nothing."""
    noisy = [s for seed in (1, 2) for s in planted(7e-6, 3e-6, 4e10, noise=0.05, seed=seed)]
    found = calibrate([reading(noisy)], toy)
    assert 0.04 < found.fits[0].pool.repeats < 0.08
    assert "changes its ways" not in unwrapped(found)
    jumps = [s._replace(seconds=s.seconds * (1.3 if np.log2(s.nbytes) % 3 == 0 else 1.0) * again)
             for s in planted(7e-6, 3e-6, 4e10) for again in (1.0, 1.004)]  # fmt: skip
    found = calibrate([reading(jumps)], toy)
    assert found.fits[0].pool.repeats == pytest.approx(0.004, rel=0.01)
    assert "the same call again differs by 0.4% only" in unwrapped(found)
    assert "repeats within 0.4%" in found.text()
    assert found.to_dict()["fits"][0]["repeats"] == found.fits[0].pool.repeats
    single = calibrate([reading(planted(7e-6, 3e-6, 4e10))], toy)
    assert single.to_dict()["fits"][0]["repeats"] is None
    assert "repeats within – (none)" in single.text()


def test_no_readings_no_fits(toy: Path) -> None:
    found = calibrate([], toy)
    assert not found.entries
    assert "allreduce in the node" in found.remaining
    assert "allreduce beyond it" in unwrapped(found)


def test_logs_of_every_kind_at_once() -> None:
    folder = Path(__file__).parent / "data" / "logs"
    found = calibrate([read(path) for path in sorted(folder.iterdir())], "abci")
    assert {fit.pool.op for fit in found.fits} >= {"allreduce"}
    text = found.text()
    assert "-C 1 prints the CPU's time" in text
    assert "a stream of messages" in text

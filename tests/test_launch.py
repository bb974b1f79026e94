"""Starting, watching and ending ranks: nothing finished is lost, and every failure is named."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from oracle.executor.ranks import faults, records
from oracle.executor.ranks.faults import RankFault
from oracle.executor.ranks.heartbeat import Heartbeat, Status, last_status
from oracle.executor.ranks.launch import DONE, FAILED, TERMINATED, Host, _Supervisor, launch
from oracle.executor.ranks.world import World, WorldError, recognise

HERE = Path(__file__).parent
PATH = os.pathsep.join([str(HERE), str(HERE.parent)])
pytestmark = pytest.mark.flaky(reruns=1)  # ranks wait for each other, and for the machine
TASK = "launch_tasks:exchange"
HOST = Host(environment=lambda rank: {"PYTHONPATH": PATH, "ORACLE_HOST": f"node{rank}"})


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, World(3, 8, 1, "torchrun")),
        (
            {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "SLURM_JOB_ID": "9"},
            World(2, 4, 2, "mpirun (Open MPI)"),
        ),
        (
            {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6", "SLURM_LOCALID": "1"},
            World(5, 6, 1, "srun"),
        ),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, World(0, 2, 0, "mpiexec (PMI)")),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),  # a batch script
        (
            {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_ID": "4294967291"},
            None,
        ),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
            World(1, 2, 1, "torchrun"),  # torchrun inside srun
        ),
    ],
)
def test_every_launcher_is_recognised(environment, expected):
    assert recognise(environment) == expected


@pytest.mark.parametrize("rank", ["8", "-1", "one", ""])
def test_contradicting_launcher_is_refused(rank):
    with pytest.raises(WorldError, match="torchrun"):
        recognise({"RANK": rank, "WORLD_SIZE": "8"})


def test_torn_tail_is_cut_and_whole_lines_are_kept(tmp_path):
    path = tmp_path / "rank-00000.jsonl"
    first = records.Records(path)
    first.append({"key": "a", "seconds": 1.0})
    first.close()
    with open(path, "ab") as file:
        file.write(b'{"key": "b", "sec')
    again = records.Records(path)
    again.append({"key": "c", "seconds": 2.0})
    again.close()
    assert [record["key"] for record in records.lines(path)] == ["a", "c"]


def test_only_samples_of_all_ranks_are_merged(tmp_path):
    for rank, keys in enumerate(["abc", "ab", "acb"]):
        file = records.Records(tmp_path / f"rank-{rank:05d}.jsonl")
        for key in keys:
            file.append({"key": key, "rank": rank})
        file.close()
    assert sorted(records.of_all_ranks(tmp_path, 3)) == ["a", "b"]


def test_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "out.jsonl"
    records.write_whole(path, "old\n")
    with pytest.raises(ValueError, match="JSON compliant"):
        records.write_lines(path, [{"seconds": float("nan")}])
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]


def test_cause_stands_before_consequence():
    lost = RankFault(0, "n0", "connection", "raised RuntimeError", when=1.0)
    killed = RankFault(2, "n2", "killed", "was killed by SIGKILL", when=1.4)
    assert faults.root_cause([lost, killed]) == killed


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), "memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "memory"),
        (RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer"), "connection"),
        (ConnectionResetError(), "connection"),
        (ValueError("shapes differ"), "raised"),
    ],
)
def test_kinds_of_exceptions(error, kind):
    assert faults.of_exception(error)[0] == kind


def test_the_last_status_can_be_read_by_others(tmp_path):
    heartbeat = Heartbeat(tmp_path, 3, "n3")
    heartbeat.enter("forward", "conv1", 7)
    status = last_status(tmp_path, 3)
    assert status is not None
    assert (status.host, status.activity()) == ("n3", "step 7, forward: conv1")
    assert last_status(tmp_path, 4) is None


def test_user_code_needs_an_explicit_word(tmp_path):
    with pytest.raises(PermissionError, match="user code"):
        launch(TASK, {}, tmp_path, ranks=1)


def run(folder, ranks=3, timeout=120.0, **arguments):
    pytest.importorskip("torch")
    given = {"steps": 5, **arguments}
    return launch(TASK, given, folder, ranks=ranks, timeout=timeout, trust=True, host=HOST)


def pids_of(folder):
    attempts = sorted(folder.glob("attempt-*"))
    found = (last_status(attempts[-1], rank) for rank in range(8))
    return [status.pid for status in found if status]


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


@pytest.mark.slow
def test_resumes_where_it_was_ended(tmp_path):
    assert run(tmp_path, steps=3).code == DONE
    assert run(tmp_path, steps=5).code == DONE
    found = records.of_all_ranks(tmp_path, 3)
    assert sorted(found) == [f"step {step}" for step in range(1, 6)]
    assert len(list(records.lines(tmp_path / "rank-00000.jsonl"))) == 5  # none was done twice
    assert len({record["pid"] for of_ranks in found.values() for record in of_ranks}) == 6


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("SIGKILL", "was killed by SIGKILL"),
        pytest.param("raise", "raised ValueError: planted", marks=pytest.mark.slow),
        pytest.param("memory", "ran out of memory", marks=pytest.mark.slow),
        pytest.param("exit", "ended with exit code 7", marks=pytest.mark.slow),
    ],
)
def test_failure_names_rank_host_phase_and_operation(tmp_path, how, words):
    outcome = run(tmp_path, fails={"rank": 1, "step": 4, "how": how})
    assert outcome.code == FAILED
    for part in ("rank 1 on node1", words, "step 4, exchange: allreduce of 1 KiB"):
        assert part in outcome.message
    assert sorted(records.of_all_ranks(tmp_path, 3)) == ["step 1", "step 2", "step 3"]
    assert all(map(gone, pids_of(tmp_path)))


def watched(folder, beats):
    """A supervisor of as many ranks, all in one exchange, and a way to let them beat."""
    supervisor = _Supervisor(folder, World(size=len(beats)), False, 8.0, lambda _: None, HOST)

    def beat(numbers):
        for rank, number in enumerate(numbers):
            said = Status(rank, f"node{rank}", 1, number, "exchange", "allreduce", 1, 7)
            (folder / f"beat-{rank:05d}").write_text(json.dumps(asdict(said)))

    beat(beats)
    supervisor._check_everyone(0.0)
    return supervisor, beat


def test_ranks_of_a_host_are_forks_of_one_process(tmp_path):
    """What they import is imported once: it stands in the same place of their memories."""
    pytest.importorskip("torch")
    outcome = launch(TASK, {"steps": 1}, tmp_path, ranks=8, trust=True, host=HOST)
    assert outcome.code == DONE, outcome.message
    (found,) = records.of_all_ranks(tmp_path, 8).values()
    assert len({one["pid"] for one in found}) == 8
    assert len({(one["parent"], one["library"]) for one in found}) == 1
    assert found[0]["parent"] != os.getpid()
    logs = [(tmp_path / "attempt-0001" / f"log-{rank:05d}").read_text() for rank in range(8)]
    assert not any(logs)


@pytest.mark.slow
def test_sixty_four_ranks_begin_meet_and_end_before_eight_times_eight_do(tmp_path):
    pytest.importorskip("torch")
    seconds = []
    for ranks in (8, 64):
        outcome = launch(
            TASK, {"steps": 1}, tmp_path / str(ranks), ranks=ranks, trust=True, host=HOST
        )
        assert outcome.code == DONE, outcome.message
        seconds.append(outcome.seconds)
    assert seconds[1] < 4 * seconds[0]


def test_ranks_die_with_the_process_that_they_are_forks_of(tmp_path):
    pytest.importorskip("torch")
    fails = {"rank": 1, "step": 2, "how": "nursery"}
    outcome = launch(TASK, {"steps": 3, "fails": fails}, tmp_path, ranks=3, trust=True, host=HOST)
    assert outcome.code == FAILED
    assert "was killed by SIGKILL" in outcome.message
    for one in records.lines(tmp_path / "rank-00000.jsonl"):
        assert gone(one["pid"])


def test_rank_without_a_heartbeat_is_blamed_before_those_who_wait_for_it(tmp_path):
    """It entered the operation as the others did: only its missing heartbeat tells which."""
    supervisor, beat = watched(tmp_path, [0, 0, 0])
    beat([1, 1, 1])
    supervisor._check_everyone(1.0)  # a last beat, after the last move
    for now in range(2, 9):
        beat([now, now, 1])
        supervisor._check_everyone(float(now) + 0.3)
        assert not faults.reported(tmp_path)
    supervisor._check_everyone(9.3)
    (fault,) = faults.reported(tmp_path)
    assert (fault.rank, fault.kind) == (2, "stalled")
    assert "no heartbeat" in fault.detail


def test_all_ranks_beat_and_nothing_moves(tmp_path):
    supervisor, beat = watched(tmp_path, [0, 0])
    for now in range(1, 10):
        beat([now, now])
        supervisor._check_everyone(float(now))
    (fault,) = faults.reported(tmp_path)
    assert "a dead link?" in fault.detail


def test_time_in_which_the_warden_got_no_turn_counts_against_nobody(tmp_path):
    supervisor, _ = watched(tmp_path, [0, 0])
    supervisor._check_everyone(5.0)
    supervisor._forgive(20.0)  # the machine was short of time: ranks were, too
    supervisor._check_everyone(26.0)
    assert not faults.reported(tmp_path)
    supervisor._check_everyone(29.5)
    assert {fault.rank for fault in faults.reported(tmp_path)} == {0, 1}


@pytest.mark.parametrize("how", ["SIGSTOP", pytest.param("wait", marks=pytest.mark.slow)])
def test_stalled_rank_is_named(tmp_path, how):
    """A stopped process has no heartbeat; a waiting one has, but has entered fewer operations."""
    outcome = run(tmp_path, timeout=6.0, fails={"rank": 2, "step": 3, "how": how})
    assert outcome.code == FAILED
    assert "rank 2 on node2 stalled" in outcome.message
    assert all(map(gone, pids_of(tmp_path)))


@pytest.mark.slow
def test_ranks_that_disagree_on_a_shape_end_with_the_operation_named(tmp_path):
    outcome = run(tmp_path, timeout=6.0, fails={"rank": 1, "step": 3, "how": "shape"})
    assert outcome.code == FAILED
    assert "step 3, exchange: allreduce of 1 KiB" in outcome.message
    assert sorted(records.of_all_ranks(tmp_path, 3)) == ["step 1", "step 2"]
    assert all(map(gone, pids_of(tmp_path)))


SUPERVISOR = f"""
import sys
from pathlib import Path
sys.path[:0] = {PATH.split(os.pathsep)!r}
from oracle.executor.ranks.launch import launch
ranks = int(sys.argv[2]) or None
fails = {{"rank": 1, "step": 4, "how": sys.argv[3]}} if sys.argv[3] else {{}}
arguments = {{"steps": int(sys.argv[4]), "pause": 0.05, "fails": fails}}
limit = float(sys.argv[5])
outcome = launch("{TASK}", arguments, Path(sys.argv[1]), ranks=ranks, timeout=limit, trust=True)
print(outcome.message if outcome.speaks else "", flush=True)
sys.exit(outcome.code)
"""


def supervisor(folder, ranks=0, how="", steps=5, timeout=120, **variables):
    pytest.importorskip("torch")
    environment = os.environ | {"PYTHONPATH": PATH, **variables}
    return subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(folder), str(ranks), how, str(steps), str(timeout)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_for_steps(folder, count):
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        if len(list(records.lines(folder / "rank-00000.jsonl"))) >= count:
            return
        time.sleep(0.05)
    raise AssertionError("the ranks did not begin")


def test_sigterm_finishes_the_sample(tmp_path):
    process = supervisor(tmp_path, ranks=2, steps=1000)
    wait_for_steps(tmp_path, 3)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == TERMINATED, said
    counts = [len(list(records.lines(tmp_path / f"rank-0000{r}.jsonl"))) for r in (0, 1)]
    assert counts[0] == counts[1] < 1000  # all ranks stopped at the same sample


@pytest.mark.slow
def test_nothing_outlives_a_killed_warden(tmp_path):
    process = supervisor(tmp_path, ranks=2, steps=1000)
    wait_for_steps(tmp_path, 2)
    process.kill()
    process.communicate()
    limit = time.monotonic() + 60
    while not all(map(gone, pids_of(tmp_path))):
        assert time.monotonic() < limit
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("how", [pytest.param("", marks=pytest.mark.slow), "SIGKILL"])
def test_ranks_of_a_launcher_join_and_fail_together(tmp_path, how):
    supervisors = [supervisor(tmp_path, how=how, RANK=str(r), WORLD_SIZE="3") for r in range(3)]
    said = [process.communicate(timeout=120)[0].strip() for process in supervisors]
    assert [process.returncode for process in supervisors] == [FAILED if how else DONE] * 3
    assert len(records.of_all_ranks(tmp_path, 3)) == (3 if how else 5)
    assert len([text for text in said if text]) == (1 if how else 0)
    if how:
        assert "rank 1" in said[0]


@pytest.mark.slow
def test_rank_that_never_comes_is_named(tmp_path):
    supervisors = [supervisor(tmp_path, timeout=8, RANK=str(r), WORLD_SIZE="3") for r in (0, 2)]
    said = [process.communicate(timeout=120)[0] for process in supervisors]
    assert [process.returncode for process in supervisors] == [FAILED] * 2
    assert "rank 1" in said[0]
    assert "never arrived" in said[0]


def test_launch_outside_the_main_thread_keeps_signal_handlers(tmp_path):
    pytest.importorskip("torch")
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=lambda: run(tmp_path, ranks=1, steps=1))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
    job = json.loads((tmp_path / "attempt-0001" / "job.json").read_text())
    assert job["arguments"]["steps"] == 1


def test_folder_of_arrivals_stays_while_ranks_come(tmp_path):
    """Taking it away from under a rank that is just arriving would end that rank."""
    door = tmp_path / "arrivals"
    door.mkdir()
    (door / "00001-of-an-earlier-run").write_text("node1")
    before = door.stat().st_ino
    supervisor = _Supervisor(tmp_path, World(launcher="srun"), True, 8.0, lambda _: None, HOST)
    assert supervisor._meet().name == "attempt-0001"
    assert door.stat().st_ino == before
    assert [path.name.split("-")[0] for path in door.iterdir()] == ["00000"]

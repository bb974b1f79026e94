"""Under real launchers: torchrun, Open MPI and Slurm start the ranks, and they find each other."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oracle.executor import measured
from oracle.executor.ranks.launch import FAILED
from oracle.executor.ranks.records import lines
from oracle.readers.logs import read

pytestmark = pytest.mark.flaky(reruns=1)  # ranks wait for each other, and for the machine
ROOT = Path(__file__).parents[1]
RANKS = 3
MEASURE = ["-m", "oracle", "measure", "collectives", "--operations", "allreduce,halo",
           "--repeats", "3", "--timeout", "120", "-o"]  # fmt: skip
SLURM = """ClusterName=test
SlurmctldHost={host}
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
NodeName=n[0-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=2
SchedulerParameters=bf_interval=1
PartitionName=all Nodes=ALL Default=YES MaxTime=60 State=UP
PartitionName=old Nodes=n[0-1] MaxTime=60 State=UP
PartitionName=new Nodes=n2 MaxTime=60 State=UP
"""


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "OMPI", "PMI"))}
    return kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """A real controller and three node daemons, as root, in a folder of their own."""
    packages = {"slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client",
                "munged": "munge"}  # fmt: skip
    lacking = [f"`{tool}` (package {packages[tool]})" for tool in packages
               if shutil.which(tool) is None]  # fmt: skip
    lacking += ["root"] * (os.geteuid() != 0)
    if lacking:
        pytest.skip("needs " + ", ".join(lacking))
    folder = Path("/tmp") / f"slurm{os.getpid()}"  # a socket's path must be short
    for name in ("state", "spool.n0", "spool.n1", "spool.n2", "seed"):
        (folder / name).mkdir(parents=True)
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o600)
    (port,) = free_ports(1)
    first = port + 1 if port < 65000 else port - 9
    text = SLURM.format(host=socket.gethostname(), port=port, folder=folder, first=first,
                        last=first + 2)  # fmt: skip
    (folder / "slurm.conf").write_text(text)
    env = environment(SLURM_CONF=str(folder / "slurm.conf"))
    munge = ["munged", "--foreground", "--force", f"--key-file={folder}/key",
             f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid",
             f"--log-file={folder}/munge.log", f"--seed-file={folder}/seed/seed"]  # fmt: skip
    commands = [munge, ["slurmctld", "-D"], *(["slurmd", "-D", "-N", f"n{i}"] for i in range(3))]
    daemons = []
    try:
        for command in commands:
            daemons.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.DEVNULL))  # fmt: skip
            time.sleep(0.5)
        limit = time.monotonic() + 60
        while "idle" not in state(env):
            if time.monotonic() > limit:
                raise AssertionError((folder / "slurmctld.log").read_text()[-2000:])
            time.sleep(0.5)
        yield env
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(5)
            daemon.kill()
            daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def state(env):
    asked = subprocess.run(["sinfo", "-h", "-o", "%T %D"], env=env, capture_output=True, text=True)
    return asked.stdout if f" {RANKS}" in asked.stdout else ""


def launched(command, env, folder, *arguments):
    pytest.importorskip("torch")
    out = folder / "out.jsonl"
    done = subprocess.run(
        [*command, sys.executable, *MEASURE, str(out), *arguments], env=env, cwd=ROOT,
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    return out, done


def check(out, done):
    assert done.returncode == 0, done.stderr[-2000:]
    reading = read(str(out))
    assert not reading.skipped
    assert {sample.ranks for sample in reading.samples} == {2, RANKS}
    assert reading.machine["ranks"] == RANKS
    return reading


@pytest.mark.slow
def test_torchrun(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python",
                "--nproc-per-node", str(RANKS)]  # fmt: skip
    check(*launched(torchrun, environment(), tmp_path, "--sizes", "1024"))


def test_open_mpi(tmp_path):
    if shutil.which("mpirun.openmpi") is None:
        pytest.skip("needs mpirun.openmpi (package openmpi-bin)")
    mpirun = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", str(RANKS)]
    check(*launched(mpirun, environment(), tmp_path, "--sizes", "1024"))


def test_slurm(slurm, tmp_path):
    srun = ["srun", "-N", str(RANKS), "-n", str(RANKS)]
    reading = check(*launched(srun, slurm, tmp_path, "--sizes", "1024"))
    assert reading.machine["nodes"] == RANKS


@pytest.mark.slow
def test_rank_killed_under_slurm_ends_the_step_with_its_name(slurm, tmp_path):
    pytest.importorskip("torch")
    out, sizes = tmp_path / "out.jsonl", ",".join(str(2**k) for k in range(8, 25))
    command = ["srun", "-N", str(RANKS), "-n", str(RANKS), sys.executable, *MEASURE, str(out)]
    process = subprocess.Popen(
        [*command, "--sizes", sizes], env=slurm, cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    victim = worker(tmp_path / "out.jsonl.parts", 1)
    os.kill(victim, signal.SIGKILL)
    _, said = process.communicate(timeout=100)  # before the ranks' own limit has passed
    assert process.returncode == FAILED, said[-2000:]
    assert "rank 1 on n1 was killed by SIGKILL" in said
    assert list(lines(out))[-1]["end"] == "incomplete"


def worker(parts, rank):
    """The process of a rank that has begun to measure."""
    from oracle.executor.ranks.heartbeat import last_status

    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        for attempt in parts.glob("attempt-*"):
            status = last_status(attempt, rank)
            if status and status.phase == "measure":
                return status.pid
        time.sleep(0.1)
    raise AssertionError("the ranks did not begin")


@pytest.mark.slow
def test_slurm_runs_an_exported_job(slurm, tmp_path):
    """One command, two nodes, one result. No node here has a GPU, or a name of its own."""
    pytest.importorskip("torch")
    import oracle
    from oracle.plan.plan import parse
    from oracle.writers import job
    from oracle.writers.exported import Job

    link = {"bandwidth": "1 GB/s", "latency": "10 us", "source": "made for a test"}
    levels = [{"name": "node", "devices": 1, **link}, {"name": "net", "devices": 2, **link}]
    device = oracle.system("laptop").device.name
    where = {"name": "two", "source": "made for a test", "device": device, "levels": levels}
    found = oracle.estimate("lenet5", where, ["data:2"], 32, software="executor")
    files = job.files(Job(found, parse("data:2", 32.0)))
    for name, text in files.items():
        kept = [line for line in text.splitlines(keepends=True) if "--gpus-per-node" not in line]
        local = re.sub('^MASTER_ADDR="[^\n]*"$', "MASTER_ADDR=127.0.0.1", "".join(kept), flags=re.M)
        (tmp_path / name).write_text(local)
    place = str(Path(sys.executable).parent)
    env = slurm | {"PATH": f"{place}:{os.environ['PATH']}", "BACKEND": "gloo", "STEPS": "2"}
    done = subprocess.run(["sbatch", "--wait", "job.sbatch"], env=env, cwd=tmp_path,
                          capture_output=True, text=True, timeout=240, check=False)  # fmt: skip
    log = "".join(path.read_text() for path in tmp_path.glob("*.out"))
    assert done.returncode == 0, done.stderr + log
    (one,) = measured.read(tmp_path / "run.json")
    assert (one.devices, len(one.step_seconds)) == (2, 2)


SEEN = """import os
import torch.distributed as dist

dist.init_process_group("gloo")
every = [None] * dist.get_world_size()
dist.all_gather_object(every, (os.environ["GROUP_RANK"], os.environ["LOCAL_RANK"]))
if dist.get_rank() == 0:
    print("seen", every)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_slurm_starts_a_job_over_two_partitions(slurm, tmp_path):
    """The first ranks on the first of them, node by node, as many as each kind of node has."""
    pytest.importorskip("torch")
    import oracle
    from oracle.plan.plan import parse
    from oracle.writers import slurm as writer
    from oracle.writers.exported import Job

    link = {"bandwidth": "1 GB/s", "latency": "10 us", "source": "made for a test"}
    parts = [{"name": name, "nodes": nodes, "system": f"{name}.yaml"}
             for name, nodes in (("old", 2), ("new", 1))]  # fmt: skip
    for name, each in (("old", 1), ("new", 2)):
        levels = [{"name": "node", "devices": each, **link},
                  {"name": "net", "devices": 2 * each, "link": "network", **link}]  # fmt: skip
        (tmp_path / f"{name}.yaml").write_text(json.dumps(
            {"name": name, "source": "made for a test", "device": "laptop-cpu", "levels": levels}
        ))  # fmt: skip
    where = tmp_path / "mixed.yaml"
    where.write_text(json.dumps({"name": "mixed", "source": "made for a test",
                                 "partitions": parts, "joint": link}))  # fmt: skip
    for plan, seen in (
        ("data:4", [("0", "0"), ("1", "0"), ("2", "0"), ("2", "1")]),
        ("on:2/1 data:4", [("0", "0"), ("0", "1"), ("1", "0"), ("2", "0")]),
    ):
        found = oracle.estimate("lenet5", str(where), [plan], 32)
        script = writer.files(Job(found, parse(plan, 32.0)))["job.sbatch"]
        local = re.sub('^MASTER_ADDR="[^\n]*"$', "MASTER_ADDR=127.0.0.1", script, flags=re.M)
        (tmp_path / "job.sbatch").write_text(local)
        (tmp_path / "train.py").write_text(SEEN)
        place = str(Path(sys.executable).parent)
        env = slurm | {"PATH": f"{place}:{os.environ['PATH']}"}
        tried = subprocess.run(["sbatch", "--test-only", "job.sbatch"], env=env, cwd=tmp_path,
                               capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
        assert tried.returncode == 0, tried.stderr
        done = subprocess.run(["sbatch", "--wait", "--output=log", "job.sbatch"], env=env,
                              cwd=tmp_path, capture_output=True, text=True, timeout=240,
                              check=False)  # fmt: skip
        log = (tmp_path / "log").read_text()
        assert done.returncode == 0, done.stderr + log
        assert f"seen {seen}" in log

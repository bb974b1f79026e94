"""Nothing but an InputError may come out of a reader, whatever goes in, and soon."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from growth import assert_grows_gently

from oracle.calibration import storage, structure
from oracle.readers import logs
from oracle.readers.storage_samples import usable
from oracle.spec import catalogue

DATA = Path(__file__).parent / "data"
LOGS = sorted([*(DATA / "logs").iterdir(), *(DATA / "topology").iterdir()])
INPUTS = 10_000
WORDS = (
    b"0 1 -1 nan inf N/A 1e999 1e308 4294967296 18446744073709551616 010 1_000 # size time busbw "
    b"float sum { } [ ] < > \" ' , : = \\ \t \r \n \0 \xff \xe2\x80\xae <!DOCTYPE &a; GPU0 NV12 "
    b"[0-999999999] Switches=leaf0 Rank Pid us) MB/s null true -0.0 0x10"
).split(b" ")


def mutated(seed: bytes, dice: random.Random) -> bytes:
    """A log after one to four accidents; a few microseconds each."""
    data = bytearray(seed)
    for _ in range(dice.randrange(1, 5)):
        if not data:
            break
        kind, at = dice.randrange(7), int(dice.random() * (len(data) + 1))
        end = at + int(dice.random() * 64)
        if kind == 0:
            data[at:at] = dice.choice(WORDS)
        elif kind == 1:
            data[at:end] = dice.choice(WORDS)
        elif kind == 2:
            del data[at:end]
        elif kind == 3:
            data[at:at] = data[at:end]
        elif kind == 4 and at < len(data):
            data[at] = dice.randrange(256)
        elif kind == 5:
            to = int(dice.random() * (len(data) + 1))
            data[to:to] = data[at:end]
        else:
            del data[at + dice.randrange(1, 1 + len(data)) :]
    return bytes(data)


def survives(data: bytes) -> str:
    """What became of it: a reading whose numbers are numbers, or a refusal in words."""
    try:
        reading = logs.parse(data, "log")
    except logs.InputError:
        return "refused"
    if reading.levels or reading.interference:
        with contextlib.suppress(logs.InputError):
            system = structure.learned([reading], catalogue.system("abci")).system
            assert not list(system.check())
            assert not [clash for level in system.levels for clash in level.check()]
    for sample in reading.samples:
        assert 0 < sample.seconds < 1e9
        assert 0 <= sample.nbytes <= logs.LARGEST_MESSAGE
        assert sample.ranks is None or sample.ranks > 0
    if reading.storage:
        assert all(map(usable, reading.storage))
        for limit in storage.fits([reading])[0].limits:
            assert 0 < limit.value < math.inf
    return "read"


@pytest.mark.slow
@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.name)
def test_only_refusals_escape(log: Path) -> None:
    seed, dice = log.read_bytes(), random.Random(log.name)
    count = INPUTS // 10 if logs.read(log).storage else INPUTS  # each of them is fitted as well
    outcomes = [survives(mutated(seed, dice)) for _ in range(count)]
    assert outcomes.count("read") > count / 100


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.name)
def test_a_few_accidents(log: Path) -> None:
    seed, dice = log.read_bytes(), random.Random(7)
    for _ in range(150):
        survives(mutated(seed, dice))


def numbered(pattern: bytes, *steps: int) -> Callable[[int], bytes]:
    """The n-th piece of an input: a pattern with `%d` for n, and n and each step."""
    return lambda n: pattern % (n, *(n + step for step in steps))


# a head, a piece that comes again and again, and a tail
MONSTERS: dict[str, tuple[bytes, bytes | Callable[[int], bytes], bytes]] = {
    "digits": (b"", b"9", b""),
    "blanks": (b"", b" ", b""),
    "lines": (b"# nThread\n", b"\n8 2 float", b""),
    "rows": (b"# size count type redop time algbw busbw error\n",
             b"8 2 float sum 1 1 1 0 1 1 1 0\n", b""),
    "ranks": (b"# nThread\n", b"# Rank 0 Pid 1 on a device 0 [0x] x\n", b""),
    "osu": (b"# OSU MPI Latency Test v5\n# Size  Latency (us)\n", b"1 2\n", b""),
    "osu noise": (b"# OSU MPI Latency Test v5\n", b"x\n", b""),
    "imb": (b"# Benchmarking Allreduce\n# #processes = 4\n#bytes #repetitions t_max[usec]\n",
            b"8 1 2.0\n", b""),
    "imb headings": (b"#repetitions\n", b"# Benchmarking x\n", b""),
    "perftest": (b" #bytes #iterations BW average[MB/sec]\n", b"8 1 2.0 2.0 1.0\n", b""),
    "matrix": (b"P2P=Enabled\n D\\D", numbered(b" %d"), b""),
    "matrices": (b"P2P=Enabled\n", b" D\\D 0 1 2\n", b""),
    "nvbandwidth": (b"nvbandwidth\nRunning a.\n", b"x (GB/s)\n 0 1\n0 1 2\n", b""),
    "csv": (b"op,bytes,seconds\n", b"allreduce,8,1e-5\n", b""),
    "csv columns": (b"", b"op,", b""),
    "gpcnet": (b"Congestion Impact Factor\n", b"| RR | 1.0X | 2.0X |\n", b""),
    "brackets": (b'{"oracle-measurement": 1, "machine": ', b"[", b""),
    "objects": (b'{"config":{},"results":', b'[{"a":', b""),
    "cut json": (b'{"config":{},"results":[', b'{"size":1},', b""),
    "strings": (b'{"config":{},"results":[', b'"\\"', b""),
    "samples": (b'{"oracle-measurement": 1}\n',
                b'{"operation":"allreduce","bytes":1,"seconds":1,"ranks":2}\n', b""),
    "elements": (b"<system>", b"<a>", b""),
    "wide elements": (b"<system>", b"<gpu/>", b""),
    "many devices": (b"<system>", numbered(b'<pci busid="%d"><gpu/></pci>'), b"</system>"),
    "attributes": (b"<system ", b'a="1" ', b"/>"),
    "entities": (b'<!DOCTYPE s [<!ENTITY a "b">]><system>', b"&a;", b"</system>"),
    "hosts": (b"SwitchName=s Nodes=", b"n[0-999],", b""),
    "nested hosts": (b"SwitchName=s Nodes=", b"n[0-9]", b""),
    "open hosts": (b"SwitchName=s Nodes=", b"[", b""),
    "chain": (b"", numbered(b"SwitchName=s%d Switches=s%d\n", 1), b""),
    "star": (b"", numbered(b"SwitchName=s%d Switches=s[0-99]\n"), b""),
    "continued": (b"SwitchName=a Nodes=", b"\\\n", b""),
    "yaml": (b"- topology: a\n  tree: ", b"[", b""),
    "fio": (b"x: (g=0): rw=read, bs=4K, ioengine=sync\n",
            b"x: (groupid=0, jobs=1): err= 0\n  read: IOPS=5, BW=1KiB/s (\n", b""),
    "fio jobs": (b'{"fio version":"x","jobs":[',
                 b'{"groupid":0,"read":{"bw_bytes":9,"iops":3}},', b"1]}"),
    "mdtest": (b"mdtest-1 was launched with 4 total task(s) on 2 nodes\n",
               b"   File stat  1.0 1.0 1.0 0.0\n", b""),
    "ior": (b"access bw(MiB/s) xfer(KiB)\n", b"read 5.0 4.0\n", b""),
    "gpus": (b"GPU0", numbered(b" GPU%d"), b"\nGPU0 X NV1"),
}  # fmt: skip


def monster(name: str, size: int) -> bytes:
    """As many pieces between head and tail as make so many bytes."""
    head, piece, tail = MONSTERS[name]
    if isinstance(piece, bytes):
        return head + piece * (size // len(piece)) + tail
    return head + b"".join(map(piece, range(size // len(piece(2**14))))) + tail


@pytest.mark.parametrize("name", MONSTERS)
def test_time_grows_gently_with_a_log(name: str) -> None:
    assert_grows_gently(lambda size: partial(survives, monster(name, size)), 2**19)

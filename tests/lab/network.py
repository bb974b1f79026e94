"""Hosts, links and switches from network namespaces, veth pairs, bridges and token buckets.

A host is a namespace with one interface, a switch a namespace with a bridge; both ends of every
link are shaped with `tbf`. What makes it behave like a cluster, each found the hard way:
- burst above the largest segmentation-offload packet, or the token bucket cuts every packet into
  frames and eight links overload two cores; so packets are kept to 16 KiB on slow links;
- cubic, or reno where namespaces may not have cubic, for bbr shares a bottleneck unevenly and a
  lone flow of it does not fill a link;
- a CPU quota, or ranks on one machine steal each other's time, in turns of a millisecond: of longer
  ones every message waits for the turn of the host that it goes to. A kernel looks at a quota only
  when its clock ticks, which is every 4 ms of most, so a beat wakes each core more often;
- a core for each host, or what is left of its quota stands where its other thread cannot have it;
- no delay can be added (most kernels of test machines lack netem): latency is the stack's own.
It needs root, and leaves nothing behind: a lab that was killed is cleared away by the next one.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2])] if not __package__ else []

from oracle.executor.ranks.launch import Host  # noqa: E402 (the path above comes first)

_NAME = re.compile(r"lab(\d+)[hs]\d+")
_CPU = [Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")]  # version 1, version 2
_TURN = 1_000  # µs that a host has a core at a time; the least quota that kernels take
_BEAT = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
except OSError:
    os.nice(-20)
lab = os.getppid()
while os.getppid() == lab:
    time.sleep(0.0003)
"""


@dataclass(frozen=True)
class Wiring:
    """`hosts` with a link of `rate` each; in two levels when `uplink` is given."""

    hosts: int
    rate: float  # bit/s of a host's link, either way
    uplink: float = 0.0  # bit/s of a leaf switch's link to the spine; 0: one switch, a star
    leaves: int = 2
    share: float = 0.0  # of one core, for each host; 0: no cap
    slow: float = 1.0  # of that share, what the last host has

    @property
    def switches(self) -> int:
        return self.leaves + 1 if self.uplink else 1

    def leaf(self, host: int) -> int:
        return host * self.leaves // self.hosts if self.uplink else 0


class Unavailable(RuntimeError):
    """The machine cannot hold a lab; says what is missing."""


class Lab:
    """A context: the wiring exists inside it and nothing of it does after it."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring, self.mark = wiring, f"lab{os.getpid()}"
        self._cpu: Path | None = None
        self._beats: list[subprocess.Popen[bytes]] = []

    def host(self, number: int) -> str:
        return f"{self.mark}h{number}"

    def switch(self, number: int) -> str:
        return f"{self.mark}s{number}"

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def __enter__(self) -> Lab:
        if missing():
            raise Unavailable("the lab needs " + "; ".join(missing()))
        clear_away()
        atexit.register(self.down)
        try:
            self._build()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.down()
        atexit.unregister(self.down)

    def placed(self, at: Sequence[int] | None = None) -> Host:
        """Where ranks run: rank r on host `at[r]`, host r if not said."""
        seats = list(at) if at is not None else list(range(self.wiring.hosts))
        cores = sorted(os.sched_getaffinity(0))

        def prefix(rank: int) -> list[str]:
            enter = ["nsenter", f"--net=/var/run/netns/{self.host(seats[rank])}"]
            if self._cpu is None:
                return enter
            procs = self._cpu / f"h{seats[rank]}" / "cgroup.procs"
            pin = ["taskset", "-c", str(cores[seats[rank] % len(cores)])]
            return ["sh", "-c", f'echo $$ > {procs}; exec "$@"', "lab", *pin, *enter]

        def environment(rank: int) -> dict[str, str]:
            return {"ORACLE_HOST": f"host{seats[rank]}", "GLOO_SOCKET_IFNAME": "eth0"}

        return Host(prefix, environment)

    def _build(self) -> None:
        wiring = self.wiring
        for number in range(wiring.switches):
            self._namespace(self.switch(number))
            _ip("-n", self.switch(number), "link add br0 type bridge stp_state 0")
            _ip("-n", self.switch(number), "link set br0 up")
        for leaf in range(wiring.leaves if wiring.uplink else 0):
            spine = self.switch(wiring.leaves)
            self._link(self.switch(leaf), "up0", spine, f"down{leaf}", wiring.uplink)
            _ip("-n", self.switch(leaf), "link set up0 master br0")
        for host in range(wiring.hosts):
            name, leaf = self.host(host), self.switch(wiring.leaf(host))
            self._namespace(name)
            self._link(name, "eth0", leaf, f"port{host}", wiring.rate)
            _ip("-n", name, f"addr add {self.address(host)}/24 dev eth0")
        if wiring.share:
            self._cap(wiring.share)

    def _namespace(self, name: str) -> None:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
        settings = (
            f"net.ipv4.tcp_congestion_control={_congestion_control()}",
            "net.ipv6.conf.all.disable_ipv6=1",
            "net.ipv4.tcp_slow_start_after_idle=0",
            "net.ipv4.tcp_no_metrics_save=1",
        )
        _run("nsenter", f"--net=/var/run/netns/{name}", "sysctl", "-qw", *settings)

    def _link(self, near: str, port: str, far: str, other: str, rate: float) -> None:
        """A shaped cable; the far end is a port of the bridge there."""
        pair = f"link add {port} netns {near} mtu 1500 type veth peer name {other} netns {far}"
        _ip(pair)
        burst = max(24 * 1024, int(rate / 8 * 1e-3))
        packet = 16384 if burst < 96 * 1024 else 65536
        for name, device in ((near, port), (far, other)):
            _ip("-n", name, "link", "set", device, "gso_max_size", str(packet), "up")
            shape = f"qdisc replace dev {device} root tbf rate {rate:.0f}bit burst {burst}b"
            _run("tc", "-n", name, shape, "latency", "400ms")
        _ip("-n", far, "link", "set", other, "master", "br0")

    def _cap(self, share: float) -> None:
        root = _cpu_controller()
        if root is None:
            raise Unavailable("the lab needs a writable cgroup with the cpu controller")
        self._cpu = root / self.mark
        self._cpu.mkdir(exist_ok=True)
        second = not (root / "cpu.shares").exists()
        (self._cpu / ("cpu.weight" if second else "cpu.shares")).write_text(
            "10000" if second else "200000"
        )
        if second:
            (self._cpu / "cgroup.subtree_control").write_text("+cpu")
        for host in range(self.wiring.hosts):
            group = self._cpu / f"h{host}"
            group.mkdir(exist_ok=True)
            slow = self.wiring.slow if host == self.wiring.hosts - 1 else 1.0
            period = round(_TURN / (share * slow))
            if second:
                (group / "cpu.max").write_text(f"{_TURN} {period}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(period))
                (group / "cpu.cfs_quota_us").write_text(str(_TURN))
        for core in os.sched_getaffinity(0):
            beat = [sys.executable, "-S", "-c", _BEAT, str(core)]
            self._beats.append(subprocess.Popen(beat))

    def down(self) -> None:
        """Take everything away; harmless to repeat."""
        while self._beats:
            beat = self._beats.pop()
            beat.kill()
            beat.wait()
        _remove(self.mark)

    def cut(self, host: int) -> None:
        """Pull the plug of a host's link."""
        _ip("-n", self.host(host), "link set eth0 down")


def _cpu_controller() -> Path | None:
    for root in _CPU:
        with contextlib.suppress(OSError):
            old = (root / "cpu.shares").exists() or (root / "cpu.cfs_quota_us").exists()
            new = "cpu" in (root / "cgroup.subtree_control").read_text() if not old else False
            if (old or new) and os.access(root, os.W_OK):
                return root
    return None


def _congestion_control() -> str:
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    return "cubic" if "cubic" in allowed else "reno"


def missing() -> list[str]:
    """What this machine lacks, in words; empty when a lab can be built."""
    lacks = []
    if os.geteuid() != 0:
        lacks.append("root (run it with sudo, or in a privileged container)")
    for tool, package in (
        ("ip", "iproute2"),
        ("tc", "iproute2"),
        ("nsenter", "util-linux"),
        ("taskset", "util-linux"),
    ):
        if shutil.which(tool) is None:
            lacks.append(f"`{tool}` (package {package})")
    if lacks:
        return lacks
    probe = f"lab{os.getpid()}s99"
    try:
        _ip("netns", "add", probe)
        _ip("-n", probe, "link add v0 type veth peer name v1")
        _ip("-n", probe, "link add br0 type bridge")
        _run("tc", "-n", probe, "qdisc add dev v0 root tbf rate 8mbit burst 24kb latency 9ms")
    except RuntimeError as error:
        lacks.append(f"a kernel with network namespaces, veth, bridge and tbf ({error})")
    finally:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return lacks


def clear_away() -> None:
    """Remove what labs of processes that are gone have left."""
    names = _run("ip", "netns", "list").split()
    marks = {found.group(1) for name in names if (found := _NAME.fullmatch(name))}
    for root in _CPU:
        with contextlib.suppress(OSError):
            marks |= {p.name[3:] for p in root.glob("lab*") if p.name[3:].isdigit()}
    for number in marks:
        if not Path(f"/proc/{number}").exists():
            _remove(f"lab{number}")


def _remove(mark: str) -> None:
    with contextlib.suppress(RuntimeError):
        for name in _run("ip", "netns", "list").split():
            if re.fullmatch(mark + r"[hs]\d+", name):
                subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    for root in _CPU:
        for _ in range(20):  # a group can be removed once its last process is reaped
            with contextlib.suppress(OSError):
                for group in sorted((root / mark).glob("h*")):
                    group.rmdir()
                (root / mark).rmdir()
            if not (root / mark).exists():
                break
            time.sleep(0.1)


def _ip(*words: str) -> str:
    return _run("ip", *words)


def _run(*phrases: str) -> str:
    """Run a command given as words and phrases of words."""
    words = [word for phrase in phrases for word in phrase.split()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()[:200]}")
    return done.stdout

"""Simulate collectives on the platforms of `benchmarks.fabrics.shapes` with SimGrid, as a table.

    python -m benchmarks.simulate [TABLE]        Debian: libsimgrid-dev, gcc

SimGrid shares links max-min fairly (CM02, every factor 1) and solves anew for all flows whenever
one starts or ends (`network/optim:Full`; its lazy update lets some through for nothing). The
latency of a route is that of its first link, so that round-trip times do not weigh shares. What
is sent are the messages of our schedules; links and routes are ours too.
"""

from __future__ import annotations

import argparse
import csv
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.fabrics.shapes import Case, cases, messages, simulated
from oracle.network.topology import Topology

PROGRAM = Path(__file__).parent / "data" / "simgrid" / "replay.c"
TABLE = Path(__file__).parents[1] / "tests" / "data" / "simgrid_shapes.csv"
OPTIONS = {
    "network/model": "CM02", "network/optim": "Full", "network/crosstraffic": "0",
    "network/TCP-gamma": "1e18", "network/weight-S": "0", "network/bandwidth-factor": "1",
    "network/latency-factor": "1", "smpi/simulate-computation": "no", "smpi/wtime": "0",
    "smpi/init": "0", "smpi/test": "0", "smpi/iprobe": "0", "smpi/os": "0:0:0",
    "smpi/send-is-detached-thresh": "0", "smpi/async-small-thresh": "0",
    "smpi/privatization": "no", "surf/precision": "1e-12",
}  # fmt: skip


def platform(net: Topology) -> Iterator[str]:
    """A network as SimGrid reads it: every link, and the route between any two hosts."""
    n, alpha = net.devices, float(net.latency[0])
    yield "<?xml version='1.0'?>"
    yield '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'
    yield '<platform version="4.1"><zone id="all" routing="Full">'
    yield from (f'<host id="n{host}" speed="1Gf"/>' for host in range(n))
    for host in range(n):
        yield f'<link id="s{host}" bandwidth="1e18Bps" latency="{alpha:.9g}s"/>'
    for link, rate in enumerate(net.capacity[:-1].tolist()):
        yield f'<link id="l{link}" bandwidth="{rate:.12g}Bps" latency="0s"/>'
    source, target = (each.ravel() for each in np.divmod(np.arange(n * n), n))
    route = net.route(source, target)
    for a, b, links in zip(source.tolist(), target.tolist(), route.T.tolist(), strict=True):
        if a != b:
            way = "".join(f'<link_ctn id="l{link}"/>' for link in links if link != net.links)
            yield (f'<route src="n{a}" dst="n{b}" symmetrical="NO"><link_ctn id="s{a}"/>{way}'
                   "</route>")  # fmt: skip
    yield "</zone></platform>"


def seconds(folder: Path, case: Case, net: Topology) -> float:
    """What SimGrid says of one case."""
    lines = (f"{number} {one.source} {one.target} {round(one.nbytes)}"
             for number, step in enumerate(messages(net, case)) for one in step)  # fmt: skip
    (folder / "messages").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = [f"--cfg={name}:{value}" for name, value in OPTIONS.items()]
    done = subprocess.run(
        ["smpirun", "-np", str(net.devices), "-platform", "net.xml", "-hostfile", "hosts",
         *options, "--log=root.thres:critical", "./replay", "messages"],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout.split("seconds ")[1].split()[0])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", nargs="?", type=Path, default=TABLE, metavar="TABLE")
    path = parser.parse_args().table
    if not shutil.which("smpicc"):
        parser.error("no smpicc here: install SimGrid (Debian: libsimgrid-dev, gcc)")
    path.write_text(simulated_table(), encoding="utf-8")
    return 0


def simulated_table() -> str:
    """Return every case with the seconds that SimGrid says, as CSV."""
    rows = io.StringIO()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["smpicc", "-O2", str(PROGRAM), "-o", "replay"], cwd=folder, check=True)
        table = csv.writer(rows, lineterminator="\n")
        table.writerow([*Case._fields, "seconds"])
        for shape, net in simulated():
            (folder / "net.xml").write_text("\n".join(platform(net)), encoding="utf-8")
            hosts = "".join(f"n{host}\n" for host in range(net.devices))
            (folder / "hosts").write_text(hosts, encoding="utf-8")
            for case in cases(shape, net):
                table.writerow([*case, f"{seconds(folder, case, net):.9g}"])
    return rows.getvalue()


if __name__ == "__main__":
    sys.exit(main())

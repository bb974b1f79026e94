"""What topology files say goes into the new spec, with its source, and never in silence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oracle.calibration.calibrate import Calibration, calibrate
from oracle.calibration.spec_block import with_levels
from oracle.commands.cli import main
from oracle.network.contention import lines
from oracle.readers import logs
from oracle.readers.logs import InputError
from oracle.spec import catalogue
from oracle.spec.document import SpecError
from oracle.spec.system import Level, System

LOGS = Path(__file__).parent / "data" / "topology"

SYSTEM = """\
# a cluster as its vendor describes it
name: toy
device: v100-sxm2-16gb
levels:
  # what the vendor calls a node
  - name: node
    devices: 4   # by hand
    kind: mesh
    ports: 6
    bandwidth: 25 GB/s
    latency: 1.9 us
    source: vendor
  - {name: room, devices: 64, bandwidth: 100 Gbit/s, latency: 4 us, source: vendor}
# a remark that stays
source: vendor
"""
BRIDGED = """\
GPU0 GPU1 GPU2 GPU3 CPU Affinity
GPU0 X NV4 SYS SYS 0-31
GPU1 NV4 X SYS SYS 0-31
GPU2 SYS SYS X NV4 32-63
GPU3 SYS SYS NV4 X 32-63
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(SYSTEM)
    return path


def onto(system: str | Path, *names: str) -> Calibration:
    return calibrate([logs.read(LOGS / log) for log in names], system)


def said(found: Calibration, level: str) -> dict[str, tuple[str, str, str]]:
    """Field -> (the spec's, the file's, what became of it)."""
    return {one.field: (one.spec, one.file, one.verdict) for one in found.structure.findings
            if one.level == level}  # fmt: skip


def parsed(text: str) -> logs.Reading:
    return logs.parse(text, "node.txt")


# what readers derive


def shapes(reading: logs.Reading) -> list[tuple[str, int | None, str, str, int | None]]:
    return [(x["name"], x.get("devices"), x.get("kind", ""), x.get("link", ""), x.get("ports"))
            for x in reading.levels]  # fmt: skip


def test_a_node_without_nvlinks_has_a_root_for_each_socket() -> None:
    assert shapes(logs.read(LOGS / "pcie-server.txt")) == [
        ("socket", 2, "switch", "pcie", 1), ("node", 4, "pcie", "pcie", None),
        ("network", None, "", "", 1)]  # fmt: skip


def test_bridges_are_a_level_of_their_own() -> None:
    assert shapes(parsed(BRIDGED)) == [
        ("bridge", 2, "mesh", "nvlink", 4), ("node", 4, "switch", "pcie", 2)]  # fmt: skip
    one = BRIDGED.replace("GPU2 SYS SYS X NV4", "GPU2 SYS SYS X PHB")
    one = one.replace("GPU3 SYS SYS NV4 X", "GPU3 SYS SYS PHB X")
    reading = parsed(one)
    assert shapes(reading) == [("node", 4, "switch", "pcie", 1)]
    assert "unevenly" in reading.levels[0]["note"]


def test_a_cube_mesh_is_read_link_by_link() -> None:
    (node, network) = logs.read(LOGS / "cube-mesh.txt").levels
    assert (node["devices"], node["kind"], node["ports"]) == (8, "mesh", 6)
    assert node["wires"] == catalogue.system("dgx-1-v100").levels[0].wires
    assert network["ports"] == 4


def test_links_that_leave_two_far_apart_are_taken_as_switched_and_said_so() -> None:
    chain = BRIDGED.replace("GPU1 NV4 X SYS", "GPU1 NV4 X NV4").replace(
        "GPU2 SYS SYS X", "GPU2 SYS NV4 X")  # fmt: skip
    (node,) = parsed(chain).levels
    assert (node["devices"], node["kind"]) == (4, "switch")
    assert "not every pair" in node["note"]


def test_the_dump_of_nccl_and_the_matrix_agree() -> None:
    node, network = logs.read(LOGS / "four-v100.xml").levels
    assert (node["devices"], node["kind"], node["ports"]) == (4, "mesh", 6)
    assert (network["ports"], network["bandwidth"]) == (2, "12.5 GB/s")
    bare = (LOGS / "four-v100.xml").read_text().replace("<nvlink", "<none")
    socket, node, _ = logs.parse(bare, "x").levels
    assert (socket["devices"], socket["link"], node["devices"]) == (2, "pcie", 4)
    assert socket["bandwidth"] == "15.75 GB/s"  # 8 GT/s × 16 lanes, 128 of 130 bits


# what goes into the spec


def test_what_agrees_changes_nothing(tmp_path: Path) -> None:
    found = onto("abci", "four-v100.xml")
    assert {one.verdict for one in found.structure.findings} == {"agrees", "kept"}
    assert said(found, "node")["bandwidth"] == ("25 GB/s", "20 GB/s", "kept")
    assert said(found, "leaf group")["ports"] == ("2", "2", "agrees")
    found.write(tmp_path / "new.yaml")
    assert (tmp_path / "new.yaml").read_text() == catalogue.shipped("systems")["abci"].read_text()


def test_what_differs_is_taken_said_and_sourced(toy: Path, tmp_path: Path) -> None:
    found = onto(toy, "cube-mesh.txt")
    assert said(found, "node") == {
        "devices": ("4", "8", "changed"), "kind": ("mesh", "mesh", "agrees"),
        "link": ("nvlink", "nvlink", "agrees"), "ports": ("6", "6", "agrees"),
        "wires": ("not said", "24 between pairs", "added")}  # fmt: skip
    assert said(found, "room") == {
        "devices": ("64", "128", "changed"), "ports": ("not said", "4", "added")}  # fmt: skip
    text = found.text()
    assert "node: devices 8: changed, was 4; nvidia-smi topo -m" in text
    assert "room: ports 4: added; nvidia-smi topo -m, cube-mesh.txt" in text
    found.write(tmp_path / "new.yaml")
    known = catalogue.system(tmp_path / "new.yaml")
    assert [(x.devices, x.ports, x.bandwidth) for x in known.levels] == [
        (8, 6, 25e9), (128, 4, 12.5e9)]  # fmt: skip
    assert known.levels[0].source == (
        "vendor; devices 8 (was 4), wires 24 between pairs: nvidia-smi topo -m, cube-mesh.txt"
    )
    written = (tmp_path / "new.yaml").read_text()
    assert written.startswith("# a cluster as its vendor describes it\nname: toy\n")
    assert "# a remark that stays\nsource: vendor\n" in written


def test_a_list_of_adapters_never_adds_ports(tmp_path: Path) -> None:
    found = onto("v100-ib100", "cube-mesh.txt")
    assert said(found, "cluster")["ports"] == ("1", "4", "kept")
    assert "storage" in found.text()
    assert found.system is found.before
    fewer = onto("dgx-a100", "four-v100.xml")
    assert said(fewer, "unit")["ports"] == ("8", "2", "changed")


def test_levels_inside_a_node_are_split(tmp_path: Path) -> None:
    found = onto("ethernet-pair", "pcie-server.txt")
    assert [(x.name, x.devices, x.kind, x.link) for x in found.system.levels] == [
        ("server", 2, "switch", "pcie"), ("node", 4, "pcie", "pcie"),
        ("pair", 8, "switch", "network")]  # fmt: skip
    found.write(tmp_path / "new.yaml")
    known = catalogue.system(tmp_path / "new.yaml")
    assert known.node == 4
    assert "bandwidth and latency as of `server`" in known.levels[1].source
    assert {level.bandwidth for level in known.levels[:2]} == {15.75e9}


def test_a_speed_that_nobody_has_is_not_made_up() -> None:
    with pytest.raises(InputError, match="joined by pcie, and abci has no such level"):
        onto("abci", "pcie-server.txt")
    with pytest.raises(InputError, match="joined by nvlink"):
        onto("gpu-server", "cube-mesh.txt")
    with pytest.raises(InputError, match="no network level"):
        onto("gpu-server", "racks.conf")


def test_a_tree_of_switches_sets_how_many_each_joins(tmp_path: Path) -> None:
    found = onto("abci", "racks.conf")
    assert said(found, "leaf group") == {"devices": ("68", "68", "agrees")}
    assert said(found, "system") == {"devices": ("4352", "272", "changed")}
    found.write(tmp_path / "new.yaml")
    old, new = (path.read_text() for path in (catalogue.shipped("systems")["abci"],
                                              tmp_path / "new.yaml"))  # fmt: skip
    head = old[: old.index("  - name: system")]
    assert new.startswith(head), "levels that stay are left as they were written"
    assert catalogue.system(tmp_path / "new.yaml").devices == 272
    assert catalogue.system(tmp_path / "new.yaml").collectives == found.before.collectives


def test_a_tree_of_another_height_stands_for_the_network(toy: Path, tmp_path: Path) -> None:
    found = onto(toy, "racks.conf")
    assert [(x.name, x.devices, x.kind) for x in found.system.levels[1:]] == [
        ("room", 68, "switch"),
        ("switches-2", 136, "fat-tree"),
        ("switches-3", 272, "fat-tree"),
    ]
    assert said(found, "switches-2")["oversubscription"] == ("1", "not said", "kept")
    found.write(tmp_path / "new.yaml")
    assert catalogue.system(tmp_path / "new.yaml").devices == 272
    again = calibrate([logs.read(LOGS / "racks.conf")], tmp_path / "new.yaml")
    assert again.system is again.before
    fewer = calibrate([logs.parse("SwitchName=a Nodes=n[1-8]\n", "x")], tmp_path / "new.yaml")
    assert [x.devices for x in fewer.system.levels] == [4, 32]
    assert fewer.structure.dropped == ("switches-2", "switches-3")
    assert "switches-3: this level is gone" in fewer.text()


def test_uneven_switches_are_counted_as_the_largest(toy: Path) -> None:
    found = onto(toy, "../logs/topology.conf")
    assert [x.devices for x in found.system.levels] == [4, 16, 32]  # seven nodes, as eight
    assert "uneven: 3 to 4 nodes" in found.text()


def test_a_dragonfly_is_no_tree() -> None:
    found = onto("perlmutter", "racks.conf")
    assert said(found, "system") == {"kind": ("dragonfly", "tree", "kept")}
    assert found.system is found.before


def test_what_was_calibrated_at_a_level_that_is_gone_goes_too(tmp_path: Path) -> None:
    found = calibrate([logs.parse("SwitchName=a Nodes=n[1-8]\n", "x")], "abci")
    assert {e.level for e in found.before.collectives} == {"node", "leaf group"}
    assert found.structure.dropped == ("rack", "system")
    found.write(tmp_path / "new.yaml")
    assert len(catalogue.system(tmp_path / "new.yaml").collectives) == len(found.before.collectives)
    outer = Level("all", 64, 1e10, 4e-6, source="x")
    entry = found.before.collectives[0]
    levels = found.before.levels[0], outer, replace(outer, name="more", devices=128)
    lost = (replace(entry, level="more"),)
    one = System("one", found.before.device, levels, "x", collectives=lost)
    gone = calibrate([logs.parse("SwitchName=a Nodes=n[1-8]\n", "x")], one)
    assert gone.system.collectives == ()


def test_samples_are_placed_on_the_node_that_was_learned(toy: Path) -> None:
    samples = tuple(
        logs.Sample("allreduce", m, 2e-6 * p + m / 1e10, p, where=f"m.jsonl:{p}")
        for p in (8, 16) for m in 4.0 ** np.arange(4, 12)
    )  # fmt: skip
    log = logs.Reading("m.jsonl", "our own", samples)
    alone, with_topology = (calibrate([log, *more], toy)
                            for more in ((), (logs.read(LOGS / "cube-mesh.txt"),)))  # fmt: skip
    assert {s.nodes for fit in alone.fits for s in fit.pool.samples} == {2, 4}
    assert {s.nodes for fit in with_topology.fits for s in fit.pool.samples} == {1, 2}


def test_a_spec_that_is_learned_prices_contention_anew(toy: Path) -> None:
    before, after = catalogue.system(toy), onto(toy, "cube-mesh.txt").system
    (ring,) = lines(before, "allreduce", ((8, 4),), 32, "ring")[:1]
    (wide,) = lines(after, "allreduce", ((4, 8),), 32, "ring")[:1]
    assert ring.phi == pytest.approx(1)  # four ports for four devices, as nothing was said
    assert wide.phi == pytest.approx(2)  # eight rings leave over four ports


def test_every_shipped_spec_can_be_written_anew(tmp_path: Path) -> None:
    """A level that is written by us reads back as the same level."""
    for path in catalogue.shipped("systems").values():
        text, system = path.read_text(), catalogue.system(path)
        if system.partitions:  # their levels stand in the files that they name
            with pytest.raises(SpecError, match="not told across partitions"):
                calibrate([], path)
            continue
        none = [Level("gone", 1, 1.0, 1.0, source="x")] * len(system.levels)
        (tmp_path / path.name).write_text(with_levels(text, none, system.levels))
        assert catalogue.system(tmp_path / path.name).levels == system.levels
        assert with_levels(text, system.levels, system.levels) == text


def test_levels_on_one_line_are_refused_not_mangled(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    items = SYSTEM[SYSTEM.index("levels:") : SYSTEM.index("# a remark")]
    path.write_text(SYSTEM.replace(items, "levels: [{name: node, devices: 4, kind: mesh, ports: 6, "
                                   "bandwidth: 25 GB/s, latency: 2 us, source: x}]\n"))  # fmt: skip
    found = onto(path, "cube-mesh.txt")
    with pytest.raises(InputError, match="not written one to an item"):
        found.write(tmp_path / "new.yaml")


def test_from_the_command_line(toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    new = tmp_path / "new.yaml"
    files = [str(LOGS / name) for name in ("cube-mesh.txt", "racks.conf")]
    assert main(["calibrate", *files, "--onto", str(toy), "-o", str(new)]) == 0
    out, err = capsys.readouterr()
    assert "  learned   " in out
    assert f"wrote {new}" in err
    first = new.read_bytes()
    assert main(["calibrate", *files, "--onto", str(toy), "-o", str(new), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {one["verdict"] for one in data["structure"]} == {"agrees", "added", "changed", "kept"}
    assert new.read_bytes() == first
    assert main(["specs", "check", str(new)]) == 0
    capsys.readouterr()
    bad = [str(LOGS / "pcie-server.txt"), "--onto", "abci"]
    assert main(["calibrate", *bad]) == 2
    assert "link: pcie" in capsys.readouterr().err

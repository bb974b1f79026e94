"""Every shipped file can be read, says where its numbers come from, and can be used."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import oracle
from oracle.models.model import model, network
from oracle.network.topology import KINDS, Topology
from oracle.plan.launchable import software
from oracle.run.workflow import workflow
from oracle.spec import catalogue
from oracle.spec.basis import WORDS, basis
from oracle.spec.document import SpecError

FOLDERS = ("datasets", "devices", "models", "software", "systems", "workflows")
FILES = [path for folder in FOLDERS for path in catalogue.shipped(folder).values()]
READ = {
    "datasets": catalogue.dataset, "devices": catalogue.device, "models": model,
    "software": software, "systems": catalogue.system, "workflows": workflow,
}  # fmt: skip
# what a source may be: a paper, a document with an owner, code in a repository, or a plain guess
TRACEABLE = re.compile(
    r"arXiv \d{4}\.\d{4,5}|[A-Za-z0-9-]+/[A-Za-z0-9_.-]+, |Proc\. |CACM|NIPS|et al\.|assumed"
    r"|data ?sheet|white ?paper|user guide|reference architecture|documentation|tuning\.cc"
    r"|top500\.org|PCI-SIG|IDRIS|CSCS|NERSC|Hugging Face|torchvision|FanStore|pytorch/examples"
)
ROOT = Path(__file__).parents[1]


def identity(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def sources(tree: Any) -> list[str]:
    """Every `source:` of a document, wherever it stands."""
    if isinstance(tree, dict):
        inner = [s for value in tree.values() for s in sources(value)]
        return [tree["source"], *inner] if "source" in tree else inner
    return [s for value in tree for s in sources(value)] if isinstance(tree, list) else []


@pytest.mark.parametrize("path", FILES, ids=identity)
def test_a_file_is_read_and_bears_its_name(path: Path) -> None:
    read = READ[path.parent.name](str(path))
    assert read.name == path.stem
    assert read.title, "a title is what a list shows"


@pytest.mark.parametrize("path", FILES, ids=identity)
def test_a_file_is_written_to_be_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    assert "\t" not in text
    most = 120 if path.parent.name == "devices" else 100  # fitted curves are written by a program
    assert max(map(len, text.splitlines())) <= most


@pytest.mark.parametrize("path", FILES, ids=identity)
def test_its_sources_can_be_looked_up(path: Path) -> None:
    found = sources(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert found
    if path.parent.name != "devices":  # those name pages of their makers
        for source in found:
            assert TRACEABLE.search(source), source


def test_names_are_told_apart_whatever_the_kind() -> None:
    for folder in FOLDERS:
        names = [re.sub(r"[^a-z0-9]", "", name) for name in catalogue.shipped(folder)]
        assert len(set(names)) == len(names), folder
    assert not set(catalogue.shipped("models")) & set(catalogue.shipped("systems"))


@pytest.mark.parametrize("name", catalogue.shipped("systems"))
def test_a_system_can_be_built(name: str) -> None:
    system = catalogue.system(name)
    assert {level.kind for level in system.levels} <= set(KINDS)
    devices = min(system.devices, 2048)
    topology = Topology(system.levels, devices)
    assert (topology.capacity > 0).all()
    far = topology.alpha(0, devices - 1)
    near = topology.alpha(0, min(1, devices - 1))
    assert far >= near
    if devices > 1:
        route = topology.route(0, devices - 1)
        assert (route != topology.links).any(), "two devices and no link between them"


@pytest.mark.parametrize("name", catalogue.shipped("systems"))
def test_a_system_slows_down_outward(name: str) -> None:
    """Further out α does not shrink, nor does a device's share of the bandwidth grow."""
    levels = catalogue.system(name).levels
    alphas = [level.latency for level in levels]
    assert alphas == sorted(alphas)
    shares, unit = [], 1
    for level in levels:
        if level.ports is not None:
            shares.append(level.ports * level.bandwidth / unit)
        unit = level.devices
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("name", catalogue.shipped("models"))
def test_a_model_says_what_it_is_trained_on(name: str) -> None:
    spec, *_ = network(name)
    assert spec.dataset in catalogue.shipped("datasets")
    data = catalogue.dataset(spec.dataset)
    if spec.layers and data.sample:  # same channels, same number of extents
        assert (data.sample[0], len(data.sample)) == (spec.input[0], len(spec.input))


@pytest.mark.parametrize("name", catalogue.shipped("models"))
def test_a_model_is_whole(name: str) -> None:
    found = model(name)
    counts, ends = found.units
    assert (counts.sum(axis=0) == found.repeat).all(), "its pieces make the whole"
    assert len(ends) == len(counts)
    assert (found.y > 0).all()
    assert found.flop > 0
    # layers that are each wider than the one before, or read by others far behind, aren't equal
    most = {"densenet121": 430, "stable-diffusion-1": 580, "amoebanet-d": 660}.get(name, 400)
    assert len(found.rows) <= most, "equal blocks are folded"


def test_data_sets_of_the_fanstore_study() -> None:
    """Files and sizes of its table, to the digits it prints."""
    table = {"imagenet": (1.3e6, 140e9), "neural-image": (0.6e6, 500e9),
             "reactor-status": (0.17e6, 65e9)}  # fmt: skip
    for name, (files, size) in table.items():
        data = catalogue.dataset(name)
        assert data.files == pytest.approx(files, rel=0.02)
        assert data.size == size


@pytest.mark.parametrize("name", catalogue.shipped("datasets"))
def test_a_data_set_says_how_it_lies_on_disk(name: str) -> None:
    """Files, their format and directories; bytes that its values can have; what files hold."""
    data = catalogue.dataset(name)
    assert data.files
    assert data.format
    assert data.directories
    if data.size is None:
        assert name == "openproteinset", "nobody says how large its alignments are"
        return
    each = data.size / data.samples
    # of graphs the extent is that of their atoms; of a kidney's case one patch is used
    if data.sample and name not in ("oc20-2m", "kits19"):
        assert 0.02 < each / np.prod(data.sample, dtype=float) < 8, "bytes a value"
    if data.format == "files":
        assert data.files >= data.samples, "one sample a file"
    else:
        assert data.files <= data.samples, "a sample is not cut over files"
    if data.spread:  # sizes that nobody packs differ only where subjects do
        assert 0 < data.spread < 1
    if data.format in ("hdf5", "array"):
        assert data.decode == 0, "values lie as they are used"


@pytest.mark.parametrize("name", catalogue.shipped("systems"))
def test_a_systems_storage_is_within_its_network(name: str) -> None:
    """All nodes read no less than one; disks write no faster than they read; sources are named."""
    system = catalogue.system(name)
    said = system.storage
    if said is None:
        return
    assert said.source
    if said.shared is not None:
        assert said.shared.source
        assert (said.shared.per_node or 0) <= said.shared.bandwidth
        assert (said.shared.write or 0) <= said.shared.bandwidth
    if said.local is not None:
        assert (said.local.write or 0) <= said.local.read


def test_storage_of_machines_typed_in_once_more() -> None:
    """(shared read, a node's disk read, its room, host memory, cores), as their centres say."""
    table = {
        "abci": (105e9, 3.2e9, 1.6e12, 384 * 2**30, 40),
        "summit": (2.5e12, 5.5e9, 1.4e12, 512e9, 42),
        "frontier": (10e12, 5.5e9, 3.84e12, 512e9, 64),
        "lumi": (240e9, None, None, 512 * 2**30, 64),
        "alps": (782e9, None, None, 512e9, 288),
        "perlmutter": (5e12, None, None, 256e9, 64),
        "frontera": (120e9, 0.5e9, 144e9, 192e9, 56),
        "dgx-a100": (1e12, 25e9, 30e12, 2e12, 128),
        "eos": (720e9, None, None, 2e12, 112),
    }
    for name, (shared, read, room, memory, cores) in table.items():
        system = catalogue.system(name)
        assert system.storage is not None
        assert system.host is not None
        files, disk = system.storage.shared, system.storage.local
        assert (files and files.bandwidth) == shared, name
        assert (disk and disk.read) == read, name
        assert (disk and disk.capacity) == room, name
        assert (system.host.memory, system.host.cores) == (memory, cores), name


def test_systems_of_the_papers() -> None:
    """Devices and a node's bandwidth, typed in once more: (devices, a node, inside, outside)."""
    table = {
        "abci": (4352, 4, 150e9, 25e9),
        "abci-a": (960, 8, 300e9, 100e9),
        "dgx-a100": (4480, 8, 300e9, 200e9),
        "dgx-h100": (4608, 8, 450e9, 400e9),
        "dgx-b200": (1024, 8, 900e9, 400e9),
        "dgx-1-v100": (1024, 8, 150e9, 50e9),
        "dgx-1-p100": (1024, 8, 80e9, 50e9),
        "perlmutter": (6144, 4, 300e9, 100e9),
        "perlmutter-2021": (6144, 4, 300e9, 25e9),
        "jean-zay": (416, 8, 300e9, 50e9),
        "a100-800g": (512, 8, 300e9, 100e9),
        "a100-roce1600": (1024, 8, 300e9, 200e9),
    }
    for name, (devices, node, inside, outside) in table.items():
        system = catalogue.system(name)
        inner, outer = system.levels[:2]
        assert (system.devices, inner.devices, system.node) == (devices, node, node), name
        assert inner.ports is not None
        assert outer.ports is not None
        assert inner.ports * inner.bandwidth == inside, name
        assert outer.ports * outer.bandwidth == outside, name


def test_a_node_is_what_shares_the_network_s_ports() -> None:
    """Two sockets are one node; a device on the network is a node; a server without one is one."""
    table = {"summit": 6, "gpu-server": 8, "ethernet-pair": 4, "frontera": 1, "cori-knl": 1,
             "piz-daint": 1, "tpu-v3-pod": 1, "laptop": 1}  # fmt: skip
    assert {name: catalogue.system(name).node for name in table} == table


@pytest.mark.parametrize("name", catalogue.shipped("systems"))
def test_a_link_is_what_the_source_says_of_the_latency(name: str) -> None:
    """Latencies from NCCL's table are those of the link that is declared or follows."""
    words = {"nvlink": "over NVLink", "pcie": "over PCI", "network": "over the network"}
    for level in catalogue.system(name).levels:
        said = [link for link, word in words.items() if word in " ".join(level.source.split())]
        assert said in ([], [level.link]), level.name


def test_a_wheel_carries_every_file() -> None:
    """An installed wheel lists all of them as its own, where the catalogue looks for them."""
    try:
        listed = importlib.metadata.files("oracle-training") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("not installed: the files are read from the checkout")
    held = {str(file) for file in listed}
    if "oracle/spec/catalogue.py" not in held:
        pytest.skip("installed in place: the files are read from the checkout")
    for path in FILES:
        assert f"oracle/spec/shipped/{path.parent.name}/{path.name}" in held


SYSTEMS = sorted(catalogue.shipped("systems"))
PARTED = [name for name in SYSTEMS if catalogue.system(name).partitions]


@pytest.mark.parametrize("name", PARTED)
def test_partitions_stand_on_what_the_weakest_of_them_does(name: str) -> None:
    found = {one.part: one for one in basis(catalogue.system(name))}
    each = [{one.part: one for one in basis(part.system)}
            for part in catalogue.system(name).partitions]  # fmt: skip
    for part, one in found.items():
        mine = [known[part] for known in each if part in known]
        assert one.word == max((known.word for known in mine), key=WORDS.index)
        assert all(known.told in one.told for known in mine)


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name not in PARTED])
def test_a_system_says_what_its_numbers_stand_on(name: str) -> None:
    """The words follow from what is in the files, read here as text."""
    said = yaml.safe_load(catalogue.shipped("systems")[name].read_text(encoding="utf-8"))
    system = catalogue.system(name)
    found = {one.part: one for one in basis(system)}
    links = {
        part
        for part, some in (
            ("inside a node", system.inside > 0),
            ("between nodes", system.inside < len(system.levels)),
        )
        if some
    }
    assert set(found) == {"kernels", "storage"} | links
    assert all(one.word in WORDS and one.told for one in found.values())
    assert (found["storage"].word == "not said") == ("storage" not in said)
    device = catalogue.shipped("devices")[said["device"]].read_text(encoding="utf-8")
    curves = yaml.safe_load(device).get("kernels") or []
    timed = {curve["family"] for curve in curves if curve.get("origin") != "assumed"}
    assert (found["kernels"].word == "measured") == bool(timed)
    assert all(family in found["kernels"].told for family in timed)
    inside = {level.name for level in system.levels[: system.inside]}
    logs = said.get("library", []) + (shared_collectives(said.get("collectives")))
    for part in links:
        mine = [one for one in logs if (one["level"] in inside) == (part == "inside a node")]
        assert (found[part].word == "calibrated") == bool(mine)
        assert all(one["source"].strip() in found[part].told for one in mine)


def shared_collectives(named: Any) -> list[dict[str, Any]]:
    """The entries of a file of collectives, or those that stand in the system's own."""
    if not isinstance(named, str):
        return named or []
    folder = ROOT / "specs" / "collectives"
    found: list[dict[str, Any]] = yaml.safe_load(
        (folder / f"{named}.yaml").read_text(encoding="utf-8")
    )["collectives"]
    return found


def test_inputs_of_an_extent_less_are_priced_or_refused() -> None:
    """Layers that need a sequence say so where channels are all that they are given."""
    specs = [yaml.safe_load(path.read_text()) for path in catalogue.shipped("models").values()]
    refusals = 0
    for spec in (spec for spec in specs if len(spec.get("input", ())) > 1):
        spec["input"] = spec["input"][:-1]
        try:
            assert oracle.estimate(spec, "dgx-a100", "data:1", batch=1).seconds[0] > 0
        except SpecError:
            refusals += 1
    assert refusals > 5

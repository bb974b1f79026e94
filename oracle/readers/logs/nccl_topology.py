"""NCCL's topology XML (`NCCL_TOPO_DUMP_FILE`): devices, NVLinks and network ports of a node.

A plain expat parser reads it event by event: a DTD is refused unread, depth and number of elements
are bounded, no tree is built. NVLink speeds are those of NCCL itself (its topo.h, per link and
direction); network speeds are in the file.
"""

from __future__ import annotations

from typing import Any
from xml.parsers import expat

from oracle.readers.logs import InputError, Reading, number
from oracle.readers.node_levels import node_levels
from oracle.spec.graphs.nccl import NVLINK, SWITCH

TITLE = "NCCL topology XML"
PRECEDENCE = 1
DEEPEST, MOST_ELEMENTS, MOST_DEVICES = 64, 100_000, 1024

NAMES = frozenset(("system", "cpu", "pci", "gpu", "nvlink", "nic", "net", "c2c", "pcilink"))


def recognises(text: str) -> bool:
    """Return whether a text has a `<system` element near its start."""
    head = text[:4096].lstrip()
    return head.startswith("<") and ("<system" in head or "<!DOCTYPE" in head or "<?xml" in head)


class _Parser:
    """A parser that collects devices, NVLinks and ports element by element."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.StartDoctypeDeclHandler = self.doctype
        self.depth = self.count = 0
        self.bus: list[str] = []
        self.cpu = ""
        self.slot: float | None = None
        self.gpus: dict[str, dict[str, str]] = {}
        self.sockets: dict[str, str] = {}  # bus of a device -> its CPU's NUMA node
        self.lanes: list[float] = []  # bytes per second of the slots that hold devices
        self.nvlinks: list[tuple[str, str, str, int]] = []
        self.nets: list[tuple[str, float | None]] = []
        self.skipped: list[tuple[int, str]] = []

    def refuse(self, complaint: str, hint: str = "") -> InputError:
        return InputError(self.path, self.parser.CurrentLineNumber, complaint, hint)

    def doctype(self, *_: Any) -> None:
        raise self.refuse("a DTD is not read", "NCCL writes none: delete it")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        self.count += 1
        line = self.parser.CurrentLineNumber
        if self.depth > DEEPEST or self.count > MOST_ELEMENTS:
            raise self.refuse("nested too deeply, or too many elements, to be a node")
        if len(self.gpus) > MOST_DEVICES:
            raise self.refuse(f"more than {MOST_DEVICES} devices are no node")
        if self.depth == 1 and name != "system":
            raise self.refuse(f"the outermost element is <{name[:20]}>, not <system>")
        self.bus.append(attributes.get("busid", self.bus[-1] if self.bus else ""))
        if name == "cpu":
            self.cpu = attributes.get("numaid", "")
        elif name == "pci":
            self.slot = _lanes(attributes)
        elif name == "gpu":
            self.gpus[self.bus[-1]] = attributes
            self.sockets[self.bus[-1]] = self.cpu
            self.lanes += [self.slot] if self.slot else []
        elif name == "nvlink":
            count = number(attributes.get("count", "1"))
            if count is None or not 1 <= count <= 64:
                self.skipped.append((line, "an NVLink without a usable count"))
            else:
                kind = "switch" if attributes.get("tclass") == SWITCH else "direct"
                self.nvlinks.append((self.bus[-1], attributes.get("target", ""), kind, int(count)))
        elif name == "net":
            speed = number(attributes.get("speed", ""))
            self.nets.append(
                (attributes.get("name", "net")[:40], speed * 1e6 / 8 if speed else None)
            )
            if not speed:
                self.skipped.append((line, "a network port without a speed"))
        elif name not in NAMES:
            self.skipped.append((line, f"an element nobody knows: <{name[:20]}>"))

    def end(self, name: str) -> None:
        self.depth -= 1
        self.bus.pop()


def parse(text: str, path: str) -> Reading:
    """Return levels, links and ports of one node."""
    node = _Parser(path)
    try:
        node.parser.Parse(text.encode("utf-8", errors="replace"), True)
    except expat.ExpatError as error:
        why = expat.ErrorString(error.code)
        raise InputError(
            path, error.lineno, f"this is not whole XML: {why}", "dump it again"
        ) from None
    except (ValueError, LookupError) as error:  # an unknown encoding
        if isinstance(error, InputError):
            raise
        raise InputError(path, 1, f"this XML cannot be read: {error}") from None
    if not node.gpus:
        raise InputError(path, 1, "there is no <gpu> in it", "dump it on a node with devices")
    links = [(a, b or "switch", f"NV{n}") for a, b, kind, n in node.nvlinks if kind == "direct"]
    links += [(a, "nvswitch", f"NV{n}") for a, _, kind, n in node.nvlinks if kind == "switch"]
    machine: dict[str, Any] = {"tool": "NCCL topology", "devices": len(node.gpus)}
    if node.nets:
        machine["network ports"] = len(node.nets)
    return Reading(path, TITLE, (), machine, tuple(node.skipped), _levels(node, path), tuple(links))


def _levels(node: _Parser, path: str) -> tuple[dict[str, Any], ...]:
    source = f"{TITLE}, {path.rpartition('/')[2]}"
    devices = list(node.gpus)
    direct: dict[tuple[str, str], int] = {}
    switched: dict[str, int] = {}
    for bus, target, kind, count in node.nvlinks:
        if bus in node.gpus and kind == "switch":
            switched[bus] = switched.get(bus, 0) + count
        elif bus in node.gpus and target in node.gpus and bus < target:  # each end lists it
            direct[bus, target] = direct.get((bus, target), 0) + count
    levels = node_levels(devices, direct, switched, node.sockets, source)
    sm = number(next(iter(node.gpus.values())).get("sm", "")) or 0
    generations = [capability for capability in NVLINK if capability <= sm]
    for level in levels:
        if level["link"] == "nvlink" and generations:
            level["bandwidth"] = f"{NVLINK[max(generations)] / 1e9:g} GB/s"
        elif level["link"] == "pcie" and node.lanes:
            level["bandwidth"] = f"{min(node.lanes) / 1e9:.4g} GB/s"
    speeds = [speed for _, speed in node.nets if speed]
    if speeds:
        network = {"name": "network", "ports": len(speeds), "source": source}
        levels.append(network | {"bandwidth": f"{min(speeds) / 1e9:g} GB/s"})
    return tuple(levels)


def _lanes(attributes: dict[str, str]) -> float | None:
    """Return bytes per second of a PCIe slot by its link_speed and link_width [PCI-SIG].

    Up to 5 GT/s ten bits carry eight, beyond 130 carry 128.
    """
    rate = number(attributes.get("link_speed", "").split(" ")[0])
    width = number(attributes.get("link_width", ""))
    if not rate or not width or rate > 1000 or width > 32:
        return None
    return rate * 1e9 * width * (8 / 10 if rate <= 5 else 128 / 130) / 8

"""NCCL's topology XML (`NCCL_TOPO_DUMP_FILE`): devices, NVLinks and network ports of a node.

Read with a plain expat parser, event by event: a DTD is refused before anything in it is looked
at, depth and number of elements are bounded, no tree is built. NVLink speeds are those NCCL itself
uses (its topo.h, per link and direction); network speeds are in the file.
"""

from __future__ import annotations

from typing import Any
from xml.parsers import expat

from oracle.readers import Reading, Refusal, number

TITLE = "NCCL topology XML"
DEEPEST, MOST_ELEMENTS = 64, 100_000
SWITCH = "0x068000"  # PCI class of an NVSwitch
# bytes per second of one NVLink in one direction, by compute capability (NCCL: topo.h)
NVLINK = {60: 18.0e9, 70: 20.0e9, 80: 20.0e9, 90: 20.6e9, 100: 40.1e9}

NAMES = frozenset(("system", "cpu", "pci", "gpu", "nvlink", "nic", "net", "c2c", "pcilink"))


def recognises(text: str) -> bool:
    """A `<system` element near the start."""
    head = text[:4096].lstrip()
    return head.startswith("<") and ("<system" in head or "<!DOCTYPE" in head or "<?xml" in head)


class _Walk:
    """What is kept while the elements go by."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.StartDoctypeDeclHandler = self.doctype
        self.depth = self.count = 0
        self.bus: list[str] = []
        self.gpus: dict[str, dict[str, str]] = {}
        self.nvlinks: list[tuple[str, str, str, int]] = []
        self.nets: list[tuple[str, float | None]] = []
        self.skipped: list[tuple[int, str]] = []

    def refuse(self, what: str, hint: str = "") -> Refusal:
        return Refusal(self.path, self.parser.CurrentLineNumber, what, hint)

    def doctype(self, *_: Any) -> None:
        raise self.refuse("a DTD is not read", "NCCL writes none: delete it")

    def start(self, name: str, said: dict[str, str]) -> None:
        self.depth += 1
        self.count += 1
        line = self.parser.CurrentLineNumber
        if self.depth > DEEPEST or self.count > MOST_ELEMENTS:
            raise self.refuse("nested too deeply, or too many elements, to be a node")
        if self.depth == 1 and name != "system":
            raise self.refuse(f"the outermost element is <{name[:20]}>, not <system>")
        self.bus.append(said.get("busid", self.bus[-1] if self.bus else ""))
        if name == "gpu":
            self.gpus[self.bus[-1]] = said
        elif name == "nvlink":
            count = number(said.get("count", "1"))
            if count is None or not 1 <= count <= 64:
                self.skipped.append((line, "an NVLink without a usable count"))
            else:
                kind = "switch" if said.get("tclass") == SWITCH else "direct"
                self.nvlinks.append((self.bus[-1], said.get("target", ""), kind, int(count)))
        elif name == "net":
            speed = number(said.get("speed", ""))
            self.nets.append((said.get("name", "net")[:40], speed * 1e6 / 8 if speed else None))
            if not speed:
                self.skipped.append((line, "a network port without a speed"))
        elif name not in NAMES:
            self.skipped.append((line, f"an element nobody knows: <{name[:20]}>"))

    def end(self, name: str) -> None:
        self.depth -= 1
        self.bus.pop()


def parse(text: str, path: str) -> Reading:
    """Levels, links and ports of one node."""
    walk = _Walk(path)
    try:
        walk.parser.Parse(text.encode("utf-8", errors="replace"), True)
    except expat.ExpatError as error:
        why = expat.ErrorString(error.code)
        raise Refusal(
            path, error.lineno, f"this is not whole XML: {why}", "dump it again"
        ) from None
    except (ValueError, LookupError) as error:  # an encoding it names and nobody has
        if isinstance(error, Refusal):
            raise
        raise Refusal(path, 1, f"this XML cannot be read: {error}") from None
    if not walk.gpus:
        raise Refusal(path, 1, "there is no <gpu> in it", "dump it on a node with devices")
    links = [(a, b or "switch", f"NV{n}") for a, b, kind, n in walk.nvlinks if kind == "direct"]
    links += [(a, "nvswitch", f"NV{n}") for a, _, kind, n in walk.nvlinks if kind == "switch"]
    machine: dict[str, Any] = {"tool": "NCCL topology", "devices": len(walk.gpus)}
    if walk.nets:
        machine["network ports"] = len(walk.nets)
    return Reading(path, TITLE, (), machine, tuple(walk.skipped), _levels(walk, path), tuple(links))


def _levels(walk: _Walk, path: str) -> tuple[dict[str, Any], ...]:
    source = f"NCCL topology file, {path.rpartition('/')[2]}"
    levels: list[dict[str, Any]] = []
    each: dict[str, int] = dict.fromkeys(walk.gpus, 0)
    for bus, _, _, count in walk.nvlinks:
        if bus in each:
            each[bus] += count
    ports = min(each.values())
    if len(each) > 1:
        node: dict[str, Any] = {"name": "node", "devices": len(each), "source": source}
        if ports:
            switched = any(kind == "switch" for _, _, kind, _ in walk.nvlinks)
            node |= {"kind": "switch" if switched else "mesh", "ports": ports}
            sm = number(next(iter(walk.gpus.values())).get("sm", "")) or 0
            known = [capability for capability in NVLINK if capability <= sm]
            if known:
                node["bandwidth"] = f"{NVLINK[max(known)] / 1e9:g} GB/s"
        else:
            node |= {"kind": "switch", "ports": 1, "note": "no NVLink in the file"}
        levels.append(node)
    speeds = [speed for _, speed in walk.nets if speed]
    if speeds:
        levels.append(
            {
                "name": "network",
                "ports": len(speeds),
                "bandwidth": f"{min(speeds) / 1e9:g} GB/s",
                "source": source,
            }
        )
    return tuple(levels)

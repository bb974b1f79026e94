"""NCCL's dump of a node: GPUs, the NVLinks between them, and the PCIe that joins the rest.

A GPU is a host, by its bus; a PCIe switch and a CPU pass messages on. NVLinks carry what NCCL's
own topo.h has for a compute capability, PCIe what `link_speed` and `link_width` say [PCI-SIG].
"""

from __future__ import annotations

from itertools import combinations

from oracle.spec.graphs.graph import Unread
from oracle.spec.graphs.xml_events import events

TITLE = "NCCL's topology XML"
SWITCH = "0x068000"  # PCI class of an NVSwitch
# bytes per second of one NVLink in one direction, by compute capability [nccl, src/graph/topo.h]
NVLINK = {60: 18.0e9, 70: 20.0e9, 80: 20.0e9, 90: 20.6e9, 100: 40.1e9}


def recognises(text: str) -> bool:
    """Its outermost element, near the start."""
    return "<system" in text[:4096]


def lines(text: str, name: str) -> list[str]:
    """The lines of an edge list."""
    found: list[str] = []
    above: list[str] = []  # what passes messages on, outermost first
    elements: list[str] = []
    speeds: list[str] = []
    gpus: dict[str, str] = {}  # bus -> its sm
    nvlinks: list[tuple[int, str, str, str, str]] = []
    cpus: list[str] = []

    def start(element: str, said: dict[str, str], line: int) -> None:
        elements.append(element)
        if element == "cpu":
            cpus.append(f"cpu{_word(said.get('numaid', str(len(cpus))))}")
            above.append(cpus[-1])
        elif element == "pci":
            bus = _word(said.get("busid", ""))
            if not bus:
                raise Unread(line, "a <pci> without a busid", 'busid="0000:3a:00.0"')
            speeds.append(_slot(said))
            if above:
                found.append(f"pci-{bus} {above[-1]} {speeds[-1]}")
            above.append(f"pci-{bus}")
        elif element == "gpu":
            if not above:
                raise Unread(line, "a <gpu> outside of any <pci>", "the whole dump")
            bus = above[-1].removeprefix("pci-")
            gpus[bus] = said.get("sm", "")
            found.append(f"gpu-{bus} {above[-1]} {speeds[-1] if speeds else ''}")
        elif element == "nvlink" and above:
            nvlinks.append((line, above[-1].removeprefix("pci-"), said.get("target", ""),
                            said.get("tclass", ""), said.get("count", "1")))  # fmt: skip

    def end(element: str, inside: str, line: int) -> None:
        elements.pop()
        if element in ("cpu", "pci"):
            above.pop()

    events(text, start, end)
    if not gpus:
        raise Unread(1, "there is no <gpu> in it", "dump it on a node with devices")
    found += [f"{a} {b}" for a, b in combinations(cpus, 2)]
    return [*(f"hosts gpu-{bus}" for bus in gpus), *found, *_links(nvlinks, gpus)]


def _links(nvlinks: list[tuple[int, str, str, str, str]], gpus: dict[str, str]) -> list[str]:
    found = []
    for line, bus, target, tclass, count in nvlinks:
        if not count.isdecimal() or not 1 <= int(count[:4]) <= 64:
            raise Unread(line, f"`count` is `{count[:20]}`", "a number of NVLinks, 1 to 64")
        sm = gpus.get(bus, "")
        known = [one for one in NVLINK if sm.isdecimal() and one <= int(sm[:4])]
        speed = f"{NVLINK[max(known)] / 1e9:g} GB/s" if known else ""
        other = _word(target)
        if tclass == SWITCH:
            found.append(f"gpu-{bus} nvswitch {speed} x{int(count)}")
        elif other in gpus and bus < other:  # each end lists it
            found.append(f"gpu-{bus} gpu-{other} {speed} x{int(count)}")
    return found


def _word(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text[:40])


def _slot(said: dict[str, str]) -> str:
    """Of a slot, what its lanes carry: 8 of 10 bits up to 5 GT/s, 128 of 130 beyond."""
    try:
        rate, width = float(said.get("link_speed", "").split(" ")[0]), int(said["link_width"])
    except (KeyError, ValueError):
        return ""
    if not (0 < rate < 1000 and 0 < width <= 32):
        return ""
    return f"{rate * width * (0.8 if rate <= 5 else 128 / 130) / 8:.6g} GB/s"

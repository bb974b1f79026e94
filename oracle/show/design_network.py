"""Which network to buy as text: the answer, all that can be built, what cannot and why."""

from __future__ import annotations

from oracle.ask.design_network import ALIKE, Candidate, Designs
from oracle.show.terminal import fit, laid_out
from oracle.spec.units import show

MODELS = 4  # columns of seconds that a table has room for


def designs_text(found: Designs) -> str:
    """The answer in the first line, then one line a network."""
    best = found.best
    lines = [
        fit(_answer(found)),
        fit(f"  wiring    {best.design.words}; {_lengths(best)}"),
        *_workloads(found),
        "",
    ]
    lines += _table(found)
    if found.refused:
        lines += ["", *(fit(f"  no {one.name}: {one.why}") for one in found.refused)]
    lines += ["", *(fit(note) for note in _notes(found))]
    return "\n".join(lines)


def _answer(found: Designs) -> str:
    best, fastest = found.best, found.fastest
    size = f"{best.design.switches:,} switches, {best.design.cables:,} cables"
    cost = "" if best.cost is None else f"{_money(best.cost)}, "
    said = f"{best.design.name} is cheapest within {found.within:.1%} of the fastest"
    said = said.replace(".0%", "%")
    if best is fastest:
        return f"{said}, and is the fastest: {cost}{size}"
    slower = best.slowdown / fastest.slowdown - 1
    than = (
        f"{slower:.1%} slower than {fastest.design.name}" if slower >= ALIKE else "as fast as any"
    )
    return f"{said}: {cost}{size}; {than}"


def _lengths(one: Candidate) -> str:
    """`cables: 1,024 to nodes, 360 across`."""
    words = {"node": "to nodes", "group": "near", "global": "far"}
    each = (f"{count:,} {words[length]}" for length, count in one.design.wiring.cables.items())
    return f"cables: {', '.join(each)}"


def _workloads(found: Designs) -> list[str]:
    """What is run, and by which plan on the answer."""
    wanted, base = found.wanted, found.base
    devices = wanted.nodes * wanted.devices
    ports = f"{wanted.nics} port{'s' if wanted.nics > 1 else ''}"
    lines = [fit(f"  for       {devices:,} devices of {base.title or base.name}: {wanted.nodes:,} "
                 f"nodes of {ports} of {show(wanted.bandwidth, 'B/s')}, switches of "
                 f"{wanted.ports} ports")]  # fmt: skip
    for work, shown in zip(found.workloads, found.best.shown, strict=True):
        batch = f"batch {work.batch:,}" + (f" (assumed: {work.assumed})" if work.assumed else "")
        lines.append(fit(f"  {work.model.name:<9} {batch}: {shown.plans[0]}"))
    return lines


def _table(found: Designs) -> list[str]:
    money = [] if found.best.cost is None else ["USD"]
    head = ("   network", "slower", *(work.model.name for work in found.workloads[:MODELS]),
            "switches", "cables", *money, "hops", "across")  # fmt: skip
    return laid_out(
        [head, *(_row(one, found) for one in found.candidates)], "<" + ">" * (len(head) - 1)
    )


def _row(one: Candidate, found: Designs) -> tuple[str, ...]:
    mark, front = ">" if one is found.best else " ", "*" if one.unbeaten else " "
    return (
        f"{mark}{front} {one.design.name}", f"{one.slowdown - 1:.1%}",
        *(show(each, "s") for each in one.seconds[:MODELS]),
        f"{one.design.switches:,}", f"{one.design.cables:,}",
        *([] if one.cost is None else [f"{one.cost:,.0f}"]),
        str(one.design.wiring.diameter), f"{one.design.bisection:.0%}",
    )  # fmt: skip


def _money(value: float) -> str:
    return f"{value:,.0f} USD" if value < 1e6 else f"{value / 1e6:,.4g} MUSD"


def _notes(found: Designs) -> list[str]:
    """What the columns are, and what was assumed."""
    less = "USD" if found.best.cost is not None else "switches nor fewer cables"
    how = {"best": "each by the best plan of those that the widest and the narrowest put forward",
           "same": "all by the plan that is best on the widest"}[found.plans]  # fmt: skip
    if all(work.plan for work in found.workloads):
        how = "all by the plan given"
    return [
        f"* nothing is as fast with neither fewer {less}; {how}"
        if found.best.cost is None
        else f"* nothing is as fast for less; {how}",
        "slower: the worst model, against the fastest network for it. hops: cables between "
        "switches, at most. across: cables over the middle, of half the nodes' ports",
        "a switch more on the way takes 0.23 us (assumed); switches of dragonflies and trees "
        "balance the load, others take shortest ways or detours by a third",
    ]

"""Schedules as a system's links let them run: rings follow what is wired inside a node."""

from __future__ import annotations

import numpy as np

from oracle.network.collectives import Algorithm, Steps, menu, named
from oracle.network.collectives.algorithm import Rings
from oracle.network.contention.groups import RankGroups
from oracle.network.topology import Topology
from oracle.network.topology.kinds.mesh import FullMesh
from oracle.network.topology.rings import LARGEST, rings


def laid_out(
    by: Algorithm, topology: Topology, groups: RankGroups, inner: int
) -> list[Steps]:  # fmt: skip
    """Return an algorithm's steps in groups that have `inner` members in each mesh of links."""
    node_rings = rings_of(topology, groups, inner) if by.nodal else ()
    if node_rings:
        return by.ring_schedule(groups.p, inner, node_rings)
    return by.schedule(groups.p, inner)


def steps_of_line(
    line: str, op: str, topology: Topology, groups: RankGroups, inner: int
) -> list[Steps]:
    """Return the steps of the algorithm that a cost line names; a ring's where it does not fit."""
    name = line.split("/")[0].split(" ")[0]  # without its protocol and its circuits
    fitting = {by.name: by for by in menu(op, groups.p, inner)}
    by = fitting.get(name) or named(op, name)
    by = by if by.fits(groups.p, inner) else named(op, "ring")
    return laid_out(by, topology, groups, inner)


def rings_of(topology: Topology, groups: RankGroups, inner: int) -> Rings:
    """Return the rings that the members of a group in any node have room for; none without a mesh.

    Where nodes are unlike, rings go by the mesh of one kind: any order suits a switch.
    """
    mesh = next((fabric for fabric in topology.innermost if isinstance(fabric, FullMesh)), None)
    if not isinstance(mesh, FullMesh) or not 2 < inner <= min(LARGEST, mesh.width):
        return ()
    links = np.array(mesh.links)
    if mesh.level.wires:
        ranks = (groups.bases()[:, None] + groups.offsets).reshape(-1, inner)
        place = np.unique(groups.devices_of(ranks) % mesh.width, axis=0)
        links = links[place[:, :, None], place[:, None, :]].min(axis=0)
    else:
        links = links[:inner, :inner]
    return rings(tuple(tuple(row) for row in links.tolist()))

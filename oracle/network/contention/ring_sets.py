"""Schedules as a system's links let them run: rings follow what is wired inside a node."""

from __future__ import annotations

import numpy as np

from oracle.network.collectives import Algorithm, Steps
from oracle.network.collectives.algorithm import Rings
from oracle.network.contention.groups import RankGroups
from oracle.network.topology import Topology
from oracle.network.topology.kinds.mesh import FullMesh
from oracle.network.topology.rings import LARGEST, rings


def laid_out(
    by: Algorithm, topology: Topology, groups: RankGroups, inner: int
) -> list[Steps]:  # fmt: skip
    """Who sends how much to whom, step by step, `inner` members of a group to a mesh."""
    found = rings_of(topology, groups, inner) if by.nodal else ()
    return by.along(groups.p, inner, found) if found else by.schedule(groups.p, inner)


def rings_of(topology: Topology, groups: RankGroups, inner: int) -> Rings:
    """The rings that every node's share of every group has room for; none without a mesh.

    Of unlike nodes those of a mesh: any order suits a switch.
    """
    mesh = next((one for one in topology.innermost if isinstance(one, FullMesh)), None)
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

"""Networks as flat arrays of links, and the route between any two devices.

kinds/     one file a kind of network level: switch, torus, dragonfly, …
fabric     what every kind of level has in common: units, their ports, the links between
wired      levels of switches wired in any way: routes, spreading
topology   all levels of a network below a job: links, capacities, routes
joined     networks of unlike partitions and the links between them, as one
systems    the network of a system's first devices, built once
regular    textbook networks by their sizes: crossbar, fat tree, torus, dragonfly, loop
placement  ways to deal the ranks of a job to devices
swapping   nodes swapped in pairs while that helps
"""

from oracle.network.topology.kinds import KINDS
from oracle.network.topology.regular import crossbar, dragonfly, fat_tree, loop, nodes, torus
from oracle.network.topology.systems import network_of, node_ports
from oracle.network.topology.topology import Topology

__all__ = [
    "KINDS",
    "Topology",
    "crossbar",
    "dragonfly",
    "fat_tree",
    "loop",
    "network_of",
    "node_ports",
    "nodes",
    "torus",
]  # fmt: skip

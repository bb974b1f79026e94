"""Names that measurements of a system may use: operations, and the algorithms of each.

`oracle.network.collectives` adds those of any class that is defined there.
"""

from __future__ import annotations

_NAMES = {
    "allreduce": "halving_doubling rabenseifner shifted_halving_doubling recursive_doubling ring "
    "bidirectional_ring rings binomial double_tree parameter_server in_network hierarchical "
    "hierarchical_doubling leader torus2d servers nvls nvlstree sharp collnet",
    "reduce_scatter": "two_hop recursive_halving recursive_halving_far ring rings hierarchical "
    "nvls sharp collnet",
    "allgather": "recursive_doubling bruck ring rotation rings hierarchical nvls sharp collnet",
    "alltoall": "scattered pairwise exchange bruck deepep_dispatch deepep_combine "
    "hybridep_dispatch hybridep_combine",
    "broadcast": "ring binomial scatter_ring scatter_doubling nvls sharp",
    "reduce": "ring binomial nvls sharp",
    "sendrecv": "direct",
    "halo": "published pairwise chain",
    "sparse_allreduce": "pairwise switching gtopk oktopk",
}
ALGORITHMS: dict[str, set[str]] = {op: set(names.split()) for op, names in _NAMES.items()}

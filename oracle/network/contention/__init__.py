"""What α and β a group of devices sees when every such group talks at once.

`lines` prices one operation of one pattern of groups on a system: seconds = start + per_byte · m
for each algorithm on offer. Contention is counted, not assumed: the flows of all groups are laid
on the links of the network, and the fullest link sets each step's pace. `alone` is the ideal.
"""

from oracle.network.contention.cost import Cost, Line, trace, traces
from oracle.network.contention.groups import Groups, Pattern
from oracle.network.contention.price import alone, lines
from oracle.network.contention.sharing import (
    Contention,
    Loads,
    fair,
    interference,
    loads,
    sentence,
)

__all__ = [
    "Contention", "Cost", "Groups", "Line", "Loads", "Pattern", "alone", "fair",
    "interference", "lines", "loads", "sentence", "trace", "traces",
]  # fmt: skip

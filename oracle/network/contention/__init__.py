"""Start-up and seconds per byte that groups of devices see when all of them talk at once.

groups         groups of ranks that run a collective operation at once
flows          flows of all groups in the steps of a schedule
counting       cost of each step: the load of every link, counted
all_pairs      the same for all ranks to all, without listing the flows
rotations      the same for shifts on a torus, without listing the flows
step_costs     seconds to start and seconds per byte of each step
critical_path  longest chain of steps where some leave ranks out
asynchronous   the same where ranks swap with all others, each at its own pace
cost           cost of a schedule: the sum of its steps
cached         cost of each algorithm on a system, counted once
offer_store    offers of large systems, stored in a file for later processes
line           seconds of an operation by one algorithm: start + per_byte · m
measured       lines from calibrated entries
in_switch      lines of collectives that switches help with
library        lines of a library's own model, times what logs say it is off by
by_nodes       lines as slow as a level was measured to be, by the nodes that a message spans
price          lines of every algorithm on offer; `alone` is the ideal without contention
link_loads     load of every link, to look at
in_words       what limits an operation, as a sentence
fair_shares    max-min fair rates of flows that share links
other_jobs     slowdown by other jobs on the same network, as measured
neighbours     slowdown by jobs whose exchanges are known, on the links that they share

Contention is counted, not assumed: the flows of all groups are laid on the links of the network,
and the fullest link sets each step's pace.
"""

from oracle.network.contention.cost import Cost, schedule_cost, schedule_costs
from oracle.network.contention.fair_shares import Contention, fair_rates
from oracle.network.contention.groups import Pattern, RankGroups
from oracle.network.contention.in_switch import lacking
from oracle.network.contention.in_words import full, sentence
from oracle.network.contention.line import CostLine, Offer, slowest
from oracle.network.contention.link_loads import Loads, loads
from oracle.network.contention.other_jobs import among_others, interference, slows
from oracle.network.contention.price import alone, lines

__all__ = [
    "Contention", "Cost", "CostLine", "Loads", "Offer", "Pattern", "RankGroups", "alone",
    "among_others", "fair_rates", "full", "interference", "lacking", "lines",
    "loads", "schedule_cost",
    "schedule_costs", "sentence", "slowest", "slows",
]  # fmt: skip

"""Start-up and seconds per byte that groups of devices see when all of them talk at once.

groups       groups of ranks that run a collective operation at once
counting/    cost of a schedule: flows of all groups, laid on links
cached       cost of each algorithm on a system, counted once
line         seconds of an operation by one algorithm: start + per_byte · m
measured     lines from calibrated entries
in_switch    lines of collectives that switches help with
library      lines of a library's own model, times what logs say it is off by
by_nodes     lines as slow as a level was measured to be, by the nodes that a message spans
price        lines of every algorithm on offer; `alone` is the ideal without contention
offer_store  offers of large systems, stored in a file for later processes
link_loads   load of every link, to look at
in_words     what limits an operation, as a sentence
other_jobs   slowdown by other jobs on the same network, as measured
neighbours   slowdown by jobs whose exchanges are known, on the links that they share

Contention is counted, not assumed: the flows of all groups are laid on the links of the network,
and the fullest link sets each step's pace.
"""

from oracle.network.contention.counting.fair_shares import Contention, fair_rates
from oracle.network.contention.counting.schedules import Cost, schedule_cost, schedule_costs
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

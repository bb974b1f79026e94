"""Cost of schedules that all groups run at once: their flows, laid on the links of a network.

flows          flows of all groups in the steps of a schedule
ring_sets      schedules along the rings that the links of a node close
steps          cost of each step: the load of every link, counted
all_pairs      cost of a step of all ranks to all, without listing the flows
rotations      cost of shifts on a torus, without listing the flows
step_costs     seconds to start and seconds per byte of each step
critical_path  longest chain of steps where some leave ranks out
asynchronous   seconds of schedules whose ranks go on at their own pace, played flow by flow
fair_shares    max-min fair rates of flows that share links
schedules      cost of a schedule: the sum of its steps, or what its chain of steps comes to
"""

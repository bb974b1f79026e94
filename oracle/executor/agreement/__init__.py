"""How replicas of the executor agree on gradients by other means than one allreduce.

agreement   which of them a plan has, what it keeps between steps, and parameter servers
links       bytes that a rank sends to and hears from single others
largest     the largest entries, by five algorithms
low_rank    PowerSGD
signs       one bit a gradient
grid        an allreduce over rows and columns
"""

"""Measures: exchanges, rows, steps, memory, and what a machine has and does.

collectives                  exchanges by operation, size and group
timed_steps clock            steps of a plan, timed by phase and message
profile row_steps            seconds of each row of a model
lockstep                     how long ranks take that wait for each other
step_trace                   one step under the profiler
memory_count                 bytes of tensors alive while a step runs
machine                      kernels, launches, memory and disk of a machine
hardware                     what a machine has, as its kernel says
disk                         bytes a second of a disk
kernel_shapes kernel_calls   kernels that are timed one by one
"""

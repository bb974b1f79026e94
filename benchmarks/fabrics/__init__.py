"""Parts of `benchmarks.network` beyond SimGrid and NCCL's model, a file each.

A part's `table(quick)` gives its rows and figures; a file put here is found by itself.
"""

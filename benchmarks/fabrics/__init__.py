"""Parts of `benchmarks.networks`, a file each: shapes of networks, where ranks sit on them.

A part's `table(quick)` gives its rows and figures; a file put here is found by itself.
"""

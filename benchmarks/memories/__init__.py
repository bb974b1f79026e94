"""Parts of `benchmarks.memory`, a file each: what fits, what it costs, what others measured.

A part's `table(quick)` gives its rows and figures; a file put here is found by itself.
"""

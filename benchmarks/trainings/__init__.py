"""Parts of `benchmarks.run`, a file each: a whole training held against what runs took.

A part's `table(quick)` gives its rows and figures; a file put here is found by itself.
"""

"""Measured seconds of rows in place of modelled ones: `profile` opens a file of them.

measured    the profile, exact where it was measured and scaled elsewhere
scale       the kernel model scaled to what was measured
shape       signatures: a row and its local shape as text
factors     how many times as long as modelled what no row was measured for took in logged runs
file        the file, JSON lines
run_file    the file of logged runs, YAML
"""

from oracle.kernels.profile.file import profile
from oracle.kernels.profile.measured import Profile, Timed, Update
from oracle.kernels.profile.shape import signature

__all__ = ["Profile", "Timed", "Update", "profile", "signature"]

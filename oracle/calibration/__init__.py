"""Measurements to α, β and kernel curves, with residuals and intervals, as a new system spec.

The room is no verb, so that `oracle.calibrate` can be the function.

calibrate     from readings to a calibrated system
pools         the samples that one formula must explain
fit           a formula fitted to a pool
entries       a fit as entries of a spec
crowds        groups that talk at once
structure     levels and ports as logs and topologies say them
spec_block    a block of YAML in place of another
kernels       kernel curves fitted to measured kernels
"""

"""Fits α, β and kernel curves to measurements, with residuals and intervals, as a new spec.

calibrate     from readings to a calibrated system: its report, its JSON, its spec file
library       the library's own model, corrected by few factors that all samples share
library_fit   the factors as an entry of a spec, their error, and in words
pools         the samples of one operation at one level, which are fitted together
fit           the lower envelope of α-β lines, fitted to a pool
entries       a fit as `collectives:` entries of a spec, and in words
concurrency   several groups at once against one alone: contention, measured
believed      logs that cannot be of a system, or rates not of its storage: refused, or warned of
trust         whether logs contradict the system, each other or themselves
streams       what tests between pairs say of links
storage       shared files and disks, fitted to measured rates
structure     levels and ports of a system, as topology files describe them
runs          factors of a machine and its software from logs of training runs
run_parts     parts of a logged run beside what is predicted of them
run_profile   a profile from logs, by what a user says of them or they themselves do
convergence   epochs by batch from trainings, as a block of a model's spec
spec_block    a block of YAML replaced in the text of a spec
kernels       kernel curves fitted to measured kernels
timed         kernels as timings have them, and those that cannot be true
power         what long products keep up under the power of a device
machine       a device and a system of what `measure machine` measured
shared        one curve for several devices, as shares of each one's peak
"""

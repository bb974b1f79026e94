"""The command line, one file a verb: `arguments(parser)` says what it takes, `run(args)` answers.

cli         finds the verb, runs it, prints its answer; the only file that prints
parser      the verbs, their parsers, and the form of an answer
arguments   options that several verbs share
settings    defaults of options from the environment and from files
job         the answer of `import job`
new_spec    that of `specs new`
calibrate_run   that of `calibrate run`
calibrate_convergence   that of `calibrate convergence`
machine     the answers of `measure machine` and `measure kernels`
reading     samples that verbs read for real: which, from where, how
checkpointing   checkpoints that a real training keeps, failures that it is given
engine      which engine runs a plan
scheduling  the answer where the batch grows
foreign     models of other tools where a MODEL is asked for; `micro=` of a plan
lacking     what a system lacks for what is asked of it
progress    a line on a terminal while an answer takes long
launching   ranks on this machine: the options, and how they end
shells      completions for shells, and the manual page
serve/      the live page
recommend estimate explain choose design_network sweep workflow report plot specs import_ export
measure calibrate run compare config schema completion selftest       one verb each
"""

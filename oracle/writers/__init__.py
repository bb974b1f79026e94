"""Plans written for their launchers and viewers, and rows as tables; one module a format.

export        the formats, found by their `TITLE`; writes all files or none
exported      the plan that is exported, as every format asks for it
nodes         what nodes a job is started on, kind by kind
job           all that a person starts, with the files of the software's own writer
templates     programs that jobs bring along; megatron_flags.json: options of pinned versions
blank         a first spec file from a few answers
rows          rows as CSV and Markdown
rankfile      where each rank is started, for Open MPI, Slurm, MPICH and torchrun
torchrun slurm deepspeed megatron nemo torchtitan executor trace     one format each
"""

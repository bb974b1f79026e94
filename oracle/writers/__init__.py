"""Plans written for their launchers and viewers, and rows as tables; one module a format.

export        the formats, found by their `TITLE`, and a writer of all files or none
exported      the plan that is exported: its degrees, batch, nodes, model and predicted time
nodes         the nodes that a job is started on, kind by kind
job           a complete job: a script, a README, a check, and the files of the software's writer
templates     programs that jobs bring along; megatron_flags.json: options of pinned versions
blank         a first spec file from a few answers
rows          rows as CSV and Markdown
rankfile      the node and slot of each rank, for Open MPI, Slurm, MPICH and torchrun
torchrun slurm deepspeed megatron nemo torchtitan executor trace     one format each
"""

"""Plans written for their launchers and viewers, and rows as tables; one module a format.

export        the formats, found by their `TITLE`; writes all files or none
exported      the plan that is exported, as every format asks for it
job           all that a person starts, of the software that was predicted
rows          rows as CSV and Markdown
torchrun slurm deepspeed megatron nemo torchtitan trace     one format each
"""

"""Plans written for their launchers and viewers, and rows as tables; one module a format.

export        the formats, found by their `TITLE`; writes all files or none
job           the plan that is exported, as every format asks for it
rows          rows as CSV and Markdown
torchrun slurm deepspeed megatron torchtitan trace     one format each
"""

"""One file a format out: what a chosen plan's launcher or viewer reads.

export        finds a format by its name; writes all files or none
job           what the formats share
rows          rows as CSV and Markdown
torchrun slurm deepspeed megatron torchtitan trace     one format each
"""

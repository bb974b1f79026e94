"""Words of other tools for what we call otherwise: what people write first, as advice knows it."""

from __future__ import annotations

_OURS = {
    "devices": "gpus gpu num_gpus n_gpus ngpus accelerators ranks workers world_size nproc",
    "batch": "gbs bs batch_size global_batch global_batch_size train_batch_size",
    "batch_per_device": "mbs micro_batch micro_batch_size per_device_train_batch_size",
    "system": "cluster machine hardware",
    "model": "net network arch",
    "output": "out",
    "format": "output_format fmt",
    "only": "strategies axes",
    "top": "top_k topk",
    # strategies
    "data": "dp ddp fsdp hsdp dataparallel data_parallel",
    "tensor": "tp mp tensor_parallel model_parallel",
    "pipeline": "pp pipe pipeline_parallel",
    "context": "cp sp ring_attention ulysses",
    "expert": "ep moe experts expert_parallel",
    "recompute": "checkpointing activation_checkpointing gradient_checkpointing ac",
    "offload": "cpu_offload",
    # their knobs
    "zero": "stage zero_stage",
    "segments": "microbatches micro_batches num_microbatches chunks",
    "interleave": "vpp virtual virtual_stages",
    "accumulate": "grad_accum gradient_accumulation gradient_accumulation_steps",
    "sequence": "sequence_parallel seq seq_len seq_length max_position_embeddings n_ctx",
    "on": "true yes enabled",
    "off": "false no disabled",
    # precisions and optimizers
    "fp32": "float32 float full single",
    "fp16": "float16 half amp mixed",
    "bf16": "bfloat16",
    "fp8": "float8 e4m3",
    "adam": "adamw",
    "momentum": "nesterov sgdm",
    # fields of specs
    "layers": "num_layers n_layers n_layer num_hidden_layers depth",
    "hidden": "hidden_size d_model n_embd embed_dim",
    "heads": "num_heads n_heads n_head num_attention_heads",
    "kv_heads": "num_kv_heads num_key_value_heads n_kv_heads",
    "ffn": "intermediate_size ffn_hidden_size d_ff",
    "vocab": "vocab_size n_vocab",
    "filters": "out_channels channels_out",
    "kernel": "kernel_size ksize",
    "dense": "linear fc fully_connected",
    "conv": "conv1d conv2d conv3d",
    "norm": "batchnorm layernorm batch_norm layer_norm bn",
    "silu": "swish",
    # questions, and what an answer has
    "estimate": "predict simulate cost",
    "recommend": "search suggest optimize tune autotune",
    "choose": "decide buy",
    "explain": "why",
    "seconds": "time times latency duration step_time",
    "memory": "mem memory_bytes peak_memory",
    "feasible": "fits_memory ok valid",
    "plans": "plan names strategies",
    "best": "winner top1",
}
OURS = {word: ours for ours, words in _OURS.items() for word in words.split()}

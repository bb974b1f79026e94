"""Language models that look back only."""

from __future__ import annotations

from typing import Any

from oracle.readers.config_json import NAMES, Config
from oracle.readers.families.base import base, family, function_of


def _llama_like(config: Config) -> dict[str, Any]:
    block = {**base(config), "gated": True}
    block["tied_embeddings"] = config.flag("tie_word_embeddings", False)
    if config.flag("attention_bias") or config.flag("qkv_bias"):
        block["qkv_bias"] = True
    function = function_of(config, "silu", "hidden_act", "hidden_activation")
    if function != "silu":
        block["activation"] = function
    window = config.integer("sliding_window", smallest=0)
    if window and config.flag("use_sliding_window", True) and window < block["sequence"]:
        block["window"] = window
    return block


@family("llama", "mistral", "phi3", "granite", "internlm2", "smollm3", "ministral")
def _llama(config: Config) -> dict[str, Any]:
    return {"transformer": _llama_like(config)}


@family("qwen2")
def _qwen2(config: Config) -> dict[str, Any]:
    fields = {"use_sliding_window": False, **config.fields}
    block = _llama_like(config.but(fields))
    return {"transformer": {**block, "qkv_bias": True}}


@family("qwen3")
def _qwen3(config: Config) -> dict[str, Any]:
    fields = {"use_sliding_window": False, **config.fields}
    return {"transformer": {**_llama_like(config.but(fields)), "qk_norm": True}}


@family("olmo2")
def _olmo2(config: Config) -> dict[str, Any]:
    config.notes.append("its norms of queries and keys, as wide as all heads, are left out")
    return {"transformer": _llama_like(config)}


@family("gemma")
def _gemma(config: Config) -> dict[str, Any]:
    fields = {"tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh", **config.fields}
    return {"transformer": {**_llama_like(config.but(fields)), "activation": "gelu"}}


@family("gemma2", "gemma3_text")
def _gemma2(config: Config) -> dict[str, Any]:
    """Return a block of windows and all tokens in turn, with norms after each part too."""
    third = config.text("model_type") == "gemma3_text"
    fields = {"tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh",
              "sliding_window": 4096, **config.fields}  # fmt: skip
    block = {**_llama_like(config.but(fields)), "activation": "gelu", "post_norms": True}
    if "window" in block:
        turn = config.integer("sliding_window_pattern", "_sliding_window_pattern")
        block["full_every"] = turn or (6 if third else 2)
    return {"transformer": {**block, "qk_norm": True} if third else block}


@family("gpt_oss")
def _gpt_oss(config: Config) -> dict[str, Any]:
    """Return a block of windows and all tokens in turn, with sinks and biased experts."""
    fields = {"sliding_window": 128, "attention_bias": True, **config.fields}
    block = {**_llama_like(config.but(fields)), "sinks": True, "bias": True}
    if "window" in block:
        block["full_every"] = 2
    block["ffn"] = config.optional("ffn") or block["hidden"]
    block["experts"] = config.integer("num_local_experts", "num_experts", default=128)
    block["active"] = config.integer("num_experts_per_tok", "experts_per_token", default=4)
    return {"transformer": block}


@family("mixtral", "phimoe")
def _mixtral(config: Config) -> dict[str, Any]:
    block = _llama_like(config)
    block["experts"] = config.integer("num_local_experts", default=8)
    block["active"] = config.integer("num_experts_per_tok", default=2)
    return {"transformer": block}


@family("qwen2_moe", "qwen3_moe", "olmoe", "deepseek")
def _fine_grained(config: Config) -> dict[str, Any]:
    """Return a block of many small experts, some shared, in all or in some layers."""
    fields = {"use_sliding_window": False, **config.fields}
    inner = config.but(fields)
    block = _llama_like(inner)
    kind = config.text("model_type")
    if kind == "qwen2_moe":
        block["qkv_bias"] = True
    if kind == "qwen3_moe":
        block["qk_norm"] = True
    if kind == "olmoe":
        config.notes.append("its norms of queries and keys, as wide as all heads, are left out")
    dense = block.get("ffn", 4 * block["hidden"])
    width = config.integer("moe_intermediate_size", default=dense) or dense
    experts = config.integer("num_experts", "n_routed_experts", "num_local_experts") or 0
    active = config.integer("num_experts_per_tok", default=4) or 4
    if not experts:
        config.fault("num_experts", "how many experts a layer has is missing")
    shared = config.integer("n_shared_experts", default=0, smallest=0) or 0
    if together := config.integer("shared_expert_intermediate_size", smallest=0):
        shared = round(together / width)
        if shared * width != together:
            config.notes.append(f"the shared expert of {together} is counted as {shared} × {width}")
    return _stack(config, block, width, {"experts": experts, "active": active, "shared": shared})


def _stack(
    config: Config, block: dict[str, Any], width: int, mixture: dict[str, int]
) -> dict[str, Any]:
    """Return a block, or a list of layers where layers without experts have no order."""
    first = config.integer("first_k_dense_replace", default=0, smallest=0) or 0
    step = config.integer("decoder_sparse_step", default=1) or 1
    frequency = config.integer("moe_layer_freq", default=1) or 1
    dense_layers = config.fields.get("mlp_only_layers")
    only = dense_layers if isinstance(dense_layers, list) else []
    mixture = {k: v for k, v in mixture.items() if v}
    if frequency == 1 and not only and not (first and step > 1):
        dense = {"dense_ffn": block.get("ffn", 4 * block["hidden"])} if first or step > 1 else {}
        order = {"first_dense": first} if first else {"every": step} if step > 1 else {}
        return {"transformer": {**block, "ffn": width, **mixture, **order, **dense}}
    layers = block["layers"]
    if layers > 10_000:
        config.fault(NAMES["layers"][0], f"{layers} layers")
        return {}
    odd = [i for i in range(layers) if i < first or (i + 1) % step or i % frequency or i in only]
    attention = {"name": "attention", "heads": block["heads"], "causal": True, "rotary": True,
                 "bias": bool(block.get("qkv_bias"))}  # fmt: skip
    attention |= {k: block[k] for k in ("kv_heads", "width", "window") if k in block}
    attention |= {"normed": True} if block.get("qk_norm") else {}
    dense = {"name": "mlp", "ffn": block.get("ffn", 4 * block["hidden"]), "gated": True,
             "activation": "silu", "bias": False}  # fmt: skip
    moe = {"name": "mlp", "ffn": width, "gated": True, **mixture}

    def block_of(times: int, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        return {"repeat": times, "layers": [
            {"norm": {"op": "rms"}}, {"attention": attention},
            {"add": {"name": "middle", "from": ["block", "attention"]}},
            {"norm": {"op": "rms"}}, {kind: fields}, {"add": {"from": ["middle", "mlp"]}},
        ]}  # fmt: skip

    runs: list[list[int]] = []  # (dense or not, how many) in turn
    for i in range(layers):
        if runs and runs[-1][0] == (i in odd):
            runs[-1][1] += 1
        else:
            runs.append([i in odd, 1])
    blocks = [block_of(n, "mlp", dense) if plain else block_of(n, "moe", moe) for plain, n in runs]
    head = {"filters": block["vocab"], "bias": False, "role": "vocab",
            "tied": block["tied_embeddings"]}  # fmt: skip
    table = {"vocab": block["vocab"], "hidden": block["hidden"]}
    return {"input": [1, block["sequence"]], "layers": [
        {"embedding": table}, *blocks, {"norm": {"op": "rms"}}, {"dense": head}, "loss",
    ]}  # fmt: skip


@family("deepseek_v2", "deepseek_v3", "kimi_k2")
def _latent(config: Config) -> dict[str, Any]:
    """Return latent attention, experts routed by groups, predictions of further tokens."""
    body = _fine_grained(config)
    block = body.get("transformer")
    if block is None:
        config.fault("mlp_only_layers", "latent attention is described where layers are in order")
        return {}
    names = {"kv_rank": "kv_lora_rank", "q_rank": "q_lora_rank", "plain": "qk_nope_head_dim",
             "rotary": "qk_rope_head_dim", "value": "v_head_dim"}  # fmt: skip
    latent = {name: config.integer(key) for name, key in names.items()}
    if latent["kv_rank"] is None:
        config.fault("kv_lora_rank", "how wide the latent vector is is missing")
    for name in ("kv_heads", "width", "window"):
        block.pop(name, None)
    block["latent"] = {name: value for name, value in latent.items() if value is not None}
    groups = config.integer("n_group", default=1) or 1
    if groups > 1 and config.text("topk_method") != "greedy":
        block |= {"groups": groups, "reach": config.integer("topk_group", default=groups)}
    if further := config.integer("num_nextn_predict_layers", default=0, smallest=0):
        block["predicts"] = further
        config.notes.append(f"with {further} layer that predicts a further token, which the count "
                            "of a model's parameters leaves out")  # fmt: skip
    return body


@family("gpt2", "gpt_bigcode")
def _gpt2(config: Config) -> dict[str, Any]:
    fields = {"resid_pdrop": 0.1, **config.fields}
    block = base(config.but(fields), table=True)
    if config.text("model_type") == "gpt_bigcode" and config.flag("multi_query", True):
        block["kv_heads"] = 1
    if function_of(config, "gelu", "activation_function") != "gelu":
        block["activation"] = function_of(config, "gelu", "activation_function")
    if not config.flag("tie_word_embeddings", True):
        block["tied_embeddings"] = False
    return {"transformer": block}


@family("gpt_neox", "starcoder2", "stablelm")
def _neox(config: Config) -> dict[str, Any]:
    kind = config.text("model_type")
    block = {**base(config), "positions": "rotary"}
    block["tied_embeddings"] = config.flag("tie_word_embeddings", kind == "starcoder2")
    if kind == "stablelm":
        block |= {"gated": True, "norm": "layer", "qkv_bias": config.flag("use_qkv_bias")}
    elif not config.flag("use_bias" if kind == "starcoder2" else "attention_bias", True):
        block["bias"] = False
    return {"transformer": block}


@family("opt")
def _opt(config: Config) -> dict[str, Any]:
    block = base(config, table=True)
    block["activation"] = function_of(config, "relu", "activation_function")
    if config.integer("word_embed_proj_dim", default=block["hidden"]) != block["hidden"]:
        config.notes.append("the projection behind the embedding is left out")
    config.notes.append("two spare rows of the position table are left out")
    return {"transformer": block}


@family("bloom")
def _bloom(config: Config) -> dict[str, Any]:
    block = {**base(config), "positions": "none", "embedding_norm": True}
    return {"transformer": block}


@family("mpt")
def _mpt(config: Config) -> dict[str, Any]:
    block = base(config, table=True)
    ratio = config.integer("expansion_ratio", default=4) or 4
    if ratio != 4:
        block["ffn"] = ratio * block["hidden"]
    attention = config.nested("attn_config")
    if attention.get("alibi") or not config.flag("learned_pos_emb", True):
        block["positions"] = "none"
    if isinstance(attention.get("kv_n_heads"), int):
        block["kv_heads"] = attention["kv_n_heads"]
    if config.flag("no_bias"):
        block["bias"] = False
        config.notes.append("its norms have no shift: one vector a norm too many is counted")
    if attention.get("attn_impl") == "torch":
        block["flash"] = False
    return {"transformer": block}


@family("falcon", "RefinedWeb", "RefinedWebModel")
def _falcon(config: Config) -> dict[str, Any]:
    block = base(config)
    newer = config.flag("new_decoder_architecture")
    if not newer and config.flag("multi_query", True):
        block["kv_heads"] = 1
    elif not newer:
        block.pop("kv_heads", None)
    block["positions"] = "none" if config.flag("alibi") else "rotary"
    if not config.flag("bias"):
        block["bias"] = False
    if not newer and config.flag("parallel_attn", True):
        config.notes.append("attention and MLP share one norm: two are counted")
    return {"transformer": block}

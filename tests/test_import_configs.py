"""Hugging Face configs of much used architectures: as many parameters as the library counts."""

from __future__ import annotations

from typing import Any

import pytest

import oracle
from oracle.readers.importers import huggingface
from oracle.spec.document import SpecError

LABELS = {"id2label": {str(i): "" for i in range(1000)}}


def text(layers: int, hidden: int, heads: int, ffn: int, vocab: int, length: int,
         **more: Any) -> dict[str, Any]:  # fmt: skip
    return {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
            "intermediate_size": ffn, "vocab_size": vocab, "max_position_embeddings": length,
            **more}  # fmt: skip


WAVE = text(12, 768, 12, 3072, 32, 0) | {
    "max_position_embeddings": None, "conv_dim": [512] * 7, "conv_kernel": [10, 3, 3, 3, 3, 2, 2],
    "conv_stride": [5, 2, 2, 2, 2, 2, 2], "feat_extract_norm": "group",
}  # fmt: skip
BASE = (12, 768, 12, 3072)
# (model_type, fields of the released config, parameters of the class that `architectures` names as
# transformers 5.23 builds it)
CONFIGS: dict[str, tuple[str, dict[str, Any], int]] = {
    "bert-base": ("bert", text(*BASE, 30522, 512, architectures=["BertForPreTraining"]),
                  110_106_428),
    "roberta-base": ("roberta", text(*BASE, 50265, 514, type_vocab_size=1), 124_697_433),
    "xlm-roberta-base": ("xlm-roberta", text(*BASE, 250002, 514, type_vocab_size=1), 278_295_186),
    "distilbert-base": ("distilbert", {
        "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072, "vocab_size": 30522,
        "max_position_embeddings": 512, "architectures": ["DistilBertForMaskedLM"]}, 66_985_530),
    "electra-small": ("electra", text(12, 256, 4, 1024, 30522, 512, embedding_size=128),
                      13_549_057),
    "electra-base": ("electra", text(*BASE, 30522, 512, embedding_size=768), 109_483_009),
    "mpnet-base": ("mpnet", text(*BASE, 30527, 514), 109_518_527),
    "t5-base": ("t5", {"d_model": 768, "d_ff": 3072, "d_kv": 64, "num_layers": 12, "num_heads": 12,
                       "vocab_size": 32128, "n_positions": 512}, 222_903_552),
    "t5-v1_1-small": ("t5", {
        "d_model": 512, "d_ff": 1024, "d_kv": 64, "num_layers": 8, "num_heads": 6,
        "vocab_size": 32128, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        60_511_616 + 32128 * 512),  # the library ties its head to the table
    "bart-large": ("bart", {
        "d_model": 1024, "encoder_layers": 12, "encoder_attention_heads": 16,
        "encoder_ffn_dim": 4096, "decoder_layers": 12, "decoder_attention_heads": 16,
        "decoder_ffn_dim": 4096, "vocab_size": 50265, "max_position_embeddings": 1024},
        406_291_456),
    "gpt2": ("gpt2", {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
                      "vocab_size": 50257}, 124_439_808),
    "opt-125m": ("opt", {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                         "ffn_dim": 3072, "vocab_size": 50272, "max_position_embeddings": 2048},
                 125_239_296),
    "bloom-560m": ("bloom", {"hidden_size": 1024, "n_layer": 24, "n_head": 16,
                             "vocab_size": 250880}, 559_214_592),
    "falcon-7b": ("falcon", {"hidden_size": 4544, "num_hidden_layers": 32, "multi_query": True,
                             "num_attention_heads": 71, "vocab_size": 65024, "bias": False,
                             "parallel_attn": True}, 6_921_720_704),
    "pythia-70m": ("gpt_neox", text(6, 512, 8, 2048, 50304, 2048), 70_426_624),
    "llama-2-7b": ("llama", text(32, 4096, 32, 11008, 32000, 4096), 6_738_415_616),
    "mistral-7b": ("mistral", text(32, 4096, 32, 14336, 32000, 32768, num_key_value_heads=8),
                   7_241_732_096),
    "qwen2-7b": ("qwen2", text(28, 3584, 28, 18944, 152064, 131072, num_key_value_heads=4),
                 7_615_616_512),
    "qwen3-8b": ("qwen3", text(36, 4096, 32, 12288, 151936, 40960, num_key_value_heads=8,
                               head_dim=128), 8_190_735_360),
    "gemma-7b": ("gemma", text(28, 3072, 16, 24576, 256000, 8192, head_dim=256), 8_537_680_896),
    "gemma-2-2b": ("gemma2", text(26, 2304, 8, 9216, 256000, 8192, num_key_value_heads=4,
                                  head_dim=256, sliding_window=4096), 2_614_341_888),
    "gemma-3-1b": ("gemma3_text", text(26, 1152, 4, 6912, 262144, 32768, num_key_value_heads=1,
                                       head_dim=256, sliding_window=512), 999_885_952),
    "gpt-oss-20b": ("gpt_oss", text(24, 2880, 64, 2880, 201088, 131072, num_key_value_heads=8,
                                    head_dim=64, sliding_window=128, num_local_experts=32,
                                    num_experts_per_tok=4), 20_914_757_184),
    "deepseek-v3": ("deepseek_v3", text(
        61, 7168, 128, 18432, 129280, 163840, num_key_value_heads=128, moe_intermediate_size=2048,
        n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=3,
        kv_lora_rank=512, q_lora_rank=1536, qk_nope_head_dim=128, qk_rope_head_dim=64,
        v_head_dim=128, n_group=8, topk_group=4), 671_026_404_352),
    "phi-3-mini": ("phi3", text(32, 3072, 32, 8192, 32064, 4096), 3_821_079_552),
    "mixtral-8x7b": ("mixtral", text(32, 4096, 32, 14336, 32000, 32768, num_key_value_heads=8,
                                     num_local_experts=8, num_experts_per_tok=2), 46_702_792_704),
    "albert-base-v2": ("albert", text(*BASE, 30000, 512, embedding_size=128),
                       11_221_680),
    "deberta-v3-base": ("deberta-v2", text(
        *BASE, 128100, 512, relative_attention=True, position_buckets=256, share_att_key=True,
        pos_att_type="p2c|c2p", position_biased_input=False, type_vocab_size=0), 183_831_552),
    "mamba2-2.7b": ("mamba2", {
        "hidden_size": 2560, "num_hidden_layers": 64, "num_heads": 80, "head_dim": 64,
        "n_groups": 1, "state_size": 128, "vocab_size": 50288, "tie_word_embeddings": True},
        2_702_599_680),
    "nemotron-h-8b": ("nemotron_h", {
        "hidden_size": 4096, "num_hidden_layers": 52, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 21504,
        "vocab_size": 131072, "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8,
        "ssm_state_size": 128, "chunk_size": 128, "max_position_embeddings": 8192,
        "hybrid_override_pattern": "M-M-M-M*-" + "M-M-M-M-M*-" * 3 + "M-M-M-M-M-"}, 8_100_852_736),
    "beit-base": ("beit", text(*BASE, 0, 0, image_size=224, patch_size=16, **LABELS,
                               use_relative_position_bias=True), 86_530_984),
    "siglip-base": ("siglip", {"vision_config": {"patch_size": 16, "image_size": 224}},
                    203_155_970),
    "vit-base": ("vit", text(*BASE, 0, 0, image_size=224, patch_size=16, **LABELS), 86_567_656),
    "deit-base": ("deit", text(*BASE, 0, 0, image_size=224, patch_size=16, **LABELS), 86_569_192),
    "dinov2-base": ("dinov2", text(*BASE, 0, 0, image_size=518, patch_size=14), 86_580_480),
    "clip-vit-base-patch32": ("clip", {
        "projection_dim": 512, "text_config": text(12, 512, 8, 2048, 49408, 77),
        "vision_config": {"patch_size": 32, "image_size": 224}}, 151_277_313),
    "resnet-18": ("resnet", {"depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512],
                             "layer_type": "basic", **LABELS}, 11_689_512),
    "resnet-50": ("resnet", {"depths": [3, 4, 6, 3], "hidden_sizes": [256, 512, 1024, 2048],
                             "layer_type": "bottleneck", **LABELS}, 25_557_032),
    "convnext-tiny": ("convnext", {"depths": [3, 3, 9, 3], "hidden_sizes": [96, 192, 384, 768],
                                   "layer_scale_init_value": 1e-6, **LABELS}, 28_589_128),
    "swin-tiny": ("swin", {"embed_dim": 96, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24],
                           "window_size": 7, "image_size": 224, **LABELS}, 28_288_354),
    "wav2vec2-base": ("wav2vec2", WAVE | {"architectures": ["Wav2Vec2ForCTC"]}, 94_396_320),
    "hubert-base": ("hubert", WAVE | {"architectures": ["HubertModel"]}, 94_371_712),
    "whisper-tiny": ("whisper", {
        "d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536,
        "decoder_layers": 4, "decoder_attention_heads": 6, "decoder_ffn_dim": 1536,
        "vocab_size": 51865, "num_mel_bins": 80}, 37_760_640),
}  # fmt: skip
# FLOP of a forward pass as torch's counter has them, at the lengths taken here
FLOP = {
    "t5-base": 257_194_721_280, "electra-small": 12_985_827_328, "dinov2-base": 303_147_436_032,
    "convnext-tiny": 8_911_062_528, "swin-tiny": 8_981_133_312, "wav2vec2-base": 239_876_515_840,
}  # fmt: skip


def fields(name: str) -> dict[str, Any]:
    kind, said, _ = CONFIGS[name]
    return {"model_type": kind, **{key: v for key, v in said.items() if v or v is False}}


@pytest.mark.parametrize("name", CONFIGS)
def test_configs_have_their_parameters(name: str) -> None:
    found = huggingface.convert(fields(name))
    model = oracle.model(found.spec)
    assert model.parameters == pytest.approx(CONFIGS[name][2], rel=2e-4)
    if model.parameters != CONFIGS[name][2]:
        assert found.notes  # says what is left out
    if name in FLOP:
        assert model.flop / 3 == pytest.approx(FLOP[name], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5-base", "swin-tiny"])
def test_what_was_imported_can_be_planned(name: str) -> None:
    found = oracle.recommend(huggingface.convert(fields(name)).spec, "dgx-a100", 8, batch=64)
    assert found.estimate.fits[0]


def test_a_decoder_attends_to_its_encoder_by_a_layer_of_that_kind() -> None:
    """As the shipped Whisper does: of its sizes the import is that model."""
    for name in ("t5-base", "bart-large", "whisper-tiny"):
        rows = oracle.model(huggingface.convert(fields(name)).spec).rows
        cores = [row for row in rows if row.work == "attention" and row.kind == "cross"]
        assert len(cores) == 1
        assert not [row.name for row in rows if row.kind == "opaque" and row.macs]
    large = {"model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32,
             "encoder_attention_heads": 20, "decoder_attention_heads": 20, "encoder_ffn_dim": 5120,
             "decoder_ffn_dim": 5120, "vocab_size": 51866, "num_mel_bins": 128}  # fmt: skip
    found, shipped = (
        oracle.estimate(model, "dgx-a100", "data:8", 64, precision="bf16")
        for model in (huggingface.convert(large).spec, "whisper-large-v3")
    )
    assert found.seconds[0] == pytest.approx(shipped.seconds[0], rel=1e-3)
    assert found.memory[0] == pytest.approx(shipped.memory[0], rel=1e-3)


LLAMA31 = text(32, 4096, 32, 14336, 128256, 131072, num_key_value_heads=8)


def test_a_trained_length_is_taken_and_said() -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
    said = {"model_type": "llama", **LLAMA31, "rope_scaling": scaling}
    found = huggingface.convert(said)
    assert found.spec["transformer"]["sequence"] == 8192
    assert any("trained at a sequence of 8,192" in n and "131,072" in n for n in found.notes)
    known = huggingface.convert({**said, "rope_scaling": {**scaling, STRETCHED: 4096}})
    assert known.spec["transformer"]["sequence"] == 4096
    plain = huggingface.convert({"model_type": "llama", **LLAMA31})
    assert plain.spec["transformer"]["sequence"] == 8192
    assert any("doesn't say at which" in note for note in plain.notes)
    asked = huggingface.convert(said, sequence=131072)
    assert asked.spec["transformer"]["sequence"] == 131072
    short = huggingface.convert({"model_type": "llama", **LLAMA31, "max_position_embeddings": 4096})
    assert not any("trained at" in note for note in short.notes)


STRETCHED = "original_max_position_embeddings"


def test_stages_that_do_not_fit_are_refused() -> None:
    for name, key, value in [
        ("swin-tiny", "num_heads", [3, 6]), ("resnet-50", "depths", [3, -1]),
        ("convnext-tiny", "hidden_sizes", "wide"), ("wav2vec2-base", "conv_kernel", [10]),
        ("dinov2-base", "use_swiglu_ffn", True),
    ]:  # fmt: skip
        with pytest.raises(SpecError, match=key.split("_")[0] + "|depths|conv_dim"):
            huggingface.convert({**fields(name), key: value})


def test_layers_with_experts_are_those_that_the_family_says() -> None:
    qwen = text(4, 256, 4, 512, 1000, 2048, num_experts=4, num_experts_per_tok=2,
                moe_intermediate_size=128, decoder_sparse_step=2)  # fmt: skip

    def kinds(kind: str, **more: Any) -> tuple[float, float]:
        """Layers with experts, and without."""
        model = oracle.model(huggingface.convert({"model_type": kind, **qwen, **more}).spec)
        words = [(row.kind, row.name) for row in model.rows]
        return tuple(sum(n for word, n in zip(words, model.repeat, strict=True) if word == asked)
                     for asked in (("moe", "mlp.router"), ("mlp", "mlp.up")))  # fmt: skip

    assert kinds("qwen2_moe") == (2, 2)
    assert kinds("qwen2_moe", mlp_only_layers=[1]) == (1, 3)
    deep = {"n_routed_experts": 4, "decoder_sparse_step": None, "first_k_dense_replace": 1}
    assert kinds("deepseek", **deep) == (3, 1)
    assert kinds("deepseek", **deep, moe_layer_freq=2) == (1, 3)

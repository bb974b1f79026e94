"""What NVIDIA's own recipes set beside the plan that NeMo's table of Blackwell states.

NVIDIA-NeMo/Megatron-Bridge, scripts/performance/configs/{deepseek,qwen,nemotronh,llama}/*workload*
at v0.2.0 (25.11), v0.3.0 and v0.3.1 (26.02), v0.4.0 and v0.4.2 (26.04), v0.5.0 (26.06), and
src/megatron/bridge/perf_recipes at v0.6.0: `recompute_modules`, `cuda_graph_impl` and
`cuda_graph_scope`, `moe_flex_dispatcher_backend`, `moe_a2a_overlap`, `cpu_offloading_num_layers`,
`virtual_pipeline_model_parallel_size`, `fp8_output_proj`. Bytes of moments: src/megatron/bridge/
recipes/deepseek/deepseek_v3.py:161-165 at v0.4.0; its layers by chunk: there, 37-45.
"""

from __future__ import annotations

from dataclasses import dataclass

# software of a container; of the first of 26.04 (v0.4.0) as of 26.02: weights of nvfp4 in 16 bits
SOFTWARE = {"25.11": "nemo-25.11", "26.02": "nemo-26.02", "26.02.01": "nemo-26.02",
            "26.04": "nemo-26.02", "26.04.01": "nemo-26.04"}  # fmt: skip
NEWEST = "nemo"


@dataclass(frozen=True)
class Recipe:
    """What a recipe adds to a row's plan, and changes of its software."""

    plan: str = ""
    changes: tuple[str, ...] = ()
    chunks: int | None = None  # of a stage, where the table leaves them open


HALF = "state.moments=bf16"
ROUTER, ALL_BUT_EXPERTS = "moe_router+moe_preprocess", "attn+moe_router+moe_preprocess"
GRAPHS = {"router": f"graphs={ROUTER}", "parts": f"graphs={ALL_BUT_EXPERTS}",
          "mixers": f"graphs=mamba+{ALL_BUT_EXPERTS}", "mlp": "graphs=mlp",
          "dense": "graphs=attn+mlp", "all": "graphs=iteration"}  # fmt: skip
PLAIN = ("dispatcher=alltoall", "experts.processors=0")
ALONE = ("experts.overlap=none", "weight_gradients=at_once")
EACH = "grouped=each"  # without `cutedsl_fused_grouped_mlp`, use_transformer_engine_op_fuser
NARROW_HEAD = "head=narrow"  # fp8_output_proj
LATENT = "recompute:mla_up_proj"
# by model, or model and what was trained in which precision, and by GPU: from which release on
RECIPES: dict[tuple[str, str], dict[str, Recipe]] = {
    ("DeepSeekV3", "GB300"): {
        "25.11": Recipe("recompute:moe_act", (HALF, GRAPHS["parts"])),
        "26.02": Recipe(LATENT, (HALF,)),
        "26.06": Recipe("", (HALF, GRAPHS["all"], NARROW_HEAD)),
    },
    ("DeepSeekV3", "GB200"): {
        "25.11": Recipe(LATENT, (HALF, GRAPHS["router"])),
        "26.02": Recipe(LATENT, (HALF, GRAPHS["parts"])),
        "26.04": Recipe("recompute:mlp", (HALF, GRAPHS["parts"])),
        "26.06": Recipe(LATENT, (HALF, GRAPHS["all"], NARROW_HEAD)),
    },
    ("DeepSeekV3", "B300"): {
        "26.02": Recipe(LATENT, (HALF,), 1),
        "26.04.01": Recipe(LATENT, (HALF, GRAPHS["parts"]), 1),
        "26.06": Recipe(LATENT, (HALF, GRAPHS["parts"], *ALONE, EACH), 1),
    },
    ("DeepSeekV3", "B200"): {
        "25.11": Recipe(LATENT, (HALF, *PLAIN), 1),
        "26.02": Recipe(LATENT, (HALF,), 1),
        "26.04.01": Recipe(
            "recompute:mla_up_proj+mlp",
            (HALF, GRAPHS["parts"], "dispatcher=deepep", "experts.processors=16",
             "experts.overlap=batch", "weight_gradients=delayed"),
        ),
    },
    ("Qwen3_30B_a3B", "GB300"): {
        "25.11": Recipe("", (GRAPHS["router"],)), "26.06": Recipe("", (GRAPHS["all"],)),
    },
    ("Qwen3_30B_a3B", "GB200"): {
        "25.11": Recipe("", (GRAPHS["router"],)), "26.06": Recipe("", (GRAPHS["all"],)),
    },
    ("Qwen3_30B_a3B", "B300"): {
        "25.11": Recipe("", (GRAPHS["router"],)), "26.06": Recipe("", (GRAPHS["all"],)),
    },
    ("Qwen3_30B_a3B", "B200"): {
        "25.11": Recipe("", (GRAPHS["router"], *PLAIN)),
        "26.02.01": Recipe("", (GRAPHS["parts"],)),
    },
    **{("Nemotron_3_Nano", gpu): {
        "26.02": Recipe("", (GRAPHS["mixers"],)),
        "26.06": Recipe("", (GRAPHS["mixers"], *ALONE, EACH)),
        "26.08": Recipe("", (GRAPHS["mixers"], *ALONE, *([EACH] if gpu == "B200" else []))),
    } for gpu in ("GB300", "GB200", "B300", "B200")},
    **{("LLAMA3_70B pretraining FP8-CS", gpu): {"25.11": Recipe("offload:activations")}
       for gpu in ("GB300", "GB200")},
    ("LLAMA3_70B pretraining NVFP4", "GB200"): {"26.06": Recipe("", (GRAPHS["dense"],))},
    **{(f"LLAMA3_70B {task}", gpu): {"26.06": Recipe("", (GRAPHS["mlp"],))}
       for task in ("fine-tuning", "LoRA") for gpu in ("GB300", "GB200")},
}  # fmt: skip


def recipe_of(model: str, gpu: str, task: str, precision: str, release: str) -> Recipe:
    """The newest recipe of these until a release."""
    for name in (f"{model} {task} {precision}", f"{model} {task}", model):
        until = [found for since, found in RECIPES.get((name, gpu), {}).items()
                 if dated(since) <= dated(release)]  # fmt: skip
        if until:
            return until[-1]
    return Recipe()


def software_of(release: str, recipe: Recipe) -> str:
    """The software of a release, with what a recipe changes of it."""
    return ",".join((SOFTWARE.get(release, NEWEST), *recipe.changes))


def dated(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def latent_cuts(chunks: int) -> str:
    """DeepSeek-V3's 61 layers in 8 or 16 chunks of as many, the last with the second token."""
    if chunks not in (8, 16):
        return ""
    each = 64 // chunks
    return ",cuts=" + "/".join(str(1 + each * k) for k in range(1, chunks))

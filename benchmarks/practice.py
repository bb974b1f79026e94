"""What those who train such models run, beside the plans that are recommended first.

    python -m benchmarks.practice            a table, of docs/practice.md
    python -m benchmarks.practice --quick    its smallest question

Each row is a question of daily work: a recipe that its community publishes, as a plan and with its
source, and the first three plans of `oracle recommend` under the same software and batch.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import oracle
from benchmarks.table import Table, figure, text
from oracle.plan.names import short_names
from oracle.spec.units import show

LISTED = 3  # plans beside the recipe
NEAR = 1.1  # times the first plan's seconds, from where on a recipe is called slower


@dataclass(frozen=True, slots=True)
class Recipe:
    """A question, and the plan that its community runs."""

    title: str
    model: str
    system: str
    devices: int
    batch: int
    plan: str  # in words where no plan says it
    source: str
    precision: str | None = None

    @property
    def question(self) -> str:
        precision = f" --precision {self.precision}" if self.precision else ""
        return (f"{self.model} {self.system} --devices {self.devices} --batch {self.batch}"
                f"{precision}")  # fmt: skip


MLPERF = "NVIDIA/benchmarks"
RECIPES = (
    Recipe("ResNet-50 on 8 V100", "resnet50", "dgx-1-v100", 8, 1664, "data:8",
           f"mlcommons/training_results_v0.6, {MLPERF}/resnet/implementations/mxnet/"
           "config_DGX1.sh: a replica a GPU", "fp16"),
    Recipe("ResNet-50 on 512 V100", "resnet50", "abci", 512, 32768, "data:512",
           f"mlcommons/training_results_v0.6, {MLPERF}/resnet/implementations/mxnet/"
           "config_DGX2_multi_32x16x65.sh: a replica a GPU", "fp16"),
    Recipe("ResNet-50 on 512 A100", "resnet50", "dgx-a100", 512, 17920, "data:512",
           f"mlcommons/training_results_v1.0, {MLPERF}/resnet/implementations/mxnet/"
           "config_DGXA100_multi_128x8x35_sharp.sh: a replica a GPU, 35 samples each", "fp16"),
    Recipe("3-D U-Net on 16 A100", "unet3d-kits19", "dgx-a100", 16, 16, "data:16",
           f"mlcommons/training_results_v1.0, {MLPERF}/unet3d/implementations/mxnet/"
           "config_DGXA100_conv-dali_13x8x1.sh: a replica a GPU, one sample each", "fp16"),
    Recipe("CosmoFlow on 128 A100", "cosmoflow-128", "dgx-a100", 128, 128, "data:128",
           f"mlcommons/hpc_results_v1.0, {MLPERF}/cosmoflow/implementations/mxnet/configs/"
           "config_DGXA100_16x8x1.sh: a replica a GPU, one sample each", "fp16"),
    Recipe("ViT-L/16 on 32 V100", "vit-l16", "abci", 32, 1024, "data:32",
           "facebookresearch/mae, FINETUNE.md: DistributedDataParallel, 32 samples a GPU", "fp16"),
    Recipe("GPT-3 175B on 1,024 A100", "gpt3-175b", "dgx-a100", 1024, 1536,
           "pipeline:8,segments=48,interleave=12 data:32,zero=1 tensor:4,sequence=on",
           "NVIDIA/NeMo-Framework-Launcher, launcher_scripts/conf/training/gpt3/175b.yaml: "
           "TP 4, PP 8, virtual 12, 128 nodes of 8"),
    Recipe("Llama 3 8B on 64 H100", "llama3-8b", "dgx-h100", 64, 512,
           "data:32,zero=1,accumulate=16 context:2",
           "NVIDIA/NeMo, nemo/collections/llm/recipes/llama3_8b.py: CP 2, batch 512"),
    Recipe("Llama 3 70B on 64 H100", "llama3-70b", "dgx-h100", 64, 512,
           "pipeline:4,segments=256,interleave=5 data:2,zero=1 context:2 tensor:4,sequence=on",
           "NVIDIA/NeMo, nemo/collections/llm/recipes/llama3_70b.py: TP 4, PP 4, virtual 5, CP 2"),
    Recipe("Llama 3.1 405B on 576 H100", "llama3-405b", "dgx-h100", 576, 512,
           "pipeline:9,segments=256,interleave=2 data:2,zero=1 context:4 tensor:8,sequence=on",
           "NVIDIA/NeMo, nemo/collections/llm/recipes/llama31_405b.py: TP 8, PP 9, virtual 2, "
           "CP 4, 72 nodes of 8"),
    Recipe("Mixtral 8×7B on 64 H100", "mixtral-8x7b,sequence=4096", "dgx-h100", 64, 256,
           "pipeline:4,segments=16,interleave=8 data:16,zero=1 expert:8",
           "NVIDIA/NeMo-Framework-Launcher, examples/training/mixtral/h100/mixtral_8x7b_bf16.sh: "
           "TP 1, PP 4, virtual 8, EP 8"),
    Recipe("Qwen3 235B-A22B on 256 H100", "qwen3-235b-a22b", "dgx-h100", 256, 2048,
           "PP16·DP2·CP2·TP4·EP8",
           "NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/recipes/qwen/h100/qwen3_moe.py: "
           "TP 4, PP 16, CP 2, EP 8; its experts span ranks of TP and CP, which no plan says"),
)  # fmt: skip
QUICK = RECIPES[:1]


def row(recipe: Recipe) -> dict[str, object]:
    """Return a recipe beside the plans that are recommended, and its seconds by our reckoning."""
    ranking = oracle.recommend(recipe.model, recipe.system, recipe.devices, recipe.batch,
                               precision=recipe.precision)  # fmt: skip
    plans = ranking.estimate.plans[:LISTED]
    line = {"question": recipe.title, "its community runs": recipe.plan,
            "recommended first": ", ".join(short_names(plans))}  # fmt: skip
    if ":" not in recipe.plan:
        return line
    theirs = oracle.estimate(recipe.model, recipe.system, recipe.plan, recipe.batch,
                             precision=recipe.precision)  # fmt: skip
    *ours, their_name = short_names([*plans, recipe.plan])
    seconds = float(theirs.seconds[0])
    unfit = "" if theirs.feasible[0] else ", does not fit"
    return line | {
        "its community runs": their_name, "recommended first": ", ".join(ours),
        "a step of theirs": show(seconds, "s") + unfit,
        "times our first": f"{seconds / float(ranking.estimate.seconds[0]):.2f}",
    }  # fmt: skip


def table(quick: bool = False) -> Table:
    """The recipes, how many of them are our first plan, and how many are near it."""
    rows = [row(recipe) for recipe in (QUICK if quick else RECIPES)]
    firsts = [str(line["recommended first"]).split(", ")[0] for line in rows]
    same = sum(
        first == line["its community runs"] for first, line in zip(firsts, rows, strict=True)
    )
    near = sum(float(str(line.get("times our first", 9))) <= NEAR for line in rows)
    return {
        "title": "what is run, beside what is recommended", "rows": rows,
        "figures": {"same_as_our_first": figure(same, f"of {len(rows)}", ""),
                    "near_our_first": figure(near, f"of {len(rows)}", "")},
        "notes": [f"{recipe.title}: {recipe.source}" for recipe in RECIPES[: len(rows)]],
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the smallest question alone")
    print(text(table(parser.parse_args().quick)))

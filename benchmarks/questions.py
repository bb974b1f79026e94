"""The questions whose speed is watched, as command lines of `oracle` and tables of plans."""

from __future__ import annotations

GPT3 = "recommend gpt3-175b dgx-a100"
TIMED = {  # command line, and the most CPU seconds that it may take
    "help": ("--help", 0.15),
    "recommend_resnet50_1024": (
        "recommend resnet50 abci --dataset imagenet --devices 1024 --batch-per-device 64", 0.5),
    "recommend_vgg16_1024": ("recommend vgg16 abci --devices 1024 --batch-per-device 64", 0.5),
    "recommend_gpt3_1024": (f"{GPT3} --devices 1024 --batch 1536", 0.9),
    "recommend_gpt3_16384": (f"{GPT3} --grow --devices 16384 --batch 16384", 5.0),
    "recommend_llama3_16384": (
        "recommend llama3-405b h100-96gb --devices 16384 --batch 2048", 5.0),
    "recommend_gpt3_1048576": (f"{GPT3} --grow --devices 1048576 --batch 1048576", 10.0),
}  # fmt: skip
COUNTED = {  # command lines of which only the work is counted
    "recommend_cosmoflow512_64": "recommend cosmoflow-512 abci --devices 64 --batch 64",
    "recommend_qwen3_235b_256": "recommend qwen3-235b-a22b dgx-h100 --devices 256 --batch 1024",
    "recommend_llama3_70b_1024": "recommend llama3-70b dgx-h100 --devices 1024 --batch 1024",
    "explain_gpt3_64": "explain gpt3-175b dgx-a100 --batch 64 --plan"
    " 'pipeline:8,segments=64,schedule=1f1b tensor:8'",
    "estimate_resnet50_64": "estimate resnet50 abci --batch 1024 --plan 'data:16 filter:4'",
    "sweep_resnet50_80": "sweep resnet50 abci --batch-per-device 32 --only data,filter --jobs 1"
    " --devices " + ",".join(map(str, range(4, 84, 4))),
}
TABLES = {"plans_resnet50": ("resnet50", "abci"), "plans_gpt3": ("gpt3-175b", "dgx-a100")}
COMMANDS = {name: command for name, (command, _) in TIMED.items()} | COUNTED

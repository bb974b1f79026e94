"""Names that pinned versions of frameworks take, from their own sources, as exports are checked.

python -m benchmarks.pinned_names MEGATRON NEMO      (clones of NVIDIA/Megatron-LM, NVIDIA/NeMo)

It writes oracle/writers/megatron_flags.json and tests/data/nemo_names.json.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ARGUMENTS = "megatron/arguments.py"
# the version that a software spec says -> commit and file
MEGATRON = {
    "1.0": ("v2.0", ARGUMENTS), "2.5": ("v2.5", ARGUMENTS), "3.0": ("3f4e71df3c", ARGUMENTS),
    "core_v0.14.0": ("core_v0.14.0", "megatron/training/arguments.py"),
}  # fmt: skip
CORE = "core_v0.14.0"
NEMO = "8cfedd7203"
CLASSES = {  # name -> repository, commit, file and base classes whose fields it has as well
    "MegatronStrategy": ("nemo", NEMO, "nemo/lightning/pytorch/strategies/megatron_strategy.py"),
    "MegatronMixedPrecision": ("nemo", NEMO, "nemo/lightning/pytorch/plugins/mixed_precision.py"),
    "MegatronCommOverlapCallback":
        ("nemo", NEMO, "nemo/lightning/pytorch/callbacks/megatron_comm_overlap.py"),
    "MegatronOptimizerModule": ("nemo", NEMO, "nemo/lightning/pytorch/optim/megatron.py"),
    "MockDataModule": ("nemo", NEMO, "nemo/collections/llm/gpt/data/mock.py"),
    "GPTModel": ("nemo", NEMO, "nemo/collections/llm/gpt/model/base.py"),
    "GPTConfig": ("nemo", NEMO, "nemo/collections/llm/gpt/model/base.py"),
    "TransformerConfig": ("core", CORE, "megatron/core/transformer/transformer_config.py"),
    "ModelParallelConfig": ("core", CORE, "megatron/core/model_parallel_config.py"),
    "OptimizerConfig": ("core", CORE, "megatron/core/optimizer/optimizer_config.py"),
    "DistributedDataParallelConfig":
        ("core", CORE, "megatron/core/distributed/distributed_data_parallel_config.py"),
    "pretrain": ("nemo", NEMO, "nemo/collections/llm/api.py"),
    "TimingCallback": ("nemo", NEMO, "nemo/utils/exp_manager.py"),
}  # fmt: skip
BASES = {"GPTConfig": ("TransformerConfig", "ModelParallelConfig")}


def shown(folder: str, commit: str, file: str) -> ast.Module:
    command = ["git", "-C", folder, "show", f"{commit}:{file}"]
    return ast.parse(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def flags(tree: ast.AST) -> dict[str, Any]:
    """Option -> `flag`, the type of its value, or the words that it may be."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"):
            continue
        said = {word.arg: word.value for word in node.keywords}
        if "action" in said:
            kind: Any = "flag"
        elif "choices" in said:
            try:
                kind = [str(word) for word in ast.literal_eval(said["choices"])]
            except ValueError:
                kind = "str"
        else:
            kind = ast.unparse(said["type"]) if "type" in said else "str"
        for name in node.args:
            if isinstance(name, ast.Constant) and str(name.value).startswith("--"):
                found[name.value] = kind
    return dict(sorted(found.items()))


def names(tree: ast.AST, name: str) -> list[str]:
    """What a class or function takes by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return [a.arg for a in (*node.args.args, *node.args.kwonlyargs)]
        if isinstance(node, ast.ClassDef) and node.name == name:
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                    return [a.arg for a in inner.args.args[1:]]
            return [inner.target.id for inner in node.body if isinstance(inner, ast.AnnAssign)
                    and isinstance(inner.target, ast.Name)]  # fmt: skip
    raise LookupError(name)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("megatron", metavar="MEGATRON")
    parser.add_argument("nemo", metavar="NEMO")
    arguments = parser.parse_args()
    megatron, nemo = arguments.megatron, arguments.nemo
    versions = {
        version: {"commit": commit, "file": file, "flags": flags(shown(megatron, commit, file))}
        for version, (commit, file) in MEGATRON.items()
    }
    write(ROOT / "oracle/writers/megatron_flags.json", versions)
    folders = {"core": megatron, "nemo": nemo}
    taken = {
        name: {"commit": commit, "file": file,
               "names": sorted(names(shown(folders[where], commit, file), name))}
        for name, (where, commit, file) in CLASSES.items()
    }  # fmt: skip
    for name, bases in BASES.items():
        own = {*taken[name]["names"], *(x for base in bases for x in taken[base]["names"])}
        taken[name]["names"] = sorted(own)
    write(ROOT / "tests/data/nemo_names.json", taken)
    return 0


def write(place: Path, found: dict[str, Any]) -> None:
    """One line a list, so that a difference is read."""
    lines = []
    for name, one in found.items():
        *_, (key, values) = one.items()
        head = {k: v for k, v in one.items() if k != key}
        lines.append(f"{json.dumps(name)}: {{{json.dumps(head)[1:-1]}, {json.dumps(key)}:\n"
                     f"{json.dumps(values)}}}")  # fmt: skip
    place.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    sys.exit(main())

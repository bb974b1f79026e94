"""A first spec file from a few answers: commented line by line, ready to be used and refined.

`QUESTIONS` holds the questions of each kind, in their order; `text` writes the file. The reader of
spec files judges the content, not this module.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from oracle.spec.document import Fault, Node, Place, SpecError, refusal, suggest
from oracle.spec.level import KINDS as JOINED
from oracle.spec.schema import Count, Reader
from oracle.spec.units import Bytes, BytesPerSecond, FlopPerSecond, Price, Seconds, parse

WIDE = 96  # columns of a comment
TOLD = "as told to `oracle specs new`; write here where each number stands"
OPEN = "-"  # the answer to leave a line out

Family = Literal["transformer", "convolutions"]
Format = Literal["files", "records", "hdf5", "array"]
Join = Literal[JOINED]  # type: ignore[valid-type]
Width = Literal["compute", "fp32", "bf16", "fp16"]


@dataclass(frozen=True)
class Question:
    """One field of a new file: how it is asked for, and what the comment above it says."""

    key: str  # the flag, and the word between braces in the template
    kind: Any  # its type, as in the spec's dataclass
    asks: str  # what it is, in what unit
    look: str = ""  # where to look it up
    usual: str = ""  # the answer by default; where empty, the question has to be answered
    example: str = ""  # of a field that may stay open
    when: tuple[str, str] = ("", "")  # asked only if the question of this key has this answer

    @property
    def open(self) -> bool:
        """Whether the line may be left out."""
        return bool(self.example)

    @property
    def comment(self) -> str:
        return f"{self.asks}; {self.look}" if self.look else self.asks

    def concerns(self, answers: Mapping[str, str]) -> bool:
        key, value = self.when
        return not key or answers.get(key) == value

    def faults(self, answer: str) -> Iterable[Fault]:
        """Return the faults of an answer."""
        reader = Reader()
        items = [word.strip() for word in answer.split(",")]
        place = Place(path=f"--{self.key}")
        for word in items if self.kind == tuple[Count, ...] else [answer]:
            kind = Count if self.kind == tuple[Count, ...] else self.kind
            reader.read(kind, Node(place, "scalar", word), self.key)
        return reader.faults


NAME = Question("name", str, "what the command line calls it, and the file's name")
CALLED = Question("title", str, "what people call it", usual="{name}")
SOURCE = Question("source", str, "where these numbers come from", "a page, a paper, a log",
                  usual=TOLD)  # fmt: skip
LIKE_TOKENS, LIKE_PICTURES = ("family", "transformer"), ("family", "convolutions")

QUESTIONS: dict[str, tuple[Question, ...]] = {
    "system": (
        NAME, CALLED,
        Question("device", str, "the accelerator, a shipped one or a file",
                 "`oracle specs list devices`, `nvidia-smi -L`; yours: `oracle specs new device`"),
        Question("per-node", Count, "devices in a node", "`nvidia-smi -L | wc -l`"),
        Question("node-bandwidth", BytesPerSecond, "of one device to its peers, one way",
                 "the datasheet, `nvidia-smi nvlink -s`: NVLink of an A100 300 GB/s, of an H100 "
                 "450 GB/s, PCIe 4.0 x16 about 25 GB/s"),
        Question("node-link", Literal["nvlink", "pcie", "network"], "what that is",
                 "`nvidia-smi topo -m`: NV and a number, or PIX, PHB, SYS", usual="nvlink"),
        Question("node-latency", Seconds, "of a small message between two of them",
                 "an allreduce of 8 B in nccl-tests by its steps", usual="2 us"),
        Question("nodes", Count, "nodes in all", "`sinfo`", usual="1"),
        Question("network-kind", Join, "how nodes are joined",
                 "switch, fat-tree, rail, dragonfly, torus, …; docs/network.md", usual="switch"),
        Question("network-ports", Count, "network cards of a node", "`ibstat -l | wc -l`",
                 usual="1"),
        Question("network-bandwidth", BytesPerSecond, "of one network card, one way",
                 "`ibstat`: a rate of 200 is 200 Gbit/s, which is 25 GB/s", usual="25 GB/s"),
        Question("network-latency", Seconds, "of a small message between two nodes",
                 "osu_latency, ib_send_lat", usual="5 us"),
        Question("storage-bandwidth", BytesPerSecond,
                 "of the shared file system, all nodes reading together",
                 "its user guide, or IOR", example="100 GB/s"),
        Question("price", Price, "of one device", "your contract, or a cloud's list",
                 example="2.5 USD/h"),
        SOURCE,
    ),
    "device": (
        NAME, CALLED,
        Question("memory", Bytes, "that it has, all of it", "`nvidia-smi`, in MiB there"),
        Question("memory-bandwidth", BytesPerSecond, "of that memory", "the datasheet"),
        Question("fp32", FlopPerSecond, "its peak in fp32, without sparsity", "the datasheet"),
        Question("bf16", FlopPerSecond,
                 "its peak in bf16, without sparsity, which is half of what many datasheets print",
                 "the datasheet", example="300 TFLOP/s"),
        Question("fp16", FlopPerSecond, "likewise in fp16", "the datasheet",
                 example="300 TFLOP/s"),
        Question("tf32", FlopPerSecond, "likewise in TF32", "the datasheet",
                 example="150 TFLOP/s"),
        Question("processors", Count, "its multiprocessors, compute units or cores",
                 "`multi_processor_count` of torch.cuda.get_device_properties", usual="100"),
        Question("price", Price, "of one, rented", "a cloud's list", example="2.5 USD/h"),
        SOURCE,
    ),
    "model": (
        NAME, CALLED,
        Question("family", Family, "transformer or convolutions", usual="transformer"),
        Question("layers", Count, "transformer layers", "`num_hidden_layers` in config.json",
                 when=LIKE_TOKENS),
        Question("hidden", Count, "channels of a token", "`hidden_size`", when=LIKE_TOKENS),
        Question("heads", Count, "heads of attention", "`num_attention_heads`", when=LIKE_TOKENS),
        Question("kv-heads", Count, "heads of keys and values, fewer where they are shared",
                 "`num_key_value_heads`", usual="{heads}", when=LIKE_TOKENS),
        Question("ffn", Count, "channels between the two products of an MLP",
                 "`intermediate_size`", example="4096", when=LIKE_TOKENS),
        Question("gated", bool, "a third product gates the MLP, as in Llama",
                 "`hidden_act` is silu", usual="false", when=LIKE_TOKENS),
        Question("vocab", Count, "words that it knows", "`vocab_size`", when=LIKE_TOKENS),
        Question("sequence", Count, "tokens of a sequence, as it is trained",
                 "`max_position_embeddings`, or fewer", when=LIKE_TOKENS),
        Question("input", tuple[Count, ...], "channels, then extents of a sample",
                 "`sample.shape` in your loader", usual="3, 224, 224", when=LIKE_PICTURES),
        Question("widths", tuple[Count, ...], "filters of each stage; a pool halves in between",
                 usual="64, 128, 256, 512", when=LIKE_PICTURES),
        Question("classes", Count, "that it tells apart", usual="1000", when=LIKE_PICTURES),
        Question("dataset", str, "that it is trained on, a shipped one or a file",
                 "`oracle specs list datasets`; yours: `oracle specs new dataset`",
                 example="openwebtext"),
        SOURCE,
    ),
    "software": (
        NAME, CALLED,
        Question("framework", str, "what runs the training", "and its version, below",
                 usual="PyTorch"),
        Question("version", str, "of it", "`pip show`", example="2.9"),
        Question("gradients", Width, "numbers that gradients are kept in",
                 "fp32, bf16, fp16, or compute: as activations are", usual="fp32"),
        Question("buckets", Bytes, "of gradients that are sent at once",
                 "`bucket_cap_mb` of DistributedDataParallel", usual="25 MB"),
        Question("overlap", Literal["backward", "none"],
                 "what hides gradients on their way: the backward pass, or nothing",
                 usual="backward"),
        Question("masters", Literal["fp32", "none"],
                 "weights that mixed precision keeps beside its own", usual="fp32"),
        Question("fused-optimizer", Literal["fused", "apart"],
                 "how an optimizer's step runs: in one kernel, or apart, in one for each of its "
                 "operations", "`fused=True` of torch.optim", usual="fused"),
        Question("dispatch", Seconds, "of the framework on the host, for each kernel it launches",
                 "a profile of a step of small kernels", usual="20 us"),
        SOURCE,
    ),
    "dataset": (
        NAME, CALLED,
        Question("samples", Count, "in all: pictures, volumes, sequences", "`len(dataset)`"),
        Question("sample", tuple[Count, ...], "channels, then extents of one; of text 1, tokens",
                 "`dataset[0].shape`"),
        Question("size", Bytes, "on disk, all of it", "`du -sh`"),
        Question("stored", Format, "files of one sample each; records, hdf5 or array of many",
                 usual="files"),
        Question("files", Count, "that it lies in", "`find . -type f | wc -l`",
                 usual="{samples}"),
        Question("decode", Seconds, "of one core, to make a sample of what was read",
                 "time your transform", example="2 ms"),
        SOURCE,
    ),
}  # fmt: skip

TEMPLATES = {
    "system": """\
name: {name}
title: {title}
device: {device}
levels:  # how devices are joined, from within a node outwards
  - name: node
    devices: {per-node}
    link: {node-link}
    bandwidth: {node-bandwidth}
    latency: {node-latency}
    source: {source}
  - name: network
    devices: {devices}  # in all: those of a node times the nodes ({nodes})
    kind: {network-kind}
    ports: {network-ports}
    bandwidth: {network-bandwidth}
    latency: {network-latency}
    source: {source}
storage:
  shared:
    bandwidth: {storage-bandwidth}
  source: {source}
price: {price}
source: {source}
""",
    "device": """\
name: {name}
title: {title}
memory: {memory}
memory_bandwidth: {memory-bandwidth}
peak:
  fp32: {fp32}
  bf16: {bf16}
  fp16: {fp16}
  tf32: {tf32}
processors: {processors}
price: {price}
source: {source}
""",
    "transformer": """\
name: {name}
title: {title}
transformer:
  layers: {layers}
  hidden: {hidden}
  heads: {heads}
  kv_heads: {kv-heads}
  ffn: {ffn}
  gated: {gated}
  vocab: {vocab}
  sequence: {sequence}
dataset: {dataset}
source: {source}
""",
    "convolutions": """\
name: {name}
title: {title}
input: {input}
layers:  # of each stage: a convolution, a norm, an activation, a pool
{stages}
  - pool: {kernel: global, op: mean}
  - flatten
  - dense: {classes}
  - loss
dataset: {dataset}
source: {source}
""",
    "software": """\
name: {name}
title: {title}
framework: {framework}
version: {version}
exchange:  # gradients, on their way between replicas
  gradients: {gradients}
  pieces: {bytes: {buckets}}
  overlap: {overlap}
  source: {source}
state:
  masters: {masters}
  source: {source}
kernels:
  optimizer: {fused-optimizer}
  source: {source}
host:
  dispatch: {dispatch}
  source: {source}
source: {source}
""",
    "dataset": """\
name: {name}
title: {title}
samples: {samples}
sample: {sample}
size: {size}
format: {stored}
files: {files}
decode: {decode}
source: {source}
""",
}

BEGUN = {
    "system": "A system of your own.", "device": "A device of your own.",
    "model": "A model of your own.", "software": "What runs a training of yours.",
    "dataset": "A data set of your own.",
}  # fmt: skip


def folder(kind: str) -> str:
    """Return the folder of the catalogue that holds files of a kind: `systems`."""
    return kind if kind == "software" else f"{kind}s"


def questions(kind: str) -> tuple[Question, ...]:
    """Return the questions of a new file of a kind; raise a SpecError for an unknown kind."""
    if kind not in QUESTIONS:
        hint = suggest(kind, QUESTIONS, "write one of")
        raise refusal("specs new", f"no new `{kind}` can be written", hint, "E110")
    return QUESTIONS[kind]


def answered(kind: str, user_answers: Mapping[str, str]) -> dict[str, str]:
    """Return all answers, those of the user and the usual ones; a SpecError has every fault."""
    answers: dict[str, str] = {}
    faults: list[Fault] = []
    kind_questions = questions(kind)
    keys = [question.key for question in kind_questions]
    for key in user_answers:
        if key not in keys:
            hint = suggest(key, keys, f"a {kind} has")
            faults.append(Fault("E102", f"a {kind} has no `{key}`", Place(path=f"--{key}"), hint))
    for question in kind_questions:
        if not question.concerns(answers):
            if question.key in user_answers:
                complaint = f"`{question.key}` is not of {answers[question.when[0]]}"
                hint = f"--{question.when[0]} {question.when[1]}"
                faults.append(Fault("E109", complaint, Place(path=f"--{question.key}"), hint))
            continue
        answer = user_answers.get(question.key) or usual(question, answers)
        if answer and answer != OPEN:
            answers[question.key] = answer
            faults += question.faults(answer)
        elif not (question.open or question.usual):
            place = Place(path=f"--{question.key}")
            complaint = f"`{question.key}` is missing: {question.asks}"
            faults.append(Fault("E103", complaint, place, question.look))
    if faults:
        raise SpecError(f"specs new {kind}", faults)
    return answers


def usual(question: Question, answers: Mapping[str, str]) -> str:
    """Return the usual answer of a question, which may be that of another question."""
    reference = re.fullmatch(r"\{(.*)\}", question.usual)
    return answers.get(reference[1], "") if reference else question.usual


def text(kind: str, answers: Mapping[str, str]) -> str:
    """Return the file, each field under a comment; an open field is a comment to fill in."""
    template = TEMPLATES[answers["family"] if kind == "model" else kind]
    by_key = {question.key: question for question in questions(kind)}
    words = {key: written(by_key[key], answer) for key, answer in answers.items()}
    if kind == "system":
        words["devices"] = str(int(answers["per-node"]) * int(answers["nodes"]))
    if kind == "model" and "widths" in answers:
        words["stages"] = stages(answers["widths"])
    if kind == "software":
        words["buckets"] = str(round(parse(answers["buckets"], "B")))
    lines = [f"# {BEGUN[kind]} `oracle specs check FILE` says what is wrong with it,",
             f"# `oracle schema {folder(kind)}` what else it may say."]  # fmt: skip
    explained: set[str] = set()
    for line in _parts(template, answers):
        keys = re.findall(r"\{([a-z][a-z0-9-]*)\}", line)
        margin = " " * (len(line) - len(line.lstrip(" -")))
        for key in keys:
            if key in by_key and key not in explained:
                lines += textwrap.wrap(by_key[key].comment, WIDE, initial_indent=f"{margin}# ",
                                       subsequent_indent=f"{margin}#   ")  # fmt: skip
                explained.add(key)
        missing = [key for key in keys if key not in words]
        if missing:
            example = by_key[missing[0]].example
            line = f"{margin}# {line.strip()}".replace(f"{{{missing[0]}}}", example)
        for key in keys:
            line = line.replace(f"{{{key}}}", words.get(key, ""))
        lines.append(line)
    return "\n".join(lines) + "\n"


def _parts(template: str, answers: Mapping[str, str]) -> Iterable[str]:
    """Yield the lines of a template, without the parts that these answers make superfluous."""
    left_out = ""
    for line in template.splitlines():
        if line == "  - name: network" and answers.get("nodes") == "1":
            left_out = "network"
        elif line == "storage:" and "storage-bandwidth" not in answers:
            left_out = "storage"
        elif not line.startswith(" ") or line.startswith("  - name"):
            left_out = ""
        if not left_out:
            yield line


def written(question: Question, answer: str) -> str:
    """Return an answer in the syntax of the file."""
    if question.kind == tuple[Count, ...]:
        return f"[{', '.join(word.strip() for word in answer.split(','))}]"
    if question.kind is str and not re.fullmatch(r"[A-Za-z_./][\w./-]*", answer):
        return json.dumps(answer, ensure_ascii=False)
    return answer


def stages(widths: str) -> str:
    """Return the layers of the stages, given the filters of each."""
    stage = ("conv: {{filters: {}, kernel: 3, padding: 1, bias: false}}", "norm", "relu")
    blocks = ["\n".join(f"  - {layer}" for layer in stage).format(word.strip())
              for word in widths.split(",")]  # fmt: skip
    return "\n  - pool: {kernel: 2, stride: 2}\n".join(blocks)

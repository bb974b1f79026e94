"""Imported models against shipped specs of the same; and what must be refused, in words."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import oracle
from oracle.commands.cli import main
from oracle.readers import families, importers
from oracle.readers.importers import huggingface
from oracle.readers.spec_text import plain_name, spec_text
from oracle.spec import strict_json
from oracle.spec.document import SpecError

HERE = Path(__file__).parent
FOLDER = HERE / "data" / "import"

LLAMA: dict[str, Any] = {"model_type": "llama", "hidden_act": "silu", "tie_word_embeddings": False}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama2-7b": LLAMA | {"hidden_size": 4096, "intermediate_size": 11008, "vocab_size": 32000,
                          "num_hidden_layers": 32, "num_attention_heads": 32,
                          "num_key_value_heads": 32, "max_position_embeddings": 4096},
    "llama2-13b": LLAMA | {"hidden_size": 5120, "intermediate_size": 13824, "vocab_size": 32000,
                           "num_hidden_layers": 40, "num_attention_heads": 40,
                           "max_position_embeddings": 4096},
    "llama2-70b": LLAMA | {"hidden_size": 8192, "intermediate_size": 28672, "vocab_size": 32000,
                           "num_hidden_layers": 80, "num_attention_heads": 64,
                           "num_key_value_heads": 8, "max_position_embeddings": 4096},
    "llama3-8b": LLAMA | {"hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256,
                          "num_hidden_layers": 32, "num_attention_heads": 32,
                          "num_key_value_heads": 8, "max_position_embeddings": 8192},
    "llama3-405b": LLAMA | {"hidden_size": 16384, "intermediate_size": 53248, "vocab_size": 128256,
                            "num_hidden_layers": 126, "num_attention_heads": 128,
                            "num_key_value_heads": 8, "max_position_embeddings": 131072,
                            "asked": 8192},
    "mixtral-8x7b": {"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
                     "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                     "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000,
                     "max_position_embeddings": 32768, "sliding_window": None, "asked": 32768},
    "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_ctx": 1024,
             "n_positions": 1024, "vocab_size": 50257, "resid_pdrop": 0.1},
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25,
                "n_positions": 1024, "vocab_size": 50257, "attn_pdrop": 0.1},
    "bloom-176b": {"model_type": "bloom", "n_embed": 14336, "hidden_size": 14336, "n_layer": 70,
                   "num_attention_heads": 112, "vocab_size": 250880, "seq_length": 2048},
    "bert-large": {"model_type": "bert", "architectures": ["BertForPreTraining"],
                   "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
                   "num_attention_heads": 16, "vocab_size": 30522, "type_vocab_size": 2,
                   "max_position_embeddings": 512, "hidden_dropout_prob": 0.1},
    "mpt-7b": {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32,
               "vocab_size": 50368, "max_seq_len": 2048, "expansion_ratio": 4},
    "vit-l16": {"model_type": "vit", "hidden_size": 1024, "intermediate_size": 4096,
                "num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 224,
                "patch_size": 16, "num_channels": 3, "id2label": {str(i): "" for i in range(1000)}},
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_is_the_shipped_model(name: str) -> None:
    fields = dict(CONFIGS[name])
    found = huggingface.convert(fields, sequence=fields.pop("asked", None), name=name)
    shipped = oracle.model(name)
    if "transformer" in found.spec:  # a config does not say which kernel computes attention
        flash = next(row.flash for row in shipped.rows if row.work == "attention")
        found.spec["transformer"]["flash"] = flash
    model = oracle.model(found.spec)
    assert model.parameters == shipped.parameters
    assert model.flop == pytest.approx(shipped.flop, rel=1e-3)
    assert [row.kind for row in model.rows] == [row.kind for row in shipped.rows]


COUNTED = {  # parameters as the library itself counts them, of its own configurations
    "phi3": 24_099_328, "qwen2": 22_532_608, "gemma": 19_966_464, "gpt_neox": 19_902_528,
    "starcoder2": 14_978_624, "granite": 24_099_328, "stablelm": 22_533_120,
}  # fmt: skip
SMALL = {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "vocab_size": 5000,
         "intermediate_size": 1376, "max_position_embeddings": 2048}  # fmt: skip


@pytest.mark.parametrize("kind", COUNTED)
def test_families_have_their_parameters(kind: str) -> None:
    grouped = kind in ("qwen2", "gemma", "stablelm")
    heads = {"num_key_value_heads": 4} if grouped else {}
    heads |= {"num_key_value_heads": 2} if kind == "starcoder2" else {}
    wide = {"head_dim": 64} if kind == "gemma" else {}
    found = huggingface.convert({"model_type": kind, **SMALL, **heads, **wide})
    assert oracle.model(found.spec).parameters == pytest.approx(COUNTED[kind], rel=1e-3)


def test_mixtures_may_have_dense_layers() -> None:
    fields = {"model_type": "deepseek", "hidden_size": 2048, "intermediate_size": 10944,
              "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2,
              "num_experts_per_tok": 6, "first_k_dense_replace": 1, "num_hidden_layers": 28,
              "num_attention_heads": 16, "vocab_size": 102400,
              "max_position_embeddings": 4096}  # fmt: skip
    model = oracle.model(huggingface.convert(fields).spec)
    assert model.parameters == pytest.approx(16.4e9, rel=0.005)  # as its paper says


def test_what_a_block_cannot_say_is_named() -> None:
    found = huggingface.convert({"model_type": "olmo2", **SMALL})
    assert any("norms of queries" in note for note in found.notes)
    with pytest.raises(SpecError, match="latent"):
        huggingface.convert({"model_type": "deepseek_v3", "n_routed_experts": 8, **SMALL})


def test_an_unknown_family_is_refused_with_the_nearest() -> None:
    with pytest.raises(SpecError, match="did you mean `mistral`"):
        huggingface.convert({"model_type": "mistrall", **SMALL})


BAD = {
    "duplicate": '{"model_type": "llama", "model_type": "gpt2"}',
    "nan": '{"model_type": "llama", "hidden_size": NaN}',
    "infinite": '{"model_type": "llama", "hidden_size": 1e999}',
    "long": '{"model_type": "llama", "hidden_size": ' + "9" * 5000 + "}",
    "deep": '{"model_type": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "list": "[1, 2]",
    "empty": "",
    "cut": '{"model_type": "llama", ',
    "yaml": "model_type: llama",
    "no family": '{"hidden_size": 4096}',
    "negative": json.dumps({"model_type": "llama", **SMALL, "hidden_size": -512}),
    "text": json.dumps({"model_type": "llama", **SMALL, "hidden_size": "512; rm -rf /"}),
    "yes": json.dumps({"model_type": "llama", **SMALL, "hidden_size": True}),
    "huge": json.dumps({"model_type": "llama", **SMALL, "hidden_size": 2**60}),
    "missing": '{"model_type": "llama"}',
    "heads": json.dumps({"model_type": "llama", **SMALL, "num_attention_heads": 7}),
    "layers": json.dumps({"model_type": "vit", **SMALL, "num_hidden_layers": 2**39}),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_json_is_refused(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.json"
    file.write_text(BAD[kind])
    assert main(["import", "huggingface", str(file)]) == 2
    said = capsys.readouterr()
    assert "error[E" in said.err
    assert "Traceback" not in said.err
    assert not said.out


def test_all_faults_of_a_config_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        huggingface.convert({"model_type": "llama", "hidden_size": "wide", "vocab_size": -1})
    assert len(caught.value.faults) >= 4


def test_nothing_but_a_spec_error_comes_out() -> None:
    dice = random.Random(7)
    seeds = [json.dumps(one) for one in CONFIGS.values()]
    words = ["NaN", "1e999", "null", "true", "-1", "0", '"x"', "[", "]", "{", "}", ",", ":", '"',
             "9" * 400, "{}", "[[]]", "\\ud800", "\x00", '"model_type":', "0.5"]  # fmt: skip
    refused = 0
    for number in range(3000):
        text = list(seeds[number % len(seeds)][:4000])
        for _ in range(dice.randrange(1, 5)):
            at = dice.randrange(len(text))
            text[at : at + dice.randrange(6)] = dice.choice(words)
        try:
            value = strict_json.loads("".join(text))
        except (ValueError, RecursionError):
            refused += 1
            continue
        try:
            spec_text(huggingface.convert(value if isinstance(value, dict) else {}).spec)
        except SpecError:
            refused += 1
    assert 100 < refused < 3000


def test_fields_of_any_kind_are_read_or_refused() -> None:
    dice = random.Random(5)
    seeds = [*CONFIGS.values(), *({"model_type": k, **SMALL} for k in families.FAMILIES)]
    values: list[Any] = [None, True, False, -1, 0, 1, 2, 7, 2**31, 2**40 + 1, 1e300, 0.5, "x", "",
                         [], {}, [1], {"a": 1}, [None], "8", 3.0]  # fmt: skip
    keys = sorted({key for seed in seeds for key in seed} - {"model_type"} | {
        "mlp_only_layers", "num_experts", "first_k_dense_replace", "decoder_sparse_step",
        "attn_config", "text_config", "moe_intermediate_size", "shared_expert_intermediate_size",
    })  # fmt: skip
    read = 0
    for number in range(1500):
        fields = dict(seeds[number % len(seeds)])
        fields |= {dice.choice(keys): dice.choice(values) for _ in range(dice.randrange(1, 4))}
        try:
            assert oracle.model(huggingface.convert(fields).spec).parameters > 0
            read += 1
        except SpecError:
            pass
    assert 200 < read < 1450


HOSTILE = ['$(touch pwned)"; x', "a\nb: &x [*x]", "=cmd|' /C calc'!A0", "<script>alert(1)</script>",
           "]]>", "../../etc/passwd", "‮live", "yes", "!!python/object:os.system"]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_names(name: str, tmp_path: Path) -> None:
    fields = {"model_type": "llama", "_name_or_path": name, **SMALL}
    text = spec_text(huggingface.convert(fields, name=name).spec)
    file = tmp_path / "model.yaml"
    file.write_text(text)
    model = oracle.model(str(file))
    assert set(model.name) <= set(plain_name(name, "llama"))
    assert not set(model.name) & set("$`\"';|&<>(){}[]/\\\n \t")


def test_import_writes_whole_files_and_never_over_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["llama2-7b"]))
    out = tmp_path / "model.yaml"
    asked = ["import", "huggingface", str(tmp_path), "-o", str(out)]
    assert main(asked) == 0
    first = out.read_text()
    assert oracle.model(str(out)).parameters == 6_738_415_616
    assert main([*asked, "--name", "other"]) == 2
    assert out.read_text() == first
    assert "--force" in capsys.readouterr().err
    assert main([*asked, "--name", "other", "--force"]) == 0
    assert "name: other" in out.read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.yaml"]


# ------------------------------------------------------------------ torch


@pytest.fixture(scope="module")
def zoo() -> Any:
    pytest.importorskip("torch")
    sys.path.insert(0, str(FOLDER))
    import zoo as module

    yield module
    sys.path.remove(str(FOLDER))


TORCH = [
    ("ResNet50", "resnet50", (3, 224, 224), False), ("VGG16", "vgg16", (3, 224, 224), False),
    ("ViTL16", "vit-l16", (3, 224, 224), False), ("GPT2", "gpt2", (1024,), True),
]  # fmt: skip


def asked(sample: tuple[int, ...], tokens: bool) -> dict[str, Any]:
    return {"tokens": sample[0]} if tokens else {"sample": sample}


@pytest.mark.parametrize(("factory", "shipped", "sample", "tokens"), TORCH)
def test_a_module_is_the_shipped_model(
    zoo: Any, factory: str, shipped: str, sample: tuple[int, ...], tokens: bool
) -> None:
    from oracle.readers.importers import torch as reader

    found = reader.read(f"zoo:{factory}", **asked(sample, tokens), trust=True)
    model, known = oracle.model(found.spec), oracle.model(shipped)
    assert model.parameters == known.parameters
    attention = [row for row in model.rows if row.work == "attention"]
    if all(row.flash for row in attention):
        assert model.flop == pytest.approx(known.flop, rel=1e-3)
    kinds = [row.kind for row in model.rows if row.kind not in ("dropout", "reshape")]
    assert kinds == [r.kind for r in known.rows if r.kind not in ("dropout", "reshape")]
    assert model.repeat.max() == known.repeat.max()
    again = oracle.model(_loaded(spec_text(found.spec)))
    assert again.parameters == known.parameters


def _loaded(text: str) -> Any:
    import yaml

    return yaml.safe_load(text)


def test_scores_written_out_are_attention_all_the_same(zoo: Any) -> None:
    from oracle.readers.importers import torch as reader

    plain = oracle.model(reader.read("zoo:GPT2", tokens=1024, trust=True).spec)
    made = oracle.model(reader.read("zoo:HandMadeGPT2", tokens=1024, trust=True).spec)
    assert [row.name for row in made.rows] == [row.name for row in plain.rows]
    assert made.parameters == plain.parameters
    core = [row for row in made.rows if row.work == "attention"]
    assert core
    assert all(row.causal and not row.flash for row in core)


def test_flop_agree_with_the_counter_of_torch(zoo: Any) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from oracle.readers.importers import torch as reader

    for factory, sample, tokens in (("ResNet50", (3, 224, 224), False), ("HandMadeGPT2", (1024,),
                                                                         True)):  # fmt: skip
        with torch.device("meta"):
            module = getattr(zoo, factory)()
        given = torch.zeros((1, *sample), dtype=torch.long if tokens else None, device="meta")
        with FlopCounterMode(display=False) as counter, torch.no_grad(), torch.device("meta"):
            module(given)
        found = oracle.model(reader.convert(module, sample, tokens=tokens).spec)
        assert found.flop / 3 == pytest.approx(counter.get_total_flops(), rel=1e-3)


def test_an_imported_module_is_predicted_like_the_shipped_model(zoo: Any) -> None:
    from oracle.readers.importers import torch as reader

    for factory, name, sample, system, plan in (
        ("ResNet50", "resnet50", (3, 224, 224), "abci", "data:16 filter:2"),
        ("GPT2", "gpt2", (1024,), "dgx-a100", "pipeline:2,segments=4 data:4 tensor:2"),
    ):
        found = reader.read(f"zoo:{factory}", **asked(sample, name == "gpt2"), trust=True)
        ours = oracle.estimate(found.spec, system, [plan], 512)
        known = oracle.estimate(name, system, [plan], 512)
        assert ours.seconds == pytest.approx(known.seconds, rel=1e-9)
        assert ours.memory == pytest.approx(known.memory, rel=1e-9)


def test_branches_that_are_joined(zoo: Any) -> None:
    from oracle.readers.importers import torch as reader

    found = reader.read("zoo:Joined", (1, 32, 32), trust=True)
    model = oracle.model(found.spec)
    assert model.parameters == sum(p.numel() for p in zoo.Joined().parameters())
    assert [row.kind for row in model.rows].count("concat") == 1
    assert str(model.rows[-1].made) == "2×32×32"


SHAPES = {"Growing": (16, 8, 8), "Squeezed": (16, 8, 8), "Volume": (16, 8, 8, 8),
          "Wide": (16, 8, 8), "TwoHeads": (16, 8, 8), "Encoder": (12, 16)}  # fmt: skip


@pytest.mark.parametrize("factory", SHAPES)
def test_modules_of_all_kinds_keep_their_parameters(zoo: Any, factory: str) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from oracle.readers.importers import torch as reader

    found = reader.read(f"zoo:{factory}", SHAPES[factory], trust=True)
    model, module = oracle.model(found.spec), getattr(zoo, factory)()
    assert model.parameters == sum(p.numel() for p in module.parameters())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.train()(torch.zeros((2, *SHAPES[factory])))
    assert model.flop / 3 == pytest.approx(counter.get_total_flops() / 2, rel=1e-3)
    assert [row.kind for row in model.rows].count("loss") == 1 + (factory == "TwoHeads")


REFUSED = [
    ("zoo:Looks", "looks at values"), ("zoo:broken", "no such luck"),
    ("zoo:ResNet5", "did you mean `ResNet50`"), ("zoo:number", "neither"), ("zoo", "written"),
    ("zoo:__import__('os')", "written"), ("no_such_package:x", "No module named"),
    ("os:getcwd", "not an nn.Module"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "word"), REFUSED)
def test_what_cannot_be_traced_is_refused(zoo: Any, path: str, word: str) -> None:
    from oracle.readers.importers import torch as reader

    with pytest.raises(SpecError, match=word.replace("(", r"\(")):
        reader.read(path, (4, 8), trust=True)


def test_a_module_is_named_by_its_file_too(zoo: Any) -> None:
    from oracle.readers.importers import torch as reader

    by_file = reader.read("./zoo.py:VGG16", (3, 224, 224), trust=True)
    assert by_file.spec == reader.read("zoo:VGG16", (3, 224, 224), trust=True).spec


def test_no_code_is_run_without_trust(zoo: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (Path(sys.path[0]) / "zoo.py").exists()
    assert main(["import", "torch", "this_would_run:x"]) == 2
    said = capsys.readouterr().err
    assert "--trust-code" in said
    assert "No module" not in said


@pytest.mark.slow
def test_seventy_billion_parameters_within_a_gibibyte(zoo: Any) -> None:
    code = (
        "import sys\n"
        "from oracle.commands.cli import main\n"
        "code = main(['import', 'torch', 'zoo:Llama', '--tokens', '4096', '--trust-code'])\n"
        # of itself alone: getrusage knows the process that started it too
        "status = open('/proc/self/status').read()\n"
        "print(status.split('VmHWM:')[1].split()[0], file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    places = os.pathsep.join([str(HERE.parent), str(FOLDER)])
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": places},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stderr.split()[-1]) * 1024 < 2**30
    model, known = oracle.model(_loaded(ran.stdout)), oracle.model("llama2-70b")
    assert model.parameters == known.parameters == 68_976_648_192
    assert model.flop == pytest.approx(known.flop, rel=1e-3)


# ------------------------------------------------------------------- onnx


def resnet50_onnx() -> Any:
    """ResNet-50 as an ONNX graph; weights have shapes and no values."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    nodes: list[Any] = []
    held: list[Any] = []

    def weight(name: str, *dims: int) -> str:
        tensor = onnx.TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="weights.bin")
        held.append(tensor)
        return name

    def node(kind: str, *given: str, **fields: Any) -> str:
        made = f"t{len(nodes)}"
        nodes.append(helper.make_node(kind, list(given), [made], **fields))
        return made

    def conv(x: str, c: int, f: int, k: int, s: int = 1) -> str:
        n = len(nodes)
        y = node("Conv", x, weight(f"w{n}", f, c, k, k), strides=[s, s], pads=[k // 2] * 4,
                 kernel_shape=[k, k])  # fmt: skip
        return node("BatchNormalization", y, *(weight(f"{w}{n}", f) for w in "abcd"))

    x = node("Relu", conv("x", 3, 64, 7, 2))
    x = node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for times, width, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for i in range(times):
            step = stride if i == 0 else 1
            y = node("Relu", conv(x, channels, width, 1))
            y = node("Relu", conv(y, width, width, 3, step))
            y = conv(y, width, 4 * width, 1)
            x = node("Relu", node("Add", y, x if i else conv(x, channels, 4 * width, 1, step)))
            channels = 4 * width
    x = node("Flatten", node("GlobalAveragePool", x))
    node("Gemm", x, weight("head", 1000, 2048), weight("shift", 1000), transB=1)
    nodes[-1].output[0] = "y"
    graph = helper.make_graph(
        nodes, "resnet50",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 224, 224])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1000])], held,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_an_onnx_file_is_the_shipped_model(tmp_path: Path) -> None:
    proto = resnet50_onnx()
    file = tmp_path / "resnet50.onnx"
    file.write_bytes(proto.SerializeToString())
    assert main(["import", "onnx", str(file), "-o", str(tmp_path / "m.yaml")]) == 0
    model, known = oracle.model(str(tmp_path / "m.yaml")), oracle.model("resnet50")
    assert model.parameters == known.parameters
    assert model.flop == pytest.approx(known.flop, rel=1e-3)
    assert [row.kind for row in model.rows] == [row.kind for row in known.rows]


def test_damaged_onnx_files_are_refused(tmp_path: Path) -> None:
    data = resnet50_onnx().SerializeToString()
    from oracle.readers.importers import onnx as reader

    file = tmp_path / "model.onnx"
    dice = random.Random(3)
    refused = 0
    for number in range(150):
        damaged = bytearray(data)
        for _ in range(1 + number % 4):
            at = dice.randrange(len(damaged))
            damaged[at : at + dice.randrange(4)] = dice.randbytes(dice.randrange(4))
        file.write_bytes(bytes(damaged[: dice.randrange(len(damaged))] if number % 3 else damaged))
        try:
            oracle.model(reader.read(file).spec)
        except SpecError:
            refused += 1
    assert refused > 50
    for text in (b"", b"\0" * 100, b"not a model"):
        file.write_bytes(text)
        with pytest.raises(SpecError):
            reader.read(file)


def test_an_open_shape_is_asked_for(tmp_path: Path) -> None:
    proto = resnet50_onnx()
    proto.graph.input[0].type.tensor_type.shape.dim[2].ClearField("dim_value")
    from oracle.readers.importers import onnx as reader

    file = tmp_path / "model.onnx"
    file.write_bytes(proto.SerializeToString())
    with pytest.raises(SpecError, match="--input"):
        reader.read(file)
    assert oracle.model(reader.read(file, (3, 224, 224)).spec).parameters == 25_557_032


def test_every_module_of_the_folder_is_a_format(monkeypatch: pytest.MonkeyPatch) -> None:
    assert importers.formats() == ["huggingface", "onnx", "torch"]
    assert importers.importer("huggingface") is huggingface
    for name, hint in (("onnx", "oracle-training\\[onnx\\]"), ("torch", "pip install torch")):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, f"oracle.readers.importers.{name}", raising=False)
        with pytest.raises(SpecError, match=f"needs the package `{name}`(.|\\n)*{hint}"):
            importers.importer(name)


def test_no_reader_loads_torch_before_it_is_asked() -> None:
    code = "import sys, oracle.readers.importers.huggingface, oracle.commands.import_\n"
    code += "print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                         env={**os.environ, "PYTHONPATH": str(HERE.parent)})  # fmt: skip
    assert not {"torch", "onnx", "scipy", "pandas"} & set(ran.stdout.split())

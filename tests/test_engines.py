"""Engines of PyTorch train as plain programs do, send what is priced, and refuse the rest."""

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from equality_cases import (
    BERT,
    BRANCHES,
    CUBES,
    GPT,
    GROUPED,
    LLAMA8,
    ODD,
    PIXELS,
    RESNET,
    RISING,
    TRANSLATOR,
    UNET,
    VGG,
    WAVES,
)

import oracle
from oracle.commands.cli import main
from oracle.executor.engines import engines
from oracle.executor.loading import samples
from oracle.executor.loading.samples import Made
from oracle.executor.local.graph import graph
from oracle.executor.plan_run import PlanRun
from oracle.executor.ranks import records
from oracle.executor.ranks.launch import DONE, Host, launch
from oracle.executor.run import enough, refusals
from oracle.plan.launchable import software
from oracle.plan.plan import parse
from oracle.plan.strategies import strategies
from oracle.spec.catalogue import shipped
from oracle.spec.document import SpecError

pytestmark = pytest.mark.flaky(reruns=1)  # ranks wait for each other, and for the machine
HERE = Path(__file__).parent
LONGER = {**GPT, "transformer": {**GPT["transformer"], "sequence": 24}}
MODELS = {"vgg": VGG, "resnet": RESNET, "gpt": GPT, "llama": LLAMA8}
RUNS = {
    "ddp": [
        "vgg data:2", "resnet data:2,accumulate=2", "gpt data:2,overlap=off",
        "llama data:2,zero=1 adam", "gpt data:2 adam bf16",
        "resnet data:2 recompute:full", "gpt recompute:selective",
        "resnet data:2 layout=last", "gpt data:2 attention=unfused",
    ],
    "fsdp2": [
        "vgg data:2,zero=3", "resnet data:2,zero=2 recompute:full", "gpt data:2,zero=3 adam",
        "llama data:2,zero=2,accumulate=2", "gpt data:2", "gpt data:2 sharded:2",
        "gpt sharded:2,zero=2 recompute:operators", "gpt data:2,zero=3 adam bf16",
    ],
    "dtensor": [
        "gpt tensor:2", "gpt tensor:2,sequence=on adam", "llama tensor:2",
        "llama tensor:2,sequence=on recompute:full", "gpt data:2,zero=3 tensor:2",
        "gpt context:2", "llama context:2 adam", "gpt data:2,zero=3 context:2",
        "gpt data:2 context:2 recompute:operators", "llama sharded:2 context:2 recompute:selective",
        "llama tensor:2,sequence=on context:2",
    ],
    "pipelining": [
        "gpt pipeline:2,segments=4", "resnet pipeline:2,segments=2,schedule=gpipe",
        "gpt pipeline:2,segments=4,interleave=2",
        "gpt pipeline:2,segments=2 data:2,zero=3 adam", "gpt pipeline:2,segments=2 tensor:2",
        "gpt pipeline:2,segments=4,schedule=zb-v,interleave=2",
        "gpt pipeline:2,segments=4,schedule=zb-v,interleave=2 context:2",
    ],
}  # fmt: skip


def cases():
    for engine, runs in RUNS.items():
        for text in runs:
            program, *words = text.split()
            plan = " ".join(word for word in words if ":" in word)
            changes = [word for word in words if "=" in word and ":" not in word]
            yield {"name": f"{engine} {text}", "engine": engine, "program": program, "plan": plan,
                   "model": MODELS[program], "batch": 8, "steps": 2,
                   "software": ",".join((engines()[engine].software, *changes)),
                   "precision": "bf16" if "bf16" in words else "fp64",
                   "optimizer": "adam" if "adam" in words else "momentum"}  # fmt: skip


CASES = {case["name"]: case for case in cases()}


def trained(folder, cases, ranks, timeout=180):
    """What ranks found that trained by engines, and beside them plain programs."""
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    outcome = launch(
        "engine_tasks:prove", {"cases": cases}, folder, ranks=ranks, timeout=timeout, trust=True,
        host=Host(environment=lambda rank: {"PYTHONPATH": path}),
    )  # fmt: skip
    assert outcome.code == DONE, outcome.message
    return records.of_all_ranks(folder, ranks)


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    pytest.importorskip("torch")

    def kind(name):
        return name in QUICK, "context" in name

    @cache
    def ran(of):
        mine = [case for name, case in CASES.items() if kind(name) == of]
        return trained(tmp_path_factory.mktemp("engines"), mine, 4)

    return lambda name: ran(kind(name))[name]


def ranks_of(proved, name):
    """What the ranks of a case found."""
    found = proved(name)
    errors = [rank["error"] for rank in found if "error" in rank]
    assert not errors, errors[0]
    return [rank for rank in found if "loss" in rank]


def each(names):
    """Parameters, those that are not quick marked so."""
    return [pytest.param(name, marks=[pytest.mark.slow] if name not in QUICK else [])
            for name in names]  # fmt: skip


EXACT = [name for name, case in CASES.items() if case["precision"] == "fp64"]
MIXED = [name for name in CASES if name not in EXACT]
# some of each engine, that show each of its models and most of its knobs
QUICK = (
    "ddp resnet data:2,accumulate=2", "ddp gpt data:2 adam bf16",
    "ddp resnet data:2 layout=last", "ddp gpt data:2 attention=unfused",
    "fsdp2 vgg data:2,zero=3", "fsdp2 gpt data:2,zero=3 adam bf16",
    "dtensor llama tensor:2,sequence=on recompute:full", "dtensor gpt data:2,zero=3 tensor:2",
    "dtensor llama context:2 adam",
    "pipelining gpt pipeline:2,segments=4,interleave=2",
    "pipelining gpt pipeline:2,segments=2 data:2,zero=3 adam",
)  # fmt: skip


@pytest.mark.parametrize("name", each(MIXED))
def test_mixed_precision_trains_and_keeps_what_is_priced(proved, name):
    """Losses to the digits of bf16; weights, gradients, moments and buckets to the byte."""
    case, ranks = CASES[name], ranks_of(proved, name)
    for step, expected in enumerate(ranks[0]["expected"]):
        assert sum(rank["loss"][step] for rank in ranks) == pytest.approx(expected, rel=0.02)
    kinds = oracle.estimate(case["model"], "abci", case["plan"], case["batch"], precision="bf16",
                            optimizer="adam", software=engines()[case["engine"]].software
                            ).memory_kinds  # fmt: skip
    priced = {kind: float(kinds[kind][0]) for kind in ranks[0]["kept"]}
    if "zero=3" in case["plan"]:  # which has a unit's weights gathered when most is there
        weights = float((oracle.model(case["model"]).w * oracle.model(case["model"]).repeat).sum())
        assert priced.pop("weights") > ranks[0]["kept"]["weights"] == 4 * weights / 2
    kept = {kind: ranks[0]["kept"][kind] for kind in priced}
    assert kept == pytest.approx(priced, rel=1e-12)


@pytest.mark.parametrize("name", each(EXACT))
def test_an_engine_trains_as_a_plain_program_does(proved, name):
    case, ranks = CASES[name], ranks_of(proved, name)
    plan = parse(case["plan"], case["batch"])
    assert len(ranks) == plan.devices[0, 0]
    bound = 1e-8 if case["optimizer"] == "adam" else 1e-13  # Adam divides by roots near 0
    alike = plan.axis("tensor").degree[0, 0]
    for step, expected in enumerate(ranks[0]["expected"]):
        assert sum(rank["loss"][step] for rank in ranks) / alike == pytest.approx(
            expected, rel=bound
        )
    assert ranks[0]["expected"][0] != pytest.approx(ranks[0]["expected"][-1], rel=0.01)
    held = {name: worst for rank in ranks for name, worst in rank["worst"].items()}
    assert set(held) == set(ranks[0]["weights"])
    assert max(held.values()) < bound, held


@pytest.mark.parametrize("name", each([name for name in EXACT if "resnet" in name]))
def test_channels_stand_where_the_software_has_them(proved, name):
    """In every convolution's weights and in what it makes; weights in `fully_shard` stay first."""
    for rank in ranks_of(proved, name):
        assert rank["last"] == {"weights": "layout=last" in name, "made": "layout=last" in name}


@pytest.mark.parametrize("name", each([name for name in EXACT if "ddp gpt" in name]))
def test_scores_are_in_memory_where_the_software_has_them_there(proved, name):
    for rank in ranks_of(proved, name):
        assert rank["flash"] is ("unfused" not in name)


@pytest.mark.parametrize(
    ("change", "plan", "words"),
    [("graphs=iteration", "data:2", "kernels are launched one by one"),
     ("norms=fused", "data:2", "batch norms are kernels of their own"),
     ("layout=turned", "data:2", "channels stand first, or last, in all layers"),
     ("layout=last", "pipeline:2,segments=2", "not run in a pipeline"),
     ("attention=unfused", "context:2", "whose ring is of fused kernels")],
)  # fmt: skip
def test_what_a_software_is_priced_with_and_nothing_does_is_refused(change, plan, words):
    pytest.importorskip("torch")
    engine = {"data": "ddp", "context": "dtensor"}.get(plan.partition(":")[0], "pipelining")
    model = GPT if engine == "dtensor" else RESNET
    told = f"{engines()[engine].software},{change}"
    (why,) = refusals(PlanRun(model, plan, 8, engine=engine, software=told))
    assert words in why


def test_deepspeed_trains_as_a_plain_program_does(tmp_path):
    """To rounding of fp32, which is what it knows; where it is installed."""
    pytest.importorskip("torch")
    pytest.importorskip("deepspeed")
    asked = [
        {"name": f"{program} {plan}", "engine": "deepspeed", "program": program, "plan": plan,
         "model": MODELS[program], "batch": 8, "steps": 2, "precision": "fp32", "optimizer": how,
         "software": "deepspeed"}
        for program, plan, how in (
            ("vgg", "data:2", "momentum"), ("gpt", "data:2,zero=1", "momentum"),
            ("resnet", "data:2,zero=2,accumulate=2", "momentum"),
            ("llama", "data:2,zero=3 recompute:full", "adam"))
    ]  # fmt: skip
    found = trained(tmp_path, asked, 2, timeout=280)  # it compiles what it sends by first
    for case in asked:
        ranks = ranks_of(found.get, case["name"])
        for step, expected in enumerate(ranks[0]["expected"]):
            assert sum(rank["loss"][step] for rank in ranks) == pytest.approx(expected, rel=1e-5)
        assert set(ranks[0]["worst"]) == set(ranks[0]["weights"])
        assert max(worst for rank in ranks for worst in rank["worst"].values()) < 1e-4


# of HSDP and of replicas inside a split FSDP2 lets nobody count what is added up
COUNTED = [name for name in EXACT if CASES[name]["engine"] in ("ddp", "fsdp2")
           and "data:2 sharded:2" not in name and name != "fsdp2 gpt data:2"]  # fmt: skip
COUNTED += ["dtensor gpt data:2,zero=3 context:2"]


@pytest.mark.parametrize("name", each(COUNTED))
def test_an_engine_sends_the_bytes_that_are_priced(proved, name):
    case, ranks = CASES[name], ranks_of(proved, name)
    from oracle.executor.messages.expected import expected_messages  # which loads torch

    layers, plan = graph(case["model"]), parse(case["plan"], case["batch"])
    sent = {}
    for rank in ranks:
        for what, (_, _, nbytes) in rank["sent"].items():
            sent[what] = sent.get(what, 0.0) + nbytes
    talk = {e.label: e.nbytes for e in expected_messages(layers, plan, 8.0, [(0, layers.units)])}
    talk = {what: nbytes for what, nbytes in talk.items() if not what.startswith("context")}
    if case["engine"] == "ddp" and "zero=1" in case["plan"]:
        talk = {"data: gradients": talk["data: gradients scattered"]}  # whole, then each its own
    assert sent == pytest.approx(talk, rel=1e-9)


VIT = {"name": "vit", "source": "made for tests", "input": [3, 8, 8], "layers": [
    {"conv": {"filters": 16, "kernel": 4, "stride": 4}},
    {"reshape": {"to": [16, 4], "tokens": True}},
    {"position": {"extra_tokens": 1}}, {"norm": "layer"}, {"attention": {"heads": 4}},
    {"mlp": {"ffn": 32}}, {"norm": "layer"}, "first", {"dense": 5}, "loss"]}  # fmt: skip
FAMILIES = (VIT, UNET, BRANCHES, ODD, GROUPED, CUBES, WAVES, PIXELS, RISING, LLAMA8)


@pytest.mark.parametrize("model", FAMILIES, ids=lambda model: model["name"])
def test_modules_make_what_the_native_rows_make(model):
    """Loss and each gradient, of every family of layers, wherever channels stand."""
    pytest.importorskip("torch")
    from engine_tasks import both

    for last in (False, True):
        own, native, worst = both(model, last)
        assert own == pytest.approx(native, rel=1e-12)
        assert max(worst.values()) < 1e-12, worst


@pytest.mark.parametrize("name", engines())
def test_an_engine_names_its_file_and_a_software(name):
    engine = engines()[name]
    assert type(engine).__module__ == f"oracle.executor.engines.{name}"
    assert software(engine.software)


@pytest.mark.parametrize("name", [name for name in engines() if name != "native"])
def test_an_engine_refuses_what_it_does_not_run_all_of_it_at_once(name):
    runs = type(engines()[name]).runs
    for strategy, new in strategies().items():
        if not new.degrees or strategy in ("expert", "tables"):
            continue
        job = PlanRun(GPT, f"{strategy}:2", 8, engine=name, optimizer="lars", precision="fp16")
        found = refusals(job)
        assert "lars is no optimizer of PyTorch's; sgd, momentum, adam are" in found
        missing = f"the engine {name} has no `{strategy}` parallelism"
        assert any(why.startswith(missing) for why in found) is (strategy not in runs)
        assert any("fp16" in why for why in found) is (name != "ddp")


def words(*layers, end="loss"):
    """A model of eight words."""
    return {"name": "words", "source": "made for tests", "input": [1, 8], "layers": [
        {"embedding": {"vocab": 12, "hidden": 16}}, *layers, {"dense": 5}, end]}  # fmt: skip


ALL = {"attention": {"heads": 4, "kv_heads": 2, "causal": False}}  # which sees all tokens
SEEN = words({"position": {}}, {"norm": "layer"}, ALL, {"norm": "rms"}, "relu")
UNCUT = [
    (GPT, "context:2,kind=alltoall", "`context` with kind=alltoall is not run by dtensor; kind=ri"),
    (GPT, "context:4", "`context` is run in chunks of two tokens or more"),
    (GPT, "context:8", "tokens are not 16 chunks alike, two for each device of `context`"),
    (LONGER, "tensor:4,sequence=on context:4", "tokens are not 16 times as many each"),
    (VIT, "context:2", "`context` is run for models whose rows are all of tokens"),
    (words(ALL, "first"), "context:2", "`context` is run for models whose rows all have the same"),
    (words({"attention": {"heads": 4, "causal": True}}, ALL), "context:2",
     "`context` is run where all attention is causal, or none"),
    (words(ALL, {"norm": "batch"}), "context:2",
     "`context` is run where attention alone sees several tokens, not norm"),
    (words(ALL, end="relu"), "context:2", "`context` is run for models that end with a loss"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "plan", "why"), UNCUT)
def test_tokens_that_no_ring_of_pytorchs_takes_are_refused(model, plan, why):
    pytest.importorskip("torch")
    (said,) = refusals(PlanRun(model, plan, 8, engine="dtensor"))
    assert said.startswith(why)


def test_context_is_refused_where_pytorch_has_no_ring(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr("oracle.executor.engines.dtensor.RING", "nowhere")
    (why,) = refusals(PlanRun(GPT, "context:2", 8, engine="dtensor"))
    assert why.startswith("`context` is run by PyTorch 2.13's ring attention")


READ = [  # engine, model, plan, mode, ranks that read
    ("ddp", VGG, "data:4", "striped", [0, 1, 2, 3]),
    ("fsdp2", VGG, "data:2,zero=3", "shared", [0, 1]),
    ("dtensor", GPT, "data:2 tensor:2", "staged", [0, 2]),
    ("dtensor", GPT, "data:2 context:2", "striped", [0, 2]),
    ("pipelining", VGG, "pipeline:2,segments=2 data:2", "cached", [0, 1]),
]


@pytest.mark.slow
def test_engines_train_on_the_samples_that_are_read(tmp_path):
    """Those of a step are all of a batch, each once, of files and not made up."""
    pytest.importorskip("torch")
    folders = {"vgg": tmp_path / "images", "gpt": tmp_path / "words"}
    samples.make(folders["vgg"], Made(8), (3, 16, 12))
    samples.make(folders["gpt"], Made(8), (8,))
    vocab = GPT["transformer"]["vocab"]
    made = {"vgg": lambda x: x.flatten().tolist(),
            "gpt": lambda x: (x * vocab).astype(int).tolist()}  # fmt: skip
    held = {name: sorted(made[name](np.load(path)) for path in folder.iterdir())
            for name, folder in folders.items()}  # fmt: skip
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    asked = {"cases": [case[:4] for case in READ],
             "folders": {name: str(folder) for name, folder in folders.items()}}  # fmt: skip
    outcome = launch(
        "engine_tasks:reads", asked, tmp_path / "run", ranks=4, timeout=180, trust=True,
        host=Host(environment=lambda rank: {"PYTHONPATH": path}),
    )  # fmt: skip
    assert outcome.code == DONE, outcome.message
    found = records.of_all_ranks(tmp_path / "run", 4)
    for number, (engine, model, plan, _, readers) in enumerate(READ):
        ranks = found[str(number)]
        assert [rank for rank, one in enumerate(ranks) if one["files"]] == readers, engine
        for step in (0, 1):
            seen = [sample for rank in readers for sample in ranks[rank]["seen"][step]]
            if "context" in plan:  # a rank has the front and the end of a sample, one its middle
                other = [part for rank in (1, 3) for part in ranks[rank]["seen"][step]]
                seen = [a[:2] + b + a[2:] for a, b in zip(seen, other, strict=True)]
            assert sorted(seen) == held[model["name"]], plan
        if "tensor" in plan:  # whose ranks have the same samples
            assert ranks[0]["seen"] == ranks[1]["seen"] != ranks[2]["seen"] == ranks[3]["seen"]


def test_checkpoints_of_cut_tensors_and_of_a_scaled_loss_are_refused():
    pytest.importorskip("torch")
    kept = {"way": "sharded", "folder": "/nowhere"}
    (why,) = refusals(PlanRun(GPT, "tensor:2", 8, engine="dtensor", checkpoint=kept))
    assert why == "--checkpoint of tensors that `tensor` cuts is for the native engine"
    (why,) = refusals(PlanRun(GPT, "data:2", 8, engine="ddp", precision="fp16", checkpoint=kept))
    assert "--checkpoint keeps no scale of a loss" in why


@pytest.mark.slow
def test_an_engine_is_held_against_one_device_of_the_executor(tmp_path):
    """And is told from one that learns faster."""
    pytest.importorskip("torch")
    from oracle.executor.proof.equality import difference

    cases = [("ddp", RESNET, "data:2,accumulate=2", 8), ("dtensor", GPT, "tensor:2", 4),
             ("pipelining", VGG, "pipeline:2,segments=2", 4), ("dtensor", SEEN, "context:2", 4),
             ("ddp", VGG, "data:2", 4)]  # fmt: skip
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    outcome = launch(
        "engine_tasks:beside_one_device", {"cases": cases}, tmp_path, ranks=2, timeout=180,
        trust=True, host=Host(environment=lambda rank: {"PYTHONPATH": path}),
    )  # fmt: skip
    assert outcome.code == DONE, outcome.message
    ranks = records.of_all_ranks(tmp_path, 2)
    *same, other = (difference(ranks[str(number)]) for number in range(len(cases)))
    assert max(same) < 1e-8, same
    assert other > 1e-5


def test_several_losses_are_refused():
    pytest.importorskip("torch")
    why = refusals(PlanRun(BERT, "data:2", 8, engine="ddp"))
    assert why == ["several losses are run by the native engine at most"]


def test_attention_to_another_sequence_is_refused():
    pytest.importorskip("torch")
    why = refusals(PlanRun(TRANSLATOR, "data:2", 8, engine="fsdp2"))
    assert why == ["attention to another sequence is run by the native engine at most"]


def test_frameworks_that_are_no_engine_say_what_to_do(capsys, tmp_path):
    """torchtitan trains models of its own; DeepSpeed is an engine where it is installed."""
    pytest.importorskip("torch")
    words = ["run", "lenet5", "--local", "2", "--batch", "8", "--plan", "data:2", "-o",
             str(tmp_path / "m.json"), "--engine"]  # fmt: skip
    assert main([*words, "torchtitan"]) == 2
    assert "--software torchtitan runs your model" in capsys.readouterr().err
    if find_spec("deepspeed") is None:
        assert main([*words, "deepspeed"]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "deepspeed is not installed: `pip install deepspeed`" in said
    assert not list(tmp_path.iterdir())


def test_ranks_that_deepspeed_has_no_use_for_are_refused_before_any_starts():
    with pytest.raises(SpecError, match="deepspeed takes all 4 ranks"):
        enough([PlanRun(VGG, "data:2", 8, engine="deepspeed")], 4)
    enough([PlanRun(VGG, "data:2", 8, engine="deepspeed")], 2)
    enough([PlanRun(VGG, "data:2", 8, engine="ddp")], 4)


def test_a_module_that_is_missing_is_named(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(type(engines()["ddp"]), "needs", ("torch", "no_such_module"))
    found = refusals(PlanRun(VGG, "data:2", 8, engine="ddp"))
    assert found == ["no_such_module is not installed: `pip install no_such_module`"]


def test_software_names_engines_that_there_are():
    named = {name: software(name).launch.engines for name in shipped("software")}
    assert {name for name, own in named.items() if own} == {
        "pytorch-ddp", "pytorch-fsdp", "torchtitan", "deepspeed",
        "pytorch-channels-first", "pytorch-channels-last"}  # fmt: skip
    assert not {one for own in named.values() for one in own} - set(engines())


ASKED = [("resnet50", "dgx-a100", "pytorch-ddp"), ("gpt2", "dgx-a100", "pytorch-fsdp"),
         ("llama3-8b", "dgx-h100", "torchtitan")]  # fmt: skip


@pytest.mark.parametrize(("model", "system", "name"), ASKED)
def test_what_is_recommended_for_a_software_can_be_run_as_it_stands(model, system, name):
    pytest.importorskip("torch")
    precision = "fp32" if name == "pytorch-ddp" else "bf16"
    ranking = oracle.recommend(model, system, devices=16, batch=64, software=name, top=5,
                               precision=precision)  # fmt: skip
    plans = [row["plan"] for row in ranking.rows()][:5]
    assert plans
    for plan in plans:
        jobs = [PlanRun(model, plan, 64, engine=engine, precision=precision, optimizer="adam")
                for engine in software(name).launch.engines]  # fmt: skip
        found = [refusals(job) for job in jobs]
        assert [] in found, (plan, found)

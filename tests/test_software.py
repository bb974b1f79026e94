"""Software specs: those that are shipped, what each field moves, what may be launched, changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

import numpy as np
import pytest
import yaml
from command_line import told
from conftest import CONVOLUTIONS, SYSTEM, TRANSFORMER
from grids import rest_slow
from plans_drawn import EXPERTS
from test_exchange import matrix

import oracle
from oracle.plan.launchable import shapes, software, strategies_of
from oracle.plan.strategies import strategies
from oracle.spec import catalogue
from oracle.spec.document import SpecError
from oracle.spec.formula import NAMES, Formula
from oracle.spec.gradients import Pieces
from oracle.spec.schema import fields_of
from oracle.spec.software import PLAIN, Software

SHIPPED = list(catalogue.shipped("software"))
DEVICE = cast("dict[str, Any]", SYSTEM["device"])
AMPERE = {"generation": "ampere", "peak": {**DEVICE["peak"], "tf32": "60 TFLOP/s"}}
BUILT = oracle.system({**SYSTEM, "device": {**DEVICE, **AMPERE}})
OWN = {"name": "own", "source": "made up"}
GROUPS = {name: hint for name, (_, hint, _) in fields_of(Software).items() if is_dataclass(hint)}


# --- those that are shipped ------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_spec_says_whose_it_is(name: str) -> None:
    found = software(name)
    assert (found.name, found.label) == (name, name)
    assert found.title
    assert found.source
    if name != "plain":
        assert found.framework
        assert found.version
        for group in GROUPS:  # what differs from no framework says who says so
            mine, plain = (getattr(each, group) for each in (found, PLAIN))
            if mine != plain and group not in ("kernels", "host"):
                assert mine.source, group


def test_plain_is_what_the_code_assumes() -> None:
    """Field by field, each of them written down."""
    written = yaml.safe_load(Path(catalogue.shipped("software")["plain"]).read_text())
    found = software("plain")
    for group, hint in GROUPS.items():
        if group == "launch":  # every plan can be told
            assert found.launch == PLAIN.launch
            continue
        assert {*written[group]} == {*fields_of(hint)} - {"source"}, group
        for name in {*fields_of(hint)} - {"source"}:
            assert getattr(getattr(found, group), name) == getattr(getattr(PLAIN, group), name)
    assert found.context == PLAIN.context == written["context"]


def test_plain_changes_no_answer() -> None:
    for model in (CONVOLUTIONS, TRANSFORMER, EXPERTS):
        for plan in ("data:4,zero=1", "pipeline:2,segments=4 tensor:2"):
            silent, said = (
                oracle.estimate(model, BUILT, plan, 64, **more).to_dict()
                for more in ({}, {"software": "plain"})
            )
            assert silent == said


# --- what the host does ----------------------------------------------------------------------


@pytest.mark.parametrize(("zero", "messages"), [(2, 2), (3, 3)])
def test_hooks_of_units_make_steps_of_processors_longer_and_fill_hosts_of_gpus(
    zero: int, messages: int
) -> None:
    """A millisecond for each message of six units: four layers, the table, the head."""
    fsdp = software("pytorch-fsdp")

    def seconds(processors: bool, unit: float, graphs: str = "none") -> float:
        system = replace(BUILT, device=replace(BUILT.device, host=processors))
        said = fsdp.but(host=replace(fsdp.host, unit=unit, graphs=graphs))
        found = oracle.estimate(DENSE, system, f"data:4,zero={zero}", 64, software=said,
                                precision="bf16", reading="none")  # fmt: skip
        return float(found.seconds[0])

    longer = seconds(True, 1e-3) - seconds(True, 0.0)
    assert longer == pytest.approx(6 * messages * 1e-3, rel=2e-3)
    beside, busy = (seconds(False, unit) - seconds(False, 0.0) for unit in (1e-3, 20e-3))
    assert beside < 1e-3  # a GPU works while its host is in hooks of a fifth of a pass
    if zero == 3:
        assert busy > 0.05  # but waits for those of 6 x 20 ms a pass
    assert seconds(False, 20e-3, "iteration") == seconds(False, 0.0, "iteration")


# --- every field counts ----------------------------------------------------------------------

DENSE = oracle.model({"name": "dense", "source": "made up", "transformer": {
    "layers": 4, "hidden": 2048, "heads": 16, "kv_heads": 4, "vocab": 8192, "sequence": 256,
    "gated": True}})  # fmt: skip
WORDS = oracle.model({"name": "words", "source": "made up", "transformer": {
    "layers": 1, "hidden": 64, "heads": 4, "vocab": 65536, "sequence": 512}})  # fmt: skip
PICTURES = oracle.model({"name": "pictures", "source": "made up", "input": [3, 32, 32],
    "layers": [{"conv": {"filters": 64, "kernel": 3}}, {"norm": "batch"}, "relu"]})  # fmt: skip
MIXTURE = oracle.model(EXPERTS)
SHARED = oracle.model(EXPERTS | {"transformer": EXPERTS["transformer"] | {"shared": 1}})
PAIR, SERVED = ((DENSE, f"data:{p},servers=1", 64, "bf16") for p in (2, 4))
MATRIX = (oracle.model(matrix(1024, 1024)), "data:4", 4, "bf16")
REPLICAS, ZERO_1, ZERO_3 = ((DENSE, f"data:4,zero={zero}", 64, "bf16") for zero in (0, 1, 3))
STAGES = (DENSE, "pipeline:2,segments=4,interleave=2 tensor:2", 64, "bf16")
RANKS = (DENSE, "tensor:4,sequence=on", 8, "bf16")
DEALT = (MIXTURE, "data:4 expert:4", 64, "bf16")
EIGHT = (DENSE, "data:2,accumulate=2", 64, "fp8")
ADAPTED = ("llama2-7b,train=lora:16,sequence=256", "data:2", 8, "fp8")
EIGHT_RANKS = (DENSE, "tensor:4,sequence=on", 8, "fp8")
# what a field moves, and what else must be said for that
FIELDS: dict[str, tuple[tuple[Any, str, int, str], dict[str, dict[str, Any]]]] = {
    "exchange.gradients": (REPLICAS, {}),
    "exchange.wire": (REPLICAS, {}),
    "exchange.pieces": (REPLICAS, {"exchange": {"overlap": "backward"}}),
    "exchange.overlap": (REPLICAS, {"exchange": {"pieces": Pieces(bytes=Formula.of("1e6"))}}),
    "exchange.sharded": (ZERO_1, {}),
    "exchange.flat": (REPLICAS, {}),
    "exchange.passes": (REPLICAS, {}),
    "exchange.cycle": (REPLICAS, {"exchange": {"overlap": "backward"}}),
    "exchange.negotiations": (REPLICAS, {"exchange": {"overlap": "backward"}}),
    "exchange.connection": (PAIR, {}),
    "exchange.process": (SERVED, {}),
    "exchange.selection": ((DENSE, "data:4,compress=topk,density=0.01", 64, "bf16"), {}),
    "gather.wire": (ZERO_1, {}),
    "gather.overlap": (ZERO_1, {"exchange": {"pieces": Pieces(bytes=Formula.of("1e6"))}}),
    "gather.prefetch": (ZERO_3, {}),
    "gather.placed": (ZERO_3, {}),
    "gather.pipelined": ((DENSE, "pipeline:2,segments=4 data:4,zero=3", 64, "bf16"), {}),
    "tensor.forward_column": (RANKS, {}),
    "tensor.forward_row": (RANKS, {}),
    "tensor.backward_row": (RANKS, {}),
    "tensor.backward_column_gather": (RANKS, {}),
    "tensor.backward_column_reduce": (RANKS, {}),
    "tensor.lingers": ((DENSE, "data:1,accumulate=2 tensor:4,sequence=on", 8, "bf16"), {}),
    "tensor.buffers": (RANKS, {}),
    "tensor.shown": (RANKS, {"tensor": {"forward_row": "pipelined"}}),
    "tensor.gather": (EIGHT_RANKS, {}),
    "tensor.library": (RANKS, {}),
    "context": ((DENSE, "context:4", 8, "bf16"), {}),
    "experts.dispatcher": (DEALT, {}),
    "experts.shared_experts": ((SHARED, *DEALT[1:]), {"experts": {"overlap": "none"}}),
    "experts.weight_gradients": (DEALT, {"experts": {"overlap": "none"}}),
    "experts.processors": (DEALT, {"experts": {"overlap": "pass"}}),
    "experts.out": (DEALT, {}),
    "experts.back": (DEALT, {}),
    "experts.overlap": (DEALT, {}),
    "borders.scattered": (STAGES, {}),
    "borders.overlap": (STAGES, {}),
    "borders.cuts": (STAGES, {}),
    "borders.held": ((STAGES[0], f"{STAGES[1]} recompute:full", *STAGES[2:]), {}),
    "offload.sums": ((MATRIX[0], "data:4,zero=1,accumulate=4 offload:optimizer", *MATRIX[2:]), {}),
    "offload.units": (("resnet50", "serial offload:activations", 3584, "fp32"), {}),
    "state.weights": (REPLICAS, {}),
    "state.step": (REPLICAS, {}),
    "state.masters": (REPLICAS, {}),
    "state.moments": (REPLICAS, {}),
    "state.beside": (MATRIX, {"state": {"buckets": 0}}),
    "state.casts": (REPLICAS, {}),
    "state.buckets": (MATRIX, {"exchange": {"pieces": Pieces(bytes=Formula.of("1e6"))}}),
    "state.fp8_casts": (EIGHT, {}),
    "state.fp8_inputs": (EIGHT, {}),
    "state.fp8_copies": (EIGHT, {}),
    "state.frozen_copies": (ADAPTED, {}),
    "state.fp8_gates": (ADAPTED, {}),
    "state.slack": (REPLICAS, {}),
    "kernels.attention": (REPLICAS, {}),
    "kernels.fused": (REPLICAS, {}),
    "kernels.written": (REPLICAS, {"kernels": {"fused": False}}),
    "kernels.loss": ((WORDS, "serial", 64, "bf16"), {}),
    "kernels.grouped": ((MIXTURE, "data:4", 64, "bf16"), {"host": {"graphs": "none"}}),
    "kernels.head": (EIGHT, {}),
    "kernels.experts": ((MIXTURE, "data:4", 64, "bf16"), {}),
    "kernels.biases": ((WORDS, "serial", 64, "bf16"), {}),
    "kernels.logged": ((WORDS, "serial", 64, "bf16"), {}),
    "kernels.repeated": ((DENSE, "serial", 8, "bf16"), {}),
    "kernels.packed": ((DENSE, "recompute:operators", 8, "bf16"),
                       {"kernels": {"operators": "turns"}}),
    "kernels.strided": ((DENSE, "serial", 8, "bf16"), {}),
    "kernels.autocast": ((DENSE, "serial", 8, "bf16"), {}),
    "kernels.tf32": (("vgg16", "serial", 64, "fp32"), {}),
    "kernels.norms": ((PICTURES, "data:4", 64, "fp32"), {}),
    "kernels.operators": ((DENSE, "recompute:operators", 8, "bf16"), {}),
    "kernels.remade": ((DENSE, "recompute:full", 8, "bf16"), {}),
    "kernels.rebased": (("nnunet-2d", "serial", 8, "fp32"), {}),
    "kernels.optimizer": ((PICTURES, "data:4", 64, "fp32"), {}),
    "kernels.row": ((WORDS, "serial", 64, "bf16"), {}),
    "kernels.row_back": ((WORDS, "serial", 64, "bf16"), {}),
    "host.dispatch": (REPLICAS, {"host": {"graphs": "none"}}),
    "host.call": (RANKS, {"host": {"graphs": "none"}}),
    "host.unit": (ZERO_3, {"host": {"graphs": "none"}}),
    "host.narrow": (EIGHT, {"host": {"graphs": "none"}}),
    "host.around": (REPLICAS, {"host": {"graphs": "none"}}),
    "host.graphs": (REPLICAS, {}),
    "host.reader": ((PICTURES, "data:4", 64, "fp32"), {}),
}  # fmt: skip


def leaves() -> list[str]:
    """Every field that answers depend on; `launch`, `workspace`, `held` have tests of their own."""
    texts = {"name", "source", "title", "framework", "version", "launch", "held"}
    inner = [f"{group}.{field}" for group, hint in GROUPS.items() for field in fields_of(hint)
             if field != "source" and group not in ("launch", "convolution")]  # fmt: skip
    return [*inner, *(set(fields_of(Software)) - set(GROUPS) - texts)]


def others(hint: Any, value: Any) -> Iterator[Any]:
    """Other values that a field may have."""
    literals = [w for h in (hint, *get_args(hint)) if get_origin(h) is Literal for w in get_args(h)]
    if isinstance(value, bool):
        yield not value
    elif literals:
        yield from (word for word in literals if word != value)
    elif hint == fields_of(GROUPS["exchange"])["pieces"][1]:
        yield Pieces(bytes=Formula.of("333333"))
    elif isinstance(value, str):  # graphs of parts
        yield from {"none", "iteration", "attn+moe_router"} - {value}
    else:
        yield 3 * value + 1e-3 if isinstance(value, float) else 7


def changed(said: Software, field: str, value: Any) -> Software:
    group, _, name = field.rpartition(".")
    if not group:
        return said.but(**{name: value})
    return said.but(**{group: replace(getattr(said, group), **{name: value})})


@pytest.mark.parametrize(("asked", "name"), [
    ("nemo@2.5", "nemo-2.5"), ("nemo@25.10", "nemo-2.5"), ("nemo@26.02", "nemo-26.02"),
    ("nemo@26.05", "nemo-26.04"), ("nemo@26.06", "nemo"), ("nemo@27.1", "nemo"),
    ("torchtitan@2024", "torchtitan-2024"), ("torchtitan@2025", "torchtitan"),
    ("megatron-lm@2021", "megatron-lm-2021"), ("nemo@26.02,moments=bf16", "nemo-26.02"),
])  # fmt: skip
def test_software_of_a_date(asked: str, name: str) -> None:
    """The newest of its family until then; one without a date in its name says it as version."""
    assert software(asked).name == name


def test_software_of_a_date_before_all_is_refused() -> None:
    for asked in ("nemo@1", "nemo@may"):
        with pytest.raises(oracle.SpecError, match="nemo-25"):
            software(asked)


def test_every_field_has_its_question() -> None:
    assert sorted(FIELDS) == sorted(leaves())


@pytest.mark.parametrize("name", [
    name if name in ("deepspeed", "mlperf-unet3d", "torchtitan")
    else pytest.param(name, marks=pytest.mark.slow) for name in SHIPPED
])  # fmt: skip
def test_every_field_of_a_shipped_spec_counts(name: str) -> None:
    shipped, dead = software(name), []
    for field, ((model, plan, batch, precision), beside) in FIELDS.items():
        said = shipped
        for group, values in beside.items():
            for key, value in values.items():
                said = changed(said, f"{group}.{key}", value)
        group, _, key = field.rpartition(".")
        kind, of = (GROUPS[group], getattr(said, group)) if group else (Software, said)
        _, hint, _ = fields_of(kind)[key]
        tried = [said, *(changed(said, field, new) for new in others(hint, getattr(of, key)))]
        found = [
            oracle.estimate(model, BUILT, plan, batch, precision=precision, optimizer="adam",
                            software=each, any_plan=True).to_dict()["plans"]
            for each in tried
        ]  # fmt: skip
        if all(answer == found[0] for answer in found[1:]):
            dead.append(field)
    assert not dead


def test_a_workspace_leaves_fewer_algorithms() -> None:
    """8 MiB hold no large tiles of VGG-16's layers; 64 GiB hold all."""
    times = [
        float(oracle.estimate("vgg16", "abci", "data:4", 128, software=f"plain,workspace={room}",
                              any_plan=True).seconds[0])
        for room in ("1 B", "8 MiB", "64 GiB")
    ]  # fmt: skip
    whole = float(oracle.estimate("vgg16", "abci", "data:4", 128, software="plain").seconds[0])
    assert times[0] > times[1] > times[2]
    assert times[2] == pytest.approx(whole, rel=1e-9)


# --- what may be launched --------------------------------------------------------------------


def feasible(said: Any, plan: str, model: Any = TRANSFORMER, batch: int = 64, **more: Any) -> str:
    """Why a plan cannot be told; nothing where it can."""
    found = oracle.estimate(model, BUILT, plan, batch, software=said, **more)
    assert found.feasible[0] == (not found.broken[0])
    return "; ".join(found.broken[0])


LAUNCH = OWN | {"launch": {
    "strategies": ["data", "tensor", "pipeline", "recompute"],
    "knobs": {"data.zero": ["0", "1"], "pipeline.schedule": ["gpipe"],
              "recompute.mode": ["none", "full"], "data.accumulate": ["1"]},
    "rules": [{"must": "tensor <= 4 and heads % tensor == 0", "why": "four ranks a node"},
              {"must": "sequence == 0 or tokens % tensor == 0", "why": "whole tokens"},
              {"must": "micro <= 8", "why": "no more samples at once"}]}}  # fmt: skip


@pytest.mark.parametrize(("plan", "why"), [
    ("data:8", ""),
    ("data:8,zero=1 tensor:2", ""),
    ("data:4 pipeline:2,segments=2,schedule=gpipe", ""),
    ("data:8 recompute:full", ""),
    ("tensor:4,sequence=on data:8", ""),
    ("data:8 context:2", "own has no `context` parallelism"),
    ("data:8,zero=2", "own knows data zero=0 or 1 only"),
    ("data:4,accumulate=4", "own knows data accumulate=1 only"),
    ("data:4 pipeline:2,segments=2", "own knows pipeline schedule=gpipe only"),
    ("data:8 recompute:selective", "own knows recompute mode=none or full only"),
    ("data:8 tensor:8", "own: four ranks a node (tensor <= 4 and heads % tensor == 0)"),
    ("data:4", "own: no more samples at once (micro <= 8)"),
])  # fmt: skip
def test_a_plan_that_cannot_be_told_says_why(plan: str, why: str) -> None:
    assert feasible(LAUNCH, plan) == why
    assert feasible(LAUNCH, plan, any_plan=True) == ""
    assert feasible(LAUNCH, plan, ideal=True) == ""


def test_knobs_count_where_their_axis_is_wide() -> None:
    """A schedule of one stage is nobody's; ZeRO beside one replica shards nothing."""
    assert feasible(LAUNCH, "data:8 pipeline:1") == ""
    said = OWN | {"launch": {"knobs": {"tensor.sequence": ["on"]}}}
    assert feasible(said, "data:8") == ""
    assert feasible(said, "data:8 tensor:2") == "own knows tensor sequence=on only"


def test_a_strategy_without_a_degree_may_be_none_of_its() -> None:
    said = OWN | {"launch": {"strategies": ["data"]}}
    assert feasible(said, "data:8") == ""
    assert feasible(said, "data:8 recompute:full") == "own has no `recompute` parallelism"


def test_no_strategies_named_are_all() -> None:
    assert strategies_of(PLAIN.launch) == tuple(strategies())
    told = strategies_of(software(LAUNCH).launch)  # where ranks sit, any can be told
    assert told == ("on", "pipeline", "data", "tensor", "recompute")


def test_formulas_know_the_model() -> None:
    found = shapes(oracle.model(EXPERTS))
    assert found == {"layers": 4, "heads": 8, "groups": 4, "experts": 8, "tokens": 128,
                     "hidden": 256, "vocab": 2048}  # fmt: skip
    assert not any(dict(shapes(oracle.model(CONVOLUTIONS))).values()) or (
        shapes(oracle.model(CONVOLUTIONS))["layers"] == 1)  # fmt: skip


@pytest.mark.parametrize("name", [name for name in SHIPPED if software(name).launch.rules])
def test_every_rule_that_is_shipped_forbids_something_and_allows_something(name: str) -> None:
    """Of degrees, micro-batches and models drawn at random."""
    rng = np.random.default_rng(1)
    numbers = {key: rng.choice([1.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0], 4000) for key in NAMES}
    numbers["zero"] = rng.choice([0.0, 1.0, 2.0, 3.0], 4000)
    for key in ("sequence", "activations", "disk"):
        numbers[key] = rng.choice([0.0, 1.0], 4000)
    numbers["recompute"] = rng.choice([0.0, 1.0, 2.0, 5.0], 4000)
    for key in ("batch", "heads", "groups", "tokens", "experts"):
        numbers[key] = rng.choice([6.0, 7.0, 8.0, 12.0, 96.0], 4000)
    for rule in software(name).launch.rules:
        kept = np.asarray(rule.must(numbers), bool)
        assert kept.any(), rule.must.text
        assert not kept.all(), rule.must.text
        assert rule.why


QUICK = ("megatron-core", "pytorch-fsdp", "deepspeed", "mlperf-resnet")


@cache
def ranked(name: str, kind: str) -> Any:
    """A small model under the name of one that the software ships, if it ships only some."""
    model = {"pictures": CONVOLUTIONS, "words": TRANSFORMER, "mixture": EXPERTS}[kind]
    model = model | {"name": next(iter(software(name).launch.models), model["name"])}
    return model, oracle.recommend(model, BUILT, 8, 64, software=name)


@pytest.mark.parametrize("kind", ["pictures", "words", "mixture"])
@pytest.mark.parametrize("name", rest_slow(SHIPPED, QUICK))
def test_no_plan_is_recommended_that_cannot_be_told(name: str, kind: str) -> None:
    model, found = ranked(name, kind)
    plans = [*found.estimate.plans, *found.fastest.plans]
    assert plans, "plain replicas can always be told"
    again = oracle.estimate(model, BUILT, plans, 64, software=name)
    assert again.feasible.all()
    assert found.to_dict()["software"] == name


# --- faults of a spec ------------------------------------------------------------------------


@pytest.mark.parametrize(("launch", "wrong", "what", "hint"), [
    ({"strategies": ["data", "tensr"]}, "tensr", "no strategy is called `tensr`", "`tensor`"),
    ({"knobs": {"data.zer": ["0"]}}, "data.zer", "no knob is called `data.zer`", "`data.zero`"),
    ({"knobs": {"zero": ["0"]}}, "zero", "no knob is called `zero`", "`data.zero`"),
    ({"knobs": {"pipeline.schedule": ["1fb1"]}}, "1fb1", "`pipeline.schedule` is never `1fb1`",
     "`1f1b`"),
    ({"knobs": {"pipeline.interleave": ["one"]}}, "one", "`pipeline.interleave` takes numbers",
     "1"),
    ({"rules": [{"must": "heads % tensors == 0", "why": "x"}]}, "heads", "`tensors` is nothing",
     "`tensor`"),
])  # fmt: skip
def test_what_nobody_knows_is_refused_with_the_nearest(
    launch: dict[str, Any], wrong: str, what: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(OWN | {"launch": launch}))
    with pytest.raises(SpecError) as caught:
        software(str(path))
    (fault,) = caught.value.faults
    assert what in fault.what
    assert hint in fault.hint + fault.what
    line = path.read_text().splitlines()[fault.place.line - 1]
    assert line[fault.place.column - 1 :].strip("'\"").startswith(wrong)


# each line as it is wrong, and what its fault must name
MISTAKES = """\
name: own
titel: A framework                                 # unknown field `titel`: `title`
framework: [Mine]                                  # takes one word or line, not a sequence
exchange:
  gradients: fp23                                  # cannot be `fp23`: `fp32`
  pieces: {bytes: 25e6, elements: 1e6}             # said once
  overlap: sideways                                # cannot be `sideways`: `backward`
  passes: -1                                       # out of range
  cycle: 5 MB                                      # s is wanted
gather:
  wire: {fp61: bf16}                               # unknown precision `fp61`: `fp16`
  prefetch: {value: 2}                             # takes one number, not a mapping
tensor:
  forward_row: data                                # cannot be `data`: `pipelined`
  backward_row: weigth                             # cannot be `weigth`: `weight`
  shown: 150 %                                     # not a plain number
context: beside
context: exposed                                   # stands twice
borders:
  scattered: yes                                   # yes-or-no: `true` or `false`
state:
  moments: 4                                       # cannot be `4`: `bf16`
  casts: many                                      # not a plain number
kernels: [flash2]                                  # takes fields, not a sequence
host:
  dispatch: 20                                     # needs its unit
launch:
  strategies: [data, tensr]                        # no strategy is called `tensr`: `tensor`
  knobs:
    pipeline.shedule: ["1f1b"]                     # no knob is called: `pipeline.schedule`
    tensor.sequence: ["of"]                        # never `of`: `off`
    pipeline.interleave: [two]                     # takes numbers
  rules:
    - {must: heads % tensr == 0, why: whole heads}  # `tensr` is nothing: `tensor`
    - {must: batch.real == 1, why: real}           # cannot be part of a formula
    - {must: "(heads", why: closed}                # is not a formula
    - {why: nothing}                               # lacks the field `must`
"""


def test_every_mistake_of_a_file_is_found_at_its_line(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "own.yaml"
    lines = MISTAKES.splitlines()
    path.write_text("\n".join(line.partition(" #")[0] for line in lines) + "\n")
    code, out, _ = told(capsys, "specs", "check", str(path), "--json")
    (file,) = json.loads(out)["files"]
    assert (code, file["kind"], file["sound"]) == (2, "software", False)
    found = {fault["line"]: f"{fault['what']} {fault['hint']}" for fault in file["faults"]}
    wanted = {number: line.partition(" # ")[2] for number, line in enumerate(lines, 1)
              if " # " in line}  # fmt: skip
    assert len(wanted) >= 20
    assert set(found) - {1} == set(wanted)
    assert "nobody says where this is from" in found[1]
    for number, said in wanted.items():
        for part in said.split(": "):
            assert part in found[number], (lines[number - 1], found[number])


# --- fields changed by whoever asks ----------------------------------------------------------


def test_a_field_is_changed_by_its_name() -> None:
    found = software("nemo,gradients=fp32,state.moments=bf16,context=exposed,dispatch=7 us")
    plain = software("nemo")
    assert found.exchange == replace(plain.exchange, gradients="fp32")
    assert found.state == replace(plain.state, moments="bf16")
    assert (found.context, found.host.dispatch) == ("exposed", 7e-6)
    assert found.label == "nemo,gradients=fp32,state.moments=bf16,context=exposed,dispatch=7 us"
    assert plain.label == "nemo"


@pytest.mark.parametrize(("change", "says"), [
    ("overlap=none", r"`overlap` is a field of several groups(.|\n)*`exchange.overlap`"),
    ("gradient=bf16", r"no field is called `gradient`(.|\n)*`exchange.gradients`"),
    ("gradients=bf61", r"`gradients` cannot be `bf61`(.|\n)*`bf16`"),
    ("moments=2", "`moments` cannot be `2`"),
    ("casts=much", "`casts`: `much` is not a plain number"),
    ("cycle=3", r"needs its unit"),
    ("shown=7", "out of range"),
    ("gradients", "`gradients` changes nothing"),
    ("gradients=", "`gradients=` changes nothing"),
    ("name=x", "no field is called `name`"),
])  # fmt: skip
def test_a_change_that_cannot_be_is_refused(change: str, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        software(f"nemo,{change}")


def test_a_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(SpecError, match="did you mean `megatron-core`"):
        software("megatron-cor")


def test_answers_name_the_software_and_what_was_changed(capsys: Any) -> None:
    line = ["gpt2", "dgx-a100", "--batch", "16", "--json", "--plan", "tensor:4"]
    for said in ("nemo", "nemo,gradients=fp32"):
        code, out, _ = told(capsys, "estimate", *line, "--software", said)
        assert code == 0
        assert json.loads(out)["software"] == said
    code, out, _ = told(capsys, "estimate", *line)
    assert json.loads(out)["software"] == "plain"
    broken = ["--software", "horovod-tensorflow"]
    _, out, _ = told(capsys, "estimate", *line, *broken)
    (plan,) = json.loads(out)["plans"]
    assert plan["broken"] == ["horovod-tensorflow has no `tensor` parallelism"]
    _, out, _ = told(capsys, "estimate", *line, *broken, "--any")
    assert json.loads(out)["plans"][0]["feasible"]


def test_a_file_and_a_dict_are_software_too(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(OWN | {"state": {"moments": "bf16"}}))
    for what in (str(path), yaml.safe_load(path.read_text()), software(str(path))):
        assert software(what).state.moments == "bf16"
    assert software(f"{path},moments=fp16").state.moments == "fp16"


def test_a_value_may_bring_its_source() -> None:
    said = software(OWN | {"state": {"casts": {"value": 6, "source": "measured"}}})
    assert said.state.casts == 6
    assert said.state.sources == {"casts": "measured"}

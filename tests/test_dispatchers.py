"""How tokens go to experts: what each dispatcher sends, what hides it, and how it is calibrated."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from test_exchange import ACTIVE, EXPERTS, TOKENS, H

import oracle
from oracle.calibration.calibrate import calibrate
from oracle.kernels.families import At
from oracle.kernels.rows import sorted_by_expert
from oracle.network.collectives import ALGORITHMS
from oracle.network.collectives.dispatch import ByExperts
from oracle.network.contention import lines
from oracle.plan.launchable import software
from oracle.readers.logs import Reading, Sample
from oracle.writers.export import ExportError

NODE = oracle.system("dgx-h100")
MIXTURE = oracle.model(EXPERTS)
DEALT = "data:4 expert:4"
BATCH = 64


def sent(
    said: dict[str, Any], plan: str = DEALT, model: Any = MIXTURE, system: Any = NODE,
    batch: int = BATCH,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Messages of experts by what they are, under `plain` but for what is said."""
    plain = software("plain")
    spec = plain.but(experts=replace(plain.experts, **said))
    found = oracle.estimate(model, system, plan, batch, precision="bf16", software=spec,
                            any_plan=True)  # fmt: skip
    return {m["what"]: m for m in found.exchange[0] if "experts" in m["what"]}


def test_bytes_of_each_dispatcher_by_hand() -> None:
    """A device has 16 samples; a token visits two of eight experts, on two of four devices."""
    token = BATCH / 4 * TOKENS * H * 2.0
    every = sent({})
    assert {*every} == {"expert: tokens to experts", "expert: gradients to experts"}
    assert every["expert: tokens to experts"]["bytes"] == ACTIVE * token
    once = sent({"dispatcher": "deepep"})
    # 4 (1 - C(6, 2) / C(8, 2)) devices are hit
    hit = 4 * (1 - 15 / 28)
    for message in once.values():
        assert message["bytes"] == pytest.approx(hit * token, rel=1e-12)
    assert {*once} == {f"expert: {what} {way} experts"
                       for what in ("tokens", "gradients") for way in ("to", "from")}  # fmt: skip
    everywhere = sent({"dispatcher": "allgather"})
    assert {m["op"] for m in everywhere.values()} == {"allgather", "reduce_scatter"}
    for message in everywhere.values():
        assert message["bytes"] == pytest.approx(4 * token, rel=1e-12)


@pytest.mark.parametrize("way", ["to", "from"])
def test_widths_of_what_goes_out_and_what_comes_back(way: str) -> None:
    """Out in fp8, back in bf16: half of the bytes one way."""
    wide, narrow = (sent({"dispatcher": "hybridep", "out": out}) for out in ("bf16", "fp8"))
    for what in ("tokens", "gradients"):
        name = f"expert: {what} {way} experts"
        goes_out = way == "to"
        assert narrow[name]["bytes"] == wide[name]["bytes"] / (2 if goes_out else 1)


def test_a_token_goes_to_a_node_once_and_to_as_many_as_its_groups_reach() -> None:
    """DeepSeek-V3 has eight groups of experts, of which a token reaches four."""
    model = oracle.model("deepseek-v3")
    plan, batch = "data:64,zero=1 expert:64", 64
    plain, once = (sent({"dispatcher": name}, plan, model, batch=batch)
                   for name in ("alltoall", "deepep"))  # fmt: skip
    share = (once["expert: tokens to experts"]["bytes"]
             / plain["expert: tokens to experts"]["bytes"])  # fmt: skip
    assert share == pytest.approx(4 / 8)


def exposed(said: dict[str, Any], plan: str = DEALT, **more: Any) -> float:
    return sum(message["exposed"] for message in sent(said, plan, **more).values())


DEEP = oracle.model({"name": "deep", "source": "made up", "transformer": {
    "layers": 8, "hidden": 2048, "heads": 16, "vocab": 8192, "sequence": 1024, "ffn": 1024,
    "gated": True, "experts": 16, "active": 2, "shared": 2}})  # fmt: skip
STAGED = "pipeline:2,segments=8,interleave=2 data:4 expert:4"


def test_what_hides_them_hides_no_more_than_there_is() -> None:
    more = {"model": DEEP, "batch": 128}
    apart = exposed({"dispatcher": "deepep"}, STAGED, **more)
    shared = exposed({"dispatcher": "deepep", "shared_experts": "beside"}, STAGED, **more)
    batch = exposed({"dispatcher": "deepep", "overlap": "batch"}, STAGED, **more)
    both = exposed({"dispatcher": "deepep", "overlap": "batch", "weight_gradients": "delayed"},
                   STAGED, **more)  # fmt: skip
    assert both <= batch < apart
    assert shared < apart


@pytest.mark.parametrize(("plan", "alone"), [
    ("data:4,accumulate=8 expert:4", 1 / 8),  # the first forward and the last backward pass
    # of the last stage, whose head sets the pace: (2 - 1) 2 + 1 of 8 · 2 passes fill the pipeline
    (STAGED, 3 / 16),
])  # fmt: skip
def test_passes_without_another_hide_nothing(plan: str, alone: float) -> None:
    """Where the work is long enough by far, what shows is what has no partner."""
    node = replace(NODE.levels[0], bandwidth=1e16, latency=1e-5)
    fast = replace(NODE, levels=(node, *NODE.levels[1:]), collectives=(),
                   device=replace(NODE.device, library=""))  # fmt: skip
    for message in sent({"dispatcher": "deepep", "overlap": "batch"}, plan, DEEP, fast, 128
                        ).values():  # fmt: skip
        assert message["exposed"] == pytest.approx(alone * message["seconds"], rel=1e-9)


def test_processors_that_send_are_missing_elsewhere() -> None:
    few, many = (exposed({"dispatcher": "deepep", "overlap": "pass", "processors": count},
                         STAGED, model=DEEP, batch=128) for count in (4, 40))  # fmt: skip
    seconds = sum(m["seconds"] for m in sent(
        {"dispatcher": "deepep", "overlap": "pass"}, STAGED, DEEP, NODE, 128).values())  # fmt: skip
    assert few < many <= seconds


def test_libraries_for_experts_speak_for_nothing_else() -> None:
    plain = replace(NODE, collectives=tuple(
        entry for entry in NODE.collectives if "ep_" not in entry.algorithm))  # fmt: skip
    assert len(plain.collectives) + 2 == len(NODE.collectives)
    pattern = ((8, 1),)
    assert lines(plain, "alltoall", pattern, 8) == lines(NODE, "alltoall", pattern, 8)
    (fitted,) = lines(NODE, "alltoall", pattern, 8, "deepep_dispatch")
    assert fitted.origin == "fitted"
    assert fitted.per_byte == pytest.approx(7 / 8 / 286.9e9)
    assert fitted.start == pytest.approx(37.374e-6)


def test_every_dispatcher_of_the_registry_runs_as_scattered_messages() -> None:
    by_experts = [by for by in ALGORITHMS["alltoall"].values() if isinstance(by, ByExperts)]
    assert len(by_experts) == 4
    for by in by_experts:
        assert not by.menu
        assert by.steps(8) == 1
        assert by.volume(8) == 7 / 8


def test_calibration_finds_constants_of_a_library_for_experts() -> None:
    """α and β that were planted, beside NCCL's samples that keep their own entries."""
    alpha, bandwidth, rng = 40e-6, 250e9, np.random.default_rng(7)
    samples = tuple(
        Sample("alltoall", nbytes, (alpha + 7 / 8 * nbytes / bandwidth) * factor, 8, 1, 8,
               library="deepep", algorithm="deepep_dispatch", where=f"planted:{k}")
        for k, (nbytes, factor) in enumerate(zip(
            np.geomspace(1e5, 1e9, 24).tolist(), rng.normal(1, 0.01, 24).tolist(), strict=True))
    )  # fmt: skip
    found = calibrate([Reading("planted", "table", samples)], "dgx-b200")
    (entry,) = found.entries
    assert (entry.op, entry.level, entry.algorithm) == ("alltoall", "node", "deepep_dispatch")
    assert entry.bandwidth == pytest.approx(bandwidth, rel=0.02)
    assert entry.base + entry.latency == pytest.approx(alpha, rel=0.05)


def test_megatron_is_told_its_dispatcher() -> None:
    words = ("megatron-core,dispatcher=deepep,experts.overlap=batch,weight_gradients=delayed,"
             "experts.processors=24")  # fmt: skip
    asked = ("megatron", "qwen3-30b-a3b", "dgx-h100", "data:8,zero=1 expert:8", 8)
    text = " ".join(" ".join(oracle.export(*asked, software=words, any_plan=True).values()).split())
    for flag in ("--moe-token-dispatcher-type flex", "--moe-enable-deepep",
                 "--moe-deepep-num-sms 24", "--overlap-moe-expert-parallel-comm",
                 "--delay-wgrad-compute"):  # fmt: skip
        assert flag in text.replace("\\ ", "")
    with pytest.raises(ExportError, match="HybridEP"):
        oracle.export(*asked, software="megatron-core,dispatcher=hybridep", any_plan=True)


def test_tokens_of_several_experts_are_sorted_by_a_copy_and_padded_by_another() -> None:
    """Eight and four experts on four devices, a row of none; on one device nothing is sent."""
    family = SimpleNamespace(experts=np.array([8.0, 4.0, 0.0]))
    for devices, precision, passes in (
        (4.0, "bf16", [2, 0, 0]), (4.0, "mxfp8", [4, 0, 0]), (1.0, "mxfp8", [0, 0, 0]),
    ):  # fmt: skip
        seen = cast(At, SimpleNamespace(family=family, shard=SimpleNamespace(visits=devices)))
        assert sorted_by_expert(seen, precision).tolist() == passes


def test_a_copy_for_each_expert_takes_longer_to_sort_where_a_device_has_several() -> None:
    forward = {
        name: oracle.estimate(
            MIXTURE, NODE, DEALT, BATCH, precision="bf16",
            software=f"plain,graphs=iteration,dispatcher={name}",
        ).compute["forward"][0]
        for name in ("alltoall", "deepep")
    }  # fmt: skip
    assert forward["alltoall"] > forward["deepep"]

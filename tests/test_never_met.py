"""A device and a software that never met: refused, or doubted, over all pairs of the catalogue."""

from __future__ import annotations

from dataclasses import replace

import pytest

import oracle
from oracle.api.decide import choose
from oracle.commands.cli import main
from oracle.models.model import model
from oracle.plan.launchable import software
from oracle.predict.defaults import options_for
from oracle.spec import catalogue
from oracle.spec.device import PLATFORMS
from oracle.spec.document import SpecError
from oracle.spec.doubt import MEMORY, WIDTHS
from oracle.spec.software import Software
from oracle.spec.system import System

NODE = catalogue.system("dgx-a100")
PEOPLE = {"cuda": "NVIDIA", "rocm": "AMD", "tpu": "TPU"}


def nodes() -> list[System]:
    """A node of each shipped device."""
    return [replace(NODE, device=catalogue.device(name)) for name in catalogue.shipped("devices")]


@pytest.mark.parametrize("name", sorted(catalogue.shipped("software")))
def test_every_pair_is_refused_or_doubted_or_was_measured(name: str) -> None:
    spec, what = software(name), model("gpt2")
    kinds = {kind for measured in spec.held.values() for kind in measured}
    for node in nodes():
        device, platforms = node.device, spec.launch.platforms
        try:
            known = options_for(what, node, software=name).software
        except SpecError:
            assert platforms
            assert device.platform not in platforms, device.name
            continue
        assert not platforms or device.platform in platforms, device.name
        assert bool(known.held) == (device.kind in kinds), device.name
        counted = any(PLATFORMS[kind] == device.platform for kind in kinds)
        assert known.memory_doubt == (0 if counted else MEMORY), device.name


@pytest.mark.parametrize("where", ["h100-sxm5-80gb", "mi300x", "tpu-v6e", "knl-7250"])
def test_what_was_never_measured_has_a_wide_interval(where: str) -> None:
    """Of a step of kernels alone: e to ± 1.6449 · √(0.192² + 0.083²) at least."""
    node = replace(NODE, device=catalogue.device(where))
    bound = (1 + 1.6449 * (WIDTHS["SOFTWARE"] ** 2 + WIDTHS["STEP"] ** 2) ** 0.5) * 0.97
    for name in ("tensorflow-xla", "pytorch-ddp", "mxnet"):
        if "cuda" in (known := software(name)).launch.platforms[:1] and where != "h100-sxm5-80gb":
            continue
        found = oracle.estimate("resnet50", node, "data:1", 256, software=known, reading="none")
        assert found.seconds_high[0] / found.seconds[0] > bound, name


def test_every_device_says_its_kind() -> None:
    for node in nodes():
        device = node.device
        assert device.kind in PLATFORMS, device.name
        maker = PEOPLE.get(device.platform)
        assert maker is None or maker in device.title, device.name


@pytest.mark.parametrize("precision", ["fp8", "mxfp8", "nvfp4"])
def test_a_precision_that_a_device_lacks_was_never_measured_on_it(precision: str) -> None:
    for node in nodes():
        if precision not in node.device.peak:
            known = options_for(model("gpt2"), node, precision, software="nemo", any_plan=True)
            assert not known.software.held, node.device.name


def test_a_software_of_others_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["estimate", "llama2-7b", "mi300x-node", "--plan", "data:8,zero=1", "--batch", "8",
            "--software", "mlperf-nemo"]  # fmt: skip
    assert main(line) == 2
    errors = capsys.readouterr().err
    assert "mlperf-nemo runs on NVIDIA's GPUs alone, not on mi300x" in errors
    assert "leave `--software` out, or --any" in errors
    assert main([*line, "--any"]) == 0


def test_nobody_says_it_and_it_runs() -> None:
    """What is usual is what the device runs: of tokens on TPUs and processors too."""
    for node in nodes():
        for name in ("gpt2", "resnet50"):
            usual = options_for(model(name), node).software
            assert not usual.launch.platforms or node.device.platform in usual.launch.platforms


def test_of_several_machines_those_that_run_it_are_compared() -> None:
    more = {"batch": 64, "tokens": 1e9, "turned": False, "software": ["mlperf-nemo"]}
    found = choose("gpt2", ["dgx-h100", "mi300x-node"], "8", **more)
    assert {one.system.name for one in found.setups} == {"dgx-h100"}
    assert "mlperf-nemo runs on NVIDIA's GPUs alone, not on mi300x" in found.notes
    with pytest.raises(SpecError, match="NVIDIA's GPUs alone"):
        choose("gpt2", ["mi300x-node"], "8", **more)


def test_kinds_that_nobody_knows_are_refused() -> None:
    with pytest.raises(SpecError, match="no kind of device is called `amper`"):
        software({"name": "mine", "source": "here", "held": {"my runs": ["amper"]}})
    assert Software().held == {}


def test_volumes_on_processors_are_known_within_a_factor_of_three() -> None:
    for where in ("cori-knl", "frontera", "fugaku"):
        found = oracle.estimate("cosmoflow-128", where, "data:8", 64, precision="fp32",
                                software="mlperf-hpc-tensorflow", reading="none")  # fmt: skip
        ratio = found.seconds_high[0] / found.seconds[0]
        assert 2.7 < ratio < 3.5, where
    planes = oracle.estimate("resnet50", "cori-knl", "data:8", 64, precision="fp32", reading="none")
    assert planes.seconds_high[0] / planes.seconds[0] < 2

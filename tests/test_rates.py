"""Rates in the field's units, against the formulas of the papers that define them."""

import pytest

import oracle
from oracle.predict.defaults import USUAL, options_for
from oracle.predict.rates import counted, tokens
from oracle.show.rates import epoch


@pytest.mark.parametrize("name", ["gpt3-175b", "megatron-145.6b", "gpt2-xl"])
def test_flop_of_a_transformer_are_those_of_the_papers(name):
    """96 s l h² (1 + s/6h + V/16lh) a sample with full recomputation [narayanan2021, §3]."""
    model = oracle.model(name)
    said = model.written.spec.transformer
    h, layers, s = said.hidden, said.layers, said.sequence
    vocab = -(-said.vocab // 128) * 128
    (needed, none), (_, full) = counted(model), counted(model, 2)
    assert none == 0
    wanted = 96 * s * layers * h**2 * (1 + s / (6 * h) + vocab / (16 * layers * h))
    assert needed + full == pytest.approx(wanted, rel=0.001)


def test_rates_by_hand():
    shown = oracle.estimate("gpt3-175b", "dgx-a100", "pipeline:8,segments=64 data:16 tensor:8",
                            batch=1024, precision="bf16")  # fmt: skip
    found, seconds = shown.rates(), float(shown.seconds[0])
    assert found["samples_per_second"] == pytest.approx(1024 / seconds)
    assert found["tokens_per_second"] == pytest.approx(1024 * 2048 / seconds)
    assert found["tokens_per_second_device"] == pytest.approx(1024 * 2048 / seconds / 1024)
    flop = counted(shown.model)[0]
    assert found["mfu"] == pytest.approx(1024 * flop / seconds / 1024 / 312e12)
    hours = 1e9 / (1024 * 2048) * seconds * 1024 / 3600
    assert found["device_hours_per_billion_tokens"] == pytest.approx(hours)
    assert found["hfu"] == found["mfu"]


def test_recomputation_is_of_the_hardware_alone():
    """A whole forward pass again is a third more FLOP, none of it the network's."""
    plan = "pipeline:8,segments=64 data:16 tensor:8 recompute:full"
    found = oracle.estimate("gpt3-175b", "dgx-a100", plan, batch=1024).rates()
    assert found["hfu"] / found["mfu"] == pytest.approx(4 / 3, rel=0.01)


@pytest.mark.parametrize(("model", "count", "software"), [
    ("gpt2", 1024, "megatron-core"), ("t5-xxl", 512, "megatron-core"),
    ("mamba2-2.7b", 2048, "megatron-core"), ("nemotron-h-8b", 8192, "megatron-core"),
    ("vit-l16", 0, "megatron-core"), ("whisper-large-v3", 0, "megatron-core"),
    ("stable-diffusion-1", 0, "plain"), ("dimenet-plus-plus", 0, "plain"),
    ("dlrm-dcnv2", 0, "plain"),
])  # fmt: skip
def test_language_models_count_tokens(model, count, software, monkeypatch):
    """Of T5 those of its encoder; text that a picture is made from is none that is trained on."""
    monkeypatch.setitem(USUAL, "tokens", "megatron-core")
    opened = oracle.model(model)
    assert tokens(opened) == count
    assert options_for(opened, oracle.system("dgx-a100")).software.name == software


def test_pictures_have_no_tokens():
    found = oracle.estimate("resnet50", "abci", "data:8", batch=256).rates()
    assert found["tokens_per_second"] is found["device_hours_per_billion_tokens"] is None
    hours = 1281167 / found["samples_per_second"] * 8 / 3600
    assert found["device_hours_per_epoch"] == pytest.approx(hours)
    assert counted(oracle.model("resnet50"))[0] == pytest.approx(oracle.model("resnet50").flop)


def test_convolutions_of_fp32_run_as_tf32_where_a_library_may():
    """cuDNN's default since Ampere; products only where a framework says so."""

    def asked(model, system, precision, said):
        found = oracle.estimate(model, system, "data:8", 256, precision=precision, software=said)
        return float(found.seconds[0]), found.computed_in(found.system.device)

    ddp, tf = "pytorch-ddp", "horovod-tensorflow"
    off = f"{ddp},tf32=none"
    # a network of convolutions, nine tenths of whose FLOP are theirs
    with_it, own = asked("resnet50", "dgx-a100", "fp32", ddp)
    without, plain = asked("resnet50", "dgx-a100", "fp32", off)
    told, named = asked("resnet50", "dgx-a100", "tf32", ddp)
    assert (own, plain, named) == ("tf32", "fp32", "tf32")
    assert told <= with_it < 0.7 * without
    # of one of products the first convolution alone, unless the framework lets all be
    assert asked("vit-l16", "dgx-a100", "fp32", ddp)[1] == "fp32"
    few, most = (asked("vit-l16", "dgx-a100", "fp32", said)[0] for said in (ddp, tf))
    assert most < 0.5 * few
    # no device before Ampere has such units
    assert asked("resnet50", "abci", "fp32", ddp) == asked("resnet50", "abci", "fp32", off)


def test_mfu_is_of_the_units_that_most_flop_run_on():
    found = oracle.estimate("vgg16", "dgx-h100", "data:8", 256, precision="fp32")
    assert found.rates()["mfu"] == pytest.approx(found.rates()["flops_per_device"] / 494.7e12)
    assert found.to_dict()["computed_in"] == "tf32"
    ideal = oracle.estimate("vgg16", "dgx-h100", "data:8", 256, precision="fp32", ideal=True)
    assert ideal.to_dict()["computed_in"] == "fp32"


def test_more_than_the_peak_says_why(capsys):
    """Products of a 3×3 window are counted plainly, and Winograd's tiles make fewer."""
    from oracle.commands.cli import main

    for system, said in (("abci", True), ("dgx-a100", False)):
        assert main(["estimate", "vgg16", system, "--plan", "data:4", "--batch", "256"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert ("Winograd's tiles multiply less" in text) == said


def test_money_stands_beside_the_hours_where_devices_have_a_price():
    """What a device costs an hour times the device-hours that the same line says."""
    priced = oracle.estimate("llama2-7b", "dgx-h100,price=2 USD/h", "data:64,zero=1", batch=64)
    hours = priced.rates()["device_hours_per_billion_tokens"]
    assert hours * 2 > 10
    assert f" and {hours * 2:,.0f} USD a billion tokens" in epoch(priced, 0)
    cheap = oracle.estimate("resnet50", "abci,price=1 USD/h", "data:8", batch=256)
    assert f" and {cheap.rates()['device_hours_per_epoch']:.2f} USD an epoch" in epoch(cheap, 0)
    for model, what in (("llama2-7b", "a billion tokens"), ("resnet50", "an epoch")):
        said = epoch(oracle.estimate(model, "frontera", "data:64,zero=3", batch=64), 0)
        assert said.endswith(f" {what}")
        assert "USD" not in said

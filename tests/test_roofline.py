"""The extended roofline: amounts by hand, roofs that hold, and what the command says."""

import json

import pytest

import oracle
from oracle.ask.explain.roofline import ROOFS, roofline
from oracle.commands.cli import main

B, C, F = 64, 1024, 4096
DENSE = {
    "name": "dense", "source": "made up", "input": [C],
    "layers": [{"dense": {"filters": F, "bias": False}}, {"dense": {"filters": C, "bias": False}}],
}  # fmt: skip


def roofed(model, system, plan, batch):
    return roofline(oracle.estimate(model, system, plan, batch=batch))


def test_a_dense_layer_by_hand():
    """Forward, gradient of the input and of the weights: 2BCF each, operands once each time."""
    found = roofed(DENSE, "abci", "serial", B)
    first, second = sorted(found.each, key=lambda one: one.shape != f"{C} → {F}")
    moved = 4 * (B * C + B * F + C * F)
    assert second.amounts["compute"] == pytest.approx(3 * 2 * B * C * F)
    assert second.amounts["memory"] == pytest.approx(3 * moved)
    # nobody wants the gradient of the samples
    assert first.amounts["compute"] == pytest.approx(2 * 2 * B * C * F)
    assert first.amounts["memory"] == pytest.approx(2 * moved)
    assert second.roofs["compute"] == pytest.approx(3 * 2 * B * C * F / 15.7e12)
    assert second.roofs["memory"] == pytest.approx(3 * moved / 900e9)
    assert second.binds == "compute"
    assert found.step.amounts["compute"] == pytest.approx(5 * 2 * B * C * F)


def test_gradients_by_hand():
    """A ring sends 2(p - 1)/p of all gradients, 4 bytes each."""
    found = roofed(DENSE, "abci", "data:4", B)
    sent = 2 * 3 / 4 * 4 * 2 * C * F
    assert found.step.amounts["network"] == pytest.approx(sent)
    assert sum(one.amounts["network"] for one in found.each) == pytest.approx(sent)
    assert found.step.roofs["network"] > 0


@pytest.mark.parametrize(("model", "system", "plan", "batch"), [
    ("resnet50", "abci", "data:16", 512), ("gpt2", "dgx-a100", "data:2 tensor:4", 64),
    ("gpt2", "dgx-a100", "pipeline:4,segments=8 data:2", 64),
    ("resnet50", "summit", "data:4 filter:4", 256), ("cosmoflow-128", "abci", "spatial:4", 8),
])  # fmt: skip
def test_work_adds_up_and_no_roof_is_broken(model, system, plan, batch):
    """All devices together do the network's FLOP; no step is faster than its highest roof."""
    shown = oracle.estimate(model, system, plan, batch=batch)
    found = roofline(shown)
    if "pipeline" not in plan:  # whose slowest stage is shown
        share = found.step.amounts["compute"] * shown.devices[0] / (shown.model.flop * batch)
        assert 0.9 < share < 1.35  # samples want no gradient; some layers are done whole
    assert found.step.share <= 1
    assert set(found.step.roofs) == set(ROOFS)
    rows = [one for one in found.each if one.kind != "conv"]
    assert all(one.share <= 1 + 1e-9 for one in rows), "only convolutions save products"
    assert sum(one.seconds for one in found.each) <= shown.seconds[0] * (1 + 1e-9)


@pytest.mark.slow
def test_command_line(capsys):
    asked = ["explain", "--plan", "data:16", "resnet50", "abci", "--batch", "512", "--roofline"]
    assert main(asked) == 0
    assert capsys.readouterr().out.startswith("compute binds the step")
    assert main([*asked, "--json"]) == 0
    step, *rows = json.loads(capsys.readouterr().out)["roofline"]
    assert step["binds"] == max(step["roofs"], key=step["roofs"].get)
    assert rows == sorted(rows, key=lambda one: -one["seconds"])
    assert main([*asked, "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("plan,name,kind,shape,count,seconds")


def test_a_plan_of_a_ranking_has_the_roofs_that_it_has_alone():
    shown = oracle.recommend("gpt2", "dgx-a100", 16, batch=64, top=4).estimate
    for row, plan in enumerate(shown.plans):
        alone = roofline(oracle.estimate("gpt2", "dgx-a100", plan, 64))
        assert roofline(shown, row).step.roofs == pytest.approx(alone.step.roofs)

"""Mixtures of experts equal a dense program: every token through every expert, by its share."""

import pytest
from equality_cases import network

pytest.importorskip("torch")

import torch

from oracle.executor.local.batch import inputs
from oracle.executor.local.graph import graph
from oracle.executor.local.local_model import LocalModel
from oracle.executor.messages.mesh import DeviceMesh
from oracle.executor.messages.wire import Wire
from oracle.executor.passes.experts import choice
from oracle.executor.steps.optimizer import Optimizer
from oracle.executor.steps.trainer import Trainer
from oracle.models.layers import Moe
from oracle.plan.plan import parse

BATCH, TOKENS, HIDDEN = 3, 5, 8
KINDS = {
    "gated": {"experts": 4, "ffn": 6, "active": 2},
    "one of three, biased": {"experts": 3, "ffn": 6, "active": 1, "gated": False, "bias": True},
    "shared": {"experts": 4, "ffn": 6, "active": 3, "shared": 2},
    "groups": {"experts": 6, "ffn": 4, "active": 2, "groups": 3, "reach": 1, "gated": False},
}


def dense(weights, layer, x):
    """Shares of all experts, zero but for the chosen; loops over experts, sends nothing."""
    function = torch.nn.functional.silu if layer.gated else torch.nn.functional.gelu

    def mlp(x, up, down, up_bias=None, down_bias=None):
        inner = torch.nn.functional.linear(x, up, up_bias)
        if layer.gated:
            gate, value = inner.chunk(2, -1)
            inner = function(gate) * value
        else:
            inner = function(inner)
        return torch.nn.functional.linear(inner, down, down_bias)

    logits = torch.nn.functional.linear(x, weights["router"], weights.get("router bias"))
    allowed = torch.zeros_like(logits, dtype=torch.bool)
    for at in torch.cartesian_prod(torch.arange(BATCH), torch.arange(TOKENS)):
        row = logits[tuple(at)].tolist()
        groups = layer.groups or 1
        each = layer.experts // groups
        best = sorted(range(groups), key=lambda g: -max(row[g * each : (g + 1) * each]))
        best = best[: layer.reach or groups]
        open_ = [e for e in range(layer.experts) if e // each in best]
        for expert in sorted(open_, key=lambda e: -row[e])[: layer.active]:
            allowed[tuple(at)][expert] = True
    shares = logits.masked_fill(~allowed, -torch.inf).softmax(-1)
    total = 0
    for expert in range(layer.experts):
        parts = (weights[f"{part}{bias}"][expert] if f"{part}{bias}" in weights else None
                 for bias in ("", " bias") for part in ("up", "down"))  # fmt: skip
        total = total + shares[..., expert, None] * mlp(x, *parts)
    if layer.shared:
        total = total + mlp(x, weights["shared.up"], weights["shared.down"])
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_a_mixture_is_every_expert_by_its_share(kind):
    said = KINDS[kind]
    spec = network("mixed", [1, TOKENS], [
        {"embedding": {"vocab": 12, "hidden": HIDDEN}}, {"moe": {"name": "mix", **said}},
        {"dense": 12}, "loss",
    ])  # fmt: skip
    layers = graph(spec)
    local = LocalModel(layers, parse("serial", BATCH), Wire(DeviceMesh(parse("serial", 1), 0, 1)),
                       dtype=torch.float64, seed=3)  # fmt: skip
    plain = {
        held.op.shape.name.removeprefix("mix.") + " bias" * (held.name == "bias"):
        held.value.detach().clone().requires_grad_() for held in local.held_weights
    }  # fmt: skip
    x, target = inputs(layers, BATCH, 0, torch.float64)
    loss = float(Trainer(local, Optimizer("sgd", 0.0)).step(x, target))
    layer = next(op.layer for op in layers.operations if isinstance(op.layer, Moe))
    made = dense(plain, layer, plain["embedding"][x])
    logits = torch.nn.functional.linear(made, plain["dense"], plain["dense bias"])
    wanted = torch.nn.functional.cross_entropy(logits.movedim(-1, 1), target)
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-12)
    for held, own in zip(local.held_weights, plain.values(), strict=True):
        assert torch.allclose(held.value.grad, own.grad, rtol=1e-9, atol=1e-12), held.op.label


def test_experts_are_chosen_by_hand():
    """Of four experts in two groups the second group has the largest logit."""
    logits = torch.tensor([[3.0, 2.0, 0.0, 4.0]])
    assert choice(logits, Moe(4, 1, 2)).tolist() == [[3, 0]]
    assert choice(logits, Moe(4, 1, 2, groups=2, reach=1)).tolist() == [[3, 2]]


def test_even_turns_give_all_experts_as_many():
    """6 tokens of 3 samples, two experts each, of 4: 9 copies each."""
    spec = network("mixed", [1, 6], [
        {"embedding": {"vocab": 12, "hidden": 8}}, {"moe": {"experts": 4, "ffn": 4}},
        {"dense": 12}, "loss",
    ])  # fmt: skip
    layers, counts = graph(spec), []
    local = LocalModel(layers, parse("serial", 3), Wire(DeviceMesh(parse("serial", 1), 0, 1)),
                       routing="even")  # fmt: skip

    class Watch(dict):
        def __setitem__(self, at, found):
            counts.append(found.counts)
            super().__setitem__(at, found)

    local.routings = Watch()
    Trainer(local, Optimizer("sgd", 0.0)).step(*inputs(layers, 3, 0, torch.float32))
    assert counts == [[9, 9, 9, 9]]

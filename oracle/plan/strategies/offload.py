"""Offload: what a device has no room for lies in its host's memory, or on the node's disks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from oracle.models import masks
from oracle.models.model import Model
from oracle.models.shard import Array, Numbers, Shard
from oracle.network.collectives import Message
from oracle.plan.strategies.base import Rule, Strategy, count, words

AWAY = ("nothing", "optimizer", "weights+optimizer", "activations", "activations+optimizer",
        "activations+weights+optimizer")  # fmt: skip
PLACES = ("host", "disk")
FAULTS = 0.3  # of a link's bandwidth, what is left where page faults move each page: assumed
ADDED = 12.0  # bytes that adding up moves for a gradient: both are read, their fp32 sum is written


@dataclass(frozen=True)
class Offload(Strategy):
    """Keep the optimizer's state beside the device, the weights too, and update them there.

        T_comm = S |w|/p δ/β' + |w|/p δ/β'    gradients out, new weights back
               + 2 S |w|/p δ/β'               weights: in for either pass
        T_comp = 28 |w|/p / β_host            the update, at the host's memory
        M      = 2 |w| + B Σ |kept|           of weights that are away, one unit

    β' is the device's own link to its host, of which devices on one port have each a share;
    gradients go out as the backward pass makes them. `update=device` brings the state in and
    sends it back instead. `delayed=on` updates while the next iteration runs, with gradients
    that are one step old. `update=blocks` updates each block once its gradients are there, while
    those before it run back, and brings its weights beside the next forward pass [wahib2020].

    Of activations those that the device has no room for go out in the forward pass and come in
    again in the backward one, `prefetch` units ahead, or as many as there is room for. With
    `how=managed` pages move when they are touched, at a share of the link and beside no work.
    """

    what: Array = words(*AWAY)
    to: Array = words(*PLACES)
    update: Array = words("host", "device", "blocks")
    delayed: Array = words("off", "on")
    how: Array = words("pinned", "managed")
    prefetch: Array = count(0)

    source = "ren2021, §4; rajbhandari2021, §4-5; wahib2020"
    nearness = 10
    bound = ""
    limited_by = ("host link", "host memory: the update")
    multiplies = False
    degrees = False
    resort = True
    runs = ("what", "to", "update=host", "update=device", "delayed", "prefetch", "how=pinned")
    state_knobs = ("what", "to", "update", "delayed", "how", "prefetch")

    def limit(self, model: Model, batch: Array) -> Array | float:
        return np.inf

    @classmethod
    def tries(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """Places; an update that comes a step late, or on the device, is for the user to choose."""
        values = super().tries(model)
        return {"what": values["what"][: AWAY.index("activations")], "to": values["to"]}

    @classmethod
    def resorts(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """Activations too, whose units are chosen for each plan."""
        return {"what": super().tries(model)["what"][AWAY.index("activations") :]}

    @classmethod
    def spares(cls, model: Model) -> dict[str, float]:
        return {"what": cls.number("what", "weights+optimizer")}

    def rules(self, model: Model, batch: Array, axes: Mapping[str, Any]) -> Iterator[Rule]:
        """Knobs must have something to be of."""
        turned = (np.asarray(self.to) + self.update + self.delayed + self.how + self.prefetch) > 0
        idle = self.says("what", "nothing") & turned
        yield Rule.never(idle, "offload: nothing is said to lie beside the device")
        device = ~self.says("update", "host") & self.says("delayed", "on")
        yield Rule.never(
            device, "offload: an update on the device, or by blocks, cannot be delayed"
        )
        activations = self.of("activations")
        kinds = self.says("how", "managed") | (np.asarray(self.prefetch) > 0)
        yield Rule.never(
            kinds & ~activations,
            "offload: `how` and `prefetch` are of activations, which stay here",
        )
        alone = self.says("what", "activations") & ((np.asarray(self.update) + self.delayed) > 0)
        yield Rule.never(alone, "offload: with activations away nothing is updated elsewhere")
        every_word = axes["recompute"].says("mode", "stage") & activations
        yield Rule.never(
            every_word, "offload: of a stage that keeps its input alone nothing is left"
        )
        if model.training.forward:
            state = self.of("optimizer") & ~self.of("weights")
            yield Rule.never(state, "offload: a forward pass has no optimizer")
            yield Rule.never(activations, "offload: a forward pass keeps no activations")

    def of(self, part: str) -> Array:
        """Where this is among what lies beside the device."""
        return np.asarray(np.isin(self.what, [i for i, all_ in enumerate(AWAY)
                                              if part in all_.split("+")]))  # fmt: skip

    def split(self, shard: Shard) -> Shard:
        if shard.ideal:  # which knows nothing of hosts
            return shard
        parts = ("weights", "optimizer", "activations")
        weights, state, activations = (1.0 * self.of(part) for part in parts)
        updated = state * ~self.says("update", "device")
        disk = np.maximum(state, activations) * self.says("to", "disk")
        return shard.but(weights_away=weights, state_away=state, updated_away=updated,
                         on_disk=disk, activations_away=activations)  # fmt: skip

    def talk(self, shard: Shard) -> list[Message]:
        """Copies over the device's own link; what lies on disk is read and written too.

        Of activations, what each row keeps of a sample: which of them leave is for the room to say.
        """
        away, weights = np.asarray(shard.state_away), np.asarray(shard.weights_away)
        copies: list[Message] = []
        if (gone := np.asarray(shard.activations_away)).any():
            copies += [
                Message(f"activations {way}{place}", "copy", shard.kept_sample, (),
                        gone * lies_away, f"unit {when}", when, over=over, chosen=True)
                for over, place, lies_away in (("host", "", 1 - 1.0 * np.asarray(shard.on_disk)),
                                           ("disk", ", disk", 1.0 * np.asarray(shard.on_disk)))
                for way, when in (("out", "forward"), ("in", "backward"))
            ]  # fmt: skip
        if not away.any():
            return copies
        lies_away, disk = np.asarray(shard.updated_away), shard.on_disk * away
        off, blocks = self.says("delayed", "off"), self.says("update", "blocks")
        several = np.where(np.asarray(shard.segments) > 1, 1.0, 0.0)
        experts = masks.experts(shard.model)
        host = shard.software.offload.sums == "host"
        for prefix, rows, width in (("", ~experts, 0), ("expert ", experts, -1)):
            if not rows.any():
                continue
            own_bytes, kept_bytes = (
                _column(bytes_each, width) for bytes_each in (shard.stated, shard.stored)
            )
            new, used = shard.learned * rows, shard.w * rows * shard.gathered
            # the fp32 weight and what is kept of it are read and written, its gradient is read
            state = new * shard.beside
            moved = 2 * state + 4 * new
            once = partial(_copy, prefix, "step", "", own_bytes)
            back = partial(_copy, prefix, "unit backward", "backward", own_bytes)
            remade_mode = partial(_copy, prefix, "unit backward", "backward", kept_bytes)
            ahead = partial(_copy, prefix, "unit forward", "forward", kept_bytes)
            late = partial(_copy, prefix, "step", "backward", own_bytes)
            next_ = partial(_copy, prefix, "step", "forward", own_bytes)
            copies += [
                back("gradients out", "host", new * shard.wire, lies_away * host),
                once("gradients out at the end", "host", new * shard.summed,
                     lies_away * (not host)),
                back("gradients added up on the host", "host memory", ADDED * new,
                     lies_away * several * host),
                once("update on the host", "host memory", moved, lies_away * off * ~blocks),
                late("update on the host, by blocks", "host memory", moved, lies_away * blocks),
                late("update on the host, delayed", "host memory", moved, lies_away * ~off),
                once("weights back", "host", new * shard.gathered,
                     lies_away * (1 - weights) * ~blocks),
                next_("weights back, by blocks", "host", new * shard.gathered,
                      lies_away * (1 - weights) * blocks),
                once("state in", "host", state, away - lies_away),
                ahead("weights in", "host", used, weights),
                remade_mode("weights in again", "host", used, weights),
                once("state from disk and back", "disk", 2 * state, disk),
                ahead("weights from disk", "disk", used, disk * weights),
                remade_mode("weights from disk again", "disk", used, disk * weights),
            ]  # fmt: skip
        return copies


def _column(share: Numbers, number: int) -> Numbers:
    """A share of the state of experts, or of all else: (plans, 1)."""
    share = np.asarray(share)
    return share[:, [number]] if share.ndim > 1 else share


def _copy(
    prefix: str, when: str, hides: str, share: Numbers, words: str, over: str, nbytes: Array,
    calls: Array,
) -> Message:  # fmt: skip
    return Message(prefix + words, "copy", nbytes, (), calls, when, hides, share=share, over=over)

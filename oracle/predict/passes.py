"""The passes of a micro-batch on each stage: work and messages, beside what the host launches.

It names `recompute`, which says what a pass back runs again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.models.shard import Array
from oracle.plan.strategies.recompute import NONE, STAGE, Recompute
from oracle.predict.exchange import Priced
from oracle.predict.overlap import OTHER, longer, longer_by, together
from oracle.predict.stage_work import StageWork, made_again, repeated


@dataclass(frozen=True)
class StageMessages:
    """Exposed seconds of each stage's messages by when they are sent, and the host's: (u, p)."""

    forward: Array
    backward: Array
    again: Array  # of those of the forward pass, what recomputation sends once more
    input: Array  # of those backward, beside the gradient of the input alone
    after: dict[int, Array]  # by the kind of recomputation that they hide beside
    border: Array  # ideally each crossing; else receive time before a backward pass
    ahead: Array  # receive time before a forward pass
    # seconds to launch those of either pass, and those that recomputation sends once more
    host: tuple[Array, Array, Array]
    whole: Array  # of those of the forward pass, what a stage that runs it again sends once more


def messages_of(talk: list[Priced], work: StageWork) -> StageMessages:
    """What all messages come to on each stage."""
    shape = work.forward.shape
    exposed = {when: np.zeros(shape) for when in ("forward", "backward", "border")}
    host = {when: np.zeros(shape) for when in ("forward", "backward", "again")}
    sent_whole, ahead, later = (
        np.zeros(shape),
        np.zeros(shape),
        {when: np.zeros(shape) for when in OTHER},
    )
    after = {kind: np.zeros(shape) for kind in (NONE, *work.recomputed)}
    for message in talk:
        when = message.when
        if when in exposed:
            exposed[when] = exposed[when] + message.exposed - message.ahead
        ahead = ahead + message.ahead
        repeated = when == "forward" and not message.stays
        for place in (when, "again") if repeated else (when,):
            if place in host:
                host[place] = host[place] + message.host
        if repeated:
            sent_whole = sent_whole + message.exposed
        if when in later and not message.stays:
            later[when] = later[when] + message.left(OTHER[when])
        if when == "step":
            after = {kind: place + message.left(longer_by(kind)) for kind, place in after.items()}
    return StageMessages(
        exposed["forward"], exposed["backward"], later["forward"], later["backward"], after,
        exposed["border"], ahead, (host["forward"], host["backward"], host["again"]), sent_whole,
    )  # fmt: skip


@dataclass(frozen=True)
class StagePasses:
    """Seconds of either pass of a micro-batch on each stage, through all its chunks.

    Plans that recompute alike have the same passes: r of them are distinct, (r, p) each.
    """

    row: Array  # (n,) which of them each plan has
    forward: Array
    backward: Array
    input: Array  # of the backward pass where it is in two parts, the gradient of the input
    weight: Array  # and that of the weights, under which no message hides
    forward_messages: Array  # of it, what messages take that nothing hides
    backward_messages: Array
    input_messages: Array
    recomputed: Array  # of the backward pass
    forward_host: Array  # what the host needs to launch it, beside the device
    backward_host: Array
    crossed: Array  # what messages at borders make both passes longer

    @property
    def lead(self) -> Array:
        """(n, p) share of a pass forward that the host launched before the device ran it."""
        kernels = self.forward - self.forward_messages
        launched = np.divide(self.forward_host, kernels, out=np.ones_like(kernels),
                             where=kernels > 0)  # fmt: skip
        return np.asarray(np.clip(1 - launched, 0.0, 1.0)[self.row])

    def kinds(self, row: Array) -> dict[str, Array]:
        """By the kind of turn; a backward pass is taken whole or in its two parts."""
        return {"forward": self.forward[row], "backward": self.backward[row],
                "input": self.input[row], "weight": self.weight[row]}  # fmt: skip


def passes_of(
    recompute: Recompute, same: Array, work: StageWork, sent: StageMessages, ideal: bool
) -> StagePasses:
    """Work and messages of a pass, beside its host.

    A pass is a mix of short kernels, for which the device waits for the host, and long ones,
    under which the host runs ahead: neither hides wholly under the other. Recomputation and
    messages belong to the gradient of the input.
    """
    size = len(work.segments)
    mode_and_shard = recompute.mode[:, 0].astype(int) * size + same
    used = np.zeros(mode_and_shard.max() + 1, bool)
    used[mode_and_shard] = True
    pairs, row = np.flatnonzero(used), (np.cumsum(used) - 1)[mode_and_shard]
    kind, same = (pairs // size)[:, None], pairs % size
    remade_seconds = np.zeros_like(work.forward[same]) + made_again(kind, work.recomputed, same)
    ahead, border = sent.ahead[same], (0.0 if ideal else sent.border[same])
    back, input_messages = sent.backward[same] + border, sent.input[same] + border
    host_ahead, host = (
        (own_host + message_host)[same]
        for own_host, message_host in zip(work.host, sent.host[:2], strict=True)
    )
    host = host + made_again(kind, work.host_recomputed, same)
    if not ideal:  # a full recomputation sends everything again but weights that are there
        part = repeated(kind, work, same)
        once_more = np.where(kind == STAGE, sent.whole[same], part * sent.again[same])
        back, input_messages = back + once_more, input_messages + once_more
        host = host + part * sent.host[2][same]
    weight, late = work.weight[same], work.host_weight[same]
    crossed = longer(work.forward[same] + sent.forward[same], ahead, host_ahead)
    crossed = crossed + longer(
        work.backward[same] + remade_seconds + back - border, 0 * back + border, host
    )
    return StagePasses(
        row, together(work.forward[same] + sent.forward[same] + ahead, host_ahead),
        together(work.backward[same] + remade_seconds + back, host),
        together(work.backward[same] - weight + remade_seconds + input_messages, host - late),
        together(weight, late), sent.forward[same] + ahead, back, input_messages, remade_seconds,
        host_ahead, host, crossed,
    )  # fmt: skip

"""Sums of the largest entries of each rank's vector, by the algorithms of sparse allreduce.

Each returns the sum on every rank, and the entries of the own vector that are in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from oracle.executor.agreement.links import Links
from oracle.executor.local.parts import deal
from oracle.executor.messages.calls import gather

Entries: TypeAlias = tuple[Tensor, Tensor]  # places (int64), values
PLACE = 4  # bytes of a place in a message


def largest(vector: Tensor, count: int) -> Entries:
    """The entries of the largest magnitudes."""
    places = torch.topk(vector.abs(), min(count, vector.numel())).indices
    return places, vector[places]


def packed(entries: Entries) -> Tensor:
    """Entries as bytes: values, then places of 32 bits."""
    places, values = entries
    return torch.cat([values.contiguous().view(torch.uint8).flatten(),
                      places.to(torch.int32).view(torch.uint8).flatten()])  # fmt: skip


def unpacked(raw: Tensor, like: Tensor) -> Entries:
    """The entries that were packed into these bytes."""
    width = like.element_size()
    count = raw.numel() // (width + PLACE)
    values = raw[: count * width].clone().view(like.dtype)
    return raw[count * width :].clone().view(torch.int32).long(), values


def dense(entries: Entries, like: Tensor) -> Tensor:
    """A vector that has these entries alone."""
    places, values = entries
    return torch.zeros_like(like).index_add_(0, places, values)


def by_allgather(vector: Tensor, count: int, links: Links) -> tuple[Tensor, Entries]:
    """Sum everybody's largest entries after an allgather of them."""
    entries = largest(vector, count)
    raw, group = packed(entries), links.group
    gathered = raw.new_empty(group.size * raw.numel())
    gather(gathered, raw, group.handle)
    links.sent += raw.numel() * (group.size - 1)
    links.heard += raw.numel() * (group.size - 1)
    total = torch.zeros_like(vector)
    for part in gathered.view(group.size, -1):
        total += dense(unpacked(part, vector), vector)
    return total, entries


def by_pairwise(vector: Tensor, count: int, links: Links) -> tuple[Tensor, Entries]:
    """Sum everybody's largest entries, swapped with one rank after the other."""
    entries = largest(vector, count)
    raw, place = packed(entries), links.group.place
    total = dense(entries, vector)
    for k in range(1, links.group.size):
        received = links.swap(raw, place + k, torch.empty_like(raw), place - k)
        total += dense(unpacked(received, vector), vector)
    return total, entries


def by_tree(vector: Tensor, count: int, links: Links) -> tuple[Tensor, Entries]:
    """Sum entries up a binomial tree, keeping the largest of each sum, and send them down again."""
    entries = largest(vector, count)
    place, size = links.group.place, links.group.size
    sums, mask, raw = dense(entries, vector), 1, packed(entries)
    while mask < size:
        if place & mask:
            links.send(packed(largest(sums, count)), place - mask)
            break
        if place + mask < size:
            received = links.hear(torch.empty_like(raw), place + mask)
            sums = dense(largest(sums + dense(unpacked(received, vector), vector), count), vector)
        mask *= 2
    top = links.hear(torch.empty_like(raw), place - mask) if place else None
    raw = packed(largest(sums, count)) if top is None else top
    mask = mask // 2 if place else _half(size)
    while mask:
        if place + mask < size and not place & (2 * mask - 1):
            links.send(raw, place + mask)
        mask //= 2
    places, values = unpacked(raw, vector)
    return dense((places, values), vector), _entries_in(entries, places)


def _half(size: int) -> int:
    """The first mask of a broadcast from the root."""
    mask = 1
    while mask < size:
        mask *= 2
    return mask // 2


def _entries_in(entries: Entries, places: Tensor) -> Entries:
    """The entries at places that everybody kept."""
    common = torch.isin(entries[0], places)
    return entries[0][common], entries[1][common]


def by_split(vector: Tensor, count: int, links: Links) -> tuple[Tensor, Entries]:
    """Sum each region's entries on its rank, then send its largest sums to all."""
    entries = largest(vector, count)
    place, size = links.group.place, links.group.size
    regions = deal(vector.numel(), size)
    begin, end = regions[place]
    sums = dense(entries, vector)[begin:end].clone()
    for k in range(1, size):
        a, b = regions[(place + k) % size]
        inside = (entries[0] >= a) & (entries[0] < b)
        going = packed((entries[0][inside] - a, entries[1][inside]))
        received = links.swap_any(going, place + k, place - k)
        sums += dense(unpacked(received, vector), sums)
    per_region = -(-count // size)
    places, values = largest(sums, per_region)
    pad = per_region - len(places)
    raw = packed((torch.cat([places + begin, places.new_zeros(pad)]),
                  torch.cat([values, values.new_zeros(pad)])))  # fmt: skip
    gathered = raw.new_empty(size * raw.numel())
    gather(gathered, raw, links.group.handle)
    links.sent += raw.numel() * (size - 1)
    links.heard += raw.numel() * (size - 1)
    all_of = [unpacked(part, vector) for part in gathered.view(size, -1)]
    chosen = torch.cat([places for places, _ in all_of]), torch.cat([v for _, v in all_of])
    return dense(chosen, vector), _entries_in(entries, chosen[0])


def by_switching(vector: Tensor, count: int, links: Links) -> tuple[Tensor, Entries]:
    """Sum shares round a ring, each sent as entries while that is shorter, else dense."""
    entries = largest(vector, count)
    place, size = links.group.place, links.group.size
    total = dense(entries, vector)
    shares = deal(vector.numel(), size)
    for step in range(2 * (size - 1)):
        adds = step < size - 1
        out, into = (place - step) % size, (place - step - 1) % size
        a, b = shares[out]
        c, d = shares[into]
        received = links.swap_any(_shorter(total[a:b]), place + 1, place - 1)
        is_dense = received.numel() == (d - c) * vector.element_size()
        if is_dense:
            part = received.view(vector.dtype)
        else:
            part = dense(unpacked(received, vector), total[c:d])
        total[c:d] = total[c:d] + part if adds else part
    return total, entries


def _shorter(share: Tensor) -> Tensor:
    """A share as bytes, whichever way is shorter."""
    places = share.nonzero().flatten()
    width = share.element_size()
    if len(places) * (width + PLACE) < share.numel() * width:
        return packed((places, share[places]))
    return share.contiguous().view(torch.uint8).flatten()


WAYS: dict[str, Callable[[Tensor, int, Links], tuple[Tensor, Entries]]] = {
    "allgather": by_allgather, "pairwise": by_pairwise, "switching": by_switching,
    "gtopk": by_tree, "oktopk": by_split,
}  # fmt: skip

"""Sums of the largest entries of each rank's vector, by the algorithms of sparse allreduce.

Each returns the sum on every rank, and the entries of the own vector that are in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from oracle.executor.agreement.links import Links
from oracle.executor.calls import gather
from oracle.executor.parts import deal

Entries: TypeAlias = tuple[Tensor, Tensor]  # places (int64), values
PLACE = 4  # bytes of a place on its way


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
    """The same again."""
    each = like.element_size()
    count = raw.numel() // (each + PLACE)
    values = raw[: count * each].clone().view(like.dtype)
    return raw[count * each :].clone().view(torch.int32).long(), values


def dense(entries: Entries, like: Tensor) -> Tensor:
    """A vector that has these entries alone."""
    places, values = entries
    return torch.zeros_like(like).index_add_(0, places, values)


def by_allgather(vector: Tensor, count: int, links: Links) -> tuple[Tensor, Entries]:
    """Everybody's entries to everybody."""
    own = largest(vector, count)
    raw, group = packed(own), links.group
    whole = raw.new_empty(group.size * raw.numel())
    gather(whole, raw, group.handle)
    links.sent += raw.numel() * (group.size - 1)
    links.heard += raw.numel() * (group.size - 1)
    found = torch.zeros_like(vector)
    for part in whole.view(group.size, -1):
        found += dense(unpacked(part, vector), vector)
    return found, own


def by_pairwise(vector: Tensor, count: int, links: Links) -> tuple[Tensor, Entries]:
    """The same, swapped with one after the other."""
    own = largest(vector, count)
    raw, place = packed(own), links.group.place
    found = dense(own, vector)
    for k in range(1, links.group.size):
        heard = links.swap(raw, place + k, torch.empty_like(raw), place - k)
        found += dense(unpacked(heard, vector), vector)
    return found, own


def by_tree(vector: Tensor, count: int, links: Links) -> tuple[Tensor, Entries]:
    """Up a binomial tree, where the largest of each sum are kept, and down again."""
    own = largest(vector, count)
    place, size = links.group.place, links.group.size
    mine, mask, raw = dense(own, vector), 1, packed(own)
    while mask < size:
        if place & mask:
            links.send(packed(largest(mine, count)), place - mask)
            break
        if place + mask < size:
            heard = links.hear(torch.empty_like(raw), place + mask)
            mine = dense(largest(mine + dense(unpacked(heard, vector), vector), count), vector)
        mask *= 2
    top = links.hear(torch.empty_like(raw), place - mask) if place else None
    raw = packed(largest(mine, count)) if top is None else top
    mask = mask // 2 if place else _half(size)
    while mask:
        if place + mask < size and not place & (2 * mask - 1):
            links.send(raw, place + mask)
        mask //= 2
    places, values = unpacked(raw, vector)
    return dense((places, values), vector), _kept(own, places)


def _half(size: int) -> int:
    """The first mask of a broadcast from the root."""
    mask = 1
    while mask < size:
        mask *= 2
    return mask // 2


def _kept(own: Entries, places: Tensor) -> Entries:
    """The own entries that everybody kept."""
    there = torch.isin(own[0], places)
    return own[0][there], own[1][there]


def by_split(vector: Tensor, count: int, links: Links) -> tuple[Tensor, Entries]:
    """Each region's entries to its rank; of its sums the largest, as many of each, to all."""
    own = largest(vector, count)
    place, size = links.group.place, links.group.size
    regions = deal(vector.numel(), size)
    begin, end = regions[place]
    mine = dense(own, vector)[begin:end].clone()
    for k in range(1, size):
        a, b = regions[(place + k) % size]
        inside = (own[0] >= a) & (own[0] < b)
        heard = links.swap_any(packed((own[0][inside] - a, own[1][inside])), place + k, place - k)
        mine += dense(unpacked(heard, vector), mine)
    each = -(-count // size)
    places, values = largest(mine, each)
    pad = each - len(places)
    raw = packed((torch.cat([places + begin, places.new_zeros(pad)]),
                  torch.cat([values, values.new_zeros(pad)])))  # fmt: skip
    whole = raw.new_empty(size * raw.numel())
    gather(whole, raw, links.group.handle)
    links.sent += raw.numel() * (size - 1)
    links.heard += raw.numel() * (size - 1)
    all_of = [unpacked(part, vector) for part in whole.view(size, -1)]
    chosen = torch.cat([places for places, _ in all_of]), torch.cat([v for _, v in all_of])
    return dense(chosen, vector), _kept(own, chosen[0])


def by_switching(vector: Tensor, count: int, links: Links) -> tuple[Tensor, Entries]:
    """A ring of shares, each sent as entries while that is shorter, else whole."""
    own = largest(vector, count)
    place, size = links.group.place, links.group.size
    found = dense(own, vector)
    shares = deal(vector.numel(), size)
    for step in range(2 * (size - 1)):
        adds = step < size - 1
        out, into = (place - step) % size, (place - step - 1) % size
        a, b = shares[out]
        c, d = shares[into]
        heard = links.swap_any(_shorter(found[a:b]), place + 1, place - 1)
        whole = heard.numel() == (d - c) * vector.element_size()
        part = heard.view(vector.dtype) if whole else dense(unpacked(heard, vector), found[c:d])
        found[c:d] = found[c:d] + part if adds else part
    return found, own


def _shorter(share: Tensor) -> Tensor:
    """A share as bytes, whichever way is shorter."""
    places = share.nonzero().flatten()
    each = share.element_size()
    if len(places) * (each + PLACE) < share.numel() * each:
        return packed((places, share[places]))
    return share.contiguous().view(torch.uint8).flatten()


WAYS: dict[str, Callable[[Tensor, int, Links], tuple[Tensor, Entries]]] = {
    "allgather": by_allgather, "pairwise": by_pairwise, "switching": by_switching,
    "gtopk": by_tree, "oktopk": by_split,
}  # fmt: skip

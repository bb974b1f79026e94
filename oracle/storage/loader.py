"""Threads that read ahead, cores that unpack samples, and what a step waits for.

    T_cpu  = n (decode + s_out / unpack) / (cores share)          n samples of a node and step
    T_load = max(T_read, T_cpu) · slowest                          while a step is under way
    slowest = 1 + spread / √(n depth) · E[greatest of N]           the mean of N sums of n sizes
    T_step = max(T, T_load) + T_alone

Samples of which sizes differ make some nodes read longer: batches that were read ahead even that
out, `depth` of them. T_alone is what nothing hides: one rank's samples, dealt to others.

While a cache fills, epoch k = 0, 1, … loads a step in T_full + (T_first - T_full) left^k seconds:
what that exposes is counted once, beside the steps of all epochs.

Where reading goes over the ports that nodes exchange by, T_net seconds of a step, each slows the
other down. Exchange of which E seconds are waited for has the rest of the ports: it takes longer
by T / (T - T_net), and so

    T_step = (T + T_net + √((T - T_net)² + 4 E T_net)) / 2

which is T or T_net, whichever is longer, where no exchange is waited for, and both in a row where
all is exchange. It is T_net and the seconds X that ports are in use by exchange at least.
"""

from __future__ import annotations

import numpy as np

from oracle.kernels.slowest import greatest
from oracle.spec.storage import Host
from oracle.storage.arrays import Floats, Number

DEPTH = 2  # batches that are read ahead: what PyTorch's data loader does where nobody says more


def threads(host: Host) -> float:
    """Threads of a node that read and unpack: a core for each."""
    return max(1.0, host.cores * host.share_for_loading)


def decode(host: Host, samples: Number, core_seconds: Number) -> Number:
    """The seconds in which a node's cores make so many samples, of so many core seconds each."""
    return samples * core_seconds / threads(host)


def slowest(nodes: Number, samples: Number, spread: float) -> Floats:
    """Return how many times as long as the mean node the slowest node reads."""
    node_count = np.asarray(nodes, float)
    if not spread:
        return np.ones(np.shape(node_count))
    greatest_of = {n: greatest(n) for n in {*np.ravel(node_count).tolist()}}
    greatest_sum = np.array([greatest_of[n] for n in np.ravel(node_count).tolist()]).reshape(
        np.shape(node_count)
    )
    return np.asarray(1 + spread * greatest_sum / np.sqrt(np.maximum(samples, 1.0) * DEPTH))


def slower(
    step: Number, first: Number, full: Number, left: Number, epochs: float = np.inf
) -> Floats:
    """Return by how many seconds steps of the first epochs are longer, one step of each epoch."""
    begun = np.maximum(np.asarray(first, float) - step, 0.0)
    above = np.maximum(np.asarray(first, float) - full, begun)
    left = np.clip(left, 1e-300, 1 - 1e-12)
    share = np.divide(above - begun, above, out=np.zeros(np.shape(above)), where=above > 0)
    with np.errstate(divide="ignore"):
        exposed = np.ceil(np.log(share) / np.log(left))  # epochs that are slower than a step
    slow_epochs = np.where(begun > 0, np.minimum(exposed, epochs), 0.0)
    slow_epochs = np.minimum(slow_epochs, 1e12)
    return np.asarray(above * (1 - left**slow_epochs) / (1 - left) - slow_epochs * (above - begun))


def step(
    work: Number, load: Number, alone: Number = 0.0, network: Number = 0.0,
    waited: Number = 0.0, talked: Number = 0.0,
) -> Floats:  # fmt: skip
    """The seconds of a step that takes `work` where it waits for no sample.

    Of `work` the step waits `waited` seconds for exchange between nodes. Exchange uses the nodes'
    ports for `talked` seconds, and reading uses them for `network`.
    """
    work, network, waited = (np.asarray(seconds, float) for seconds in (work, network, waited))
    shared = (work + network + np.sqrt((work - network) ** 2 + 4 * waited * network)) / 2
    shared = np.where(network > 0, np.maximum(shared, network + np.minimum(talked, work)), work)
    return np.asarray(np.maximum(shared, load) + alone)

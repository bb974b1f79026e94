"""What is to be said of a plan's checkpoints, of failures and of slow devices."""

from __future__ import annotations

from collections.abc import Iterator

from oracle.predict.estimate import Estimate
from oracle.run.checkpoints import Saving
from oracle.run.failures import Goodput, goodput_of
from oracle.spec.running import Checkpoint
from oracle.spec.units import show

WAYS = (Checkpoint("sharded"), Checkpoint("async"), Checkpoint("rank0"),
        Checkpoint("async", "local"), Checkpoint("async", "host"))  # fmt: skip

WORDS = {"lost": "lost work", "waiting": "waiting for spares", "away": "replicas away"}


def of_failing(shown: Estimate) -> Iterator[tuple[str, str]]:
    """(limit, sentence) of one plan."""
    found = goodput_of(shown)
    if found.saving is None:
        return
    yield from (("I/O", words) for words in _saved(found.saving))
    yield from (("failures", words) for words in _failing(found))
    yield from (("unequal devices", words) for words in _slowed(found))


def _slowed(found: Goodput) -> Iterator[str]:
    """What slow devices cost the hours of a training."""
    said, save = found.reliability, found.saving
    if said is None or save is None or said.slow is None:
        return
    one, devices = said.slow, save.state.devices
    some = 1 - (1 - one.share) ** devices
    yield (f"{one.share:.2%} of devices take {one.factor:.3g} times as long: of {devices:,.0f} one "
           f"at least with {some:.0%}; steps {found.slow:.3g} times as long on average, in the "
           "hours of a training")  # fmt: skip


def _saved(save: Saving) -> Iterator[str]:
    """What a checkpoint takes, by each way to make one."""
    state = save.state
    said = []
    for way in WAYS:
        one = Saving.of(save.system, state, way)
        if one.unknown or one.lacks:
            continue
        safe = f", safe {show(one.safe_after, 's')} later" if one.safe_after else ""
        said.append(f"{show(one.seconds, 's')} {way.how} to {way.to}{safe}")
    if said:
        yield (f"a checkpoint of {show(state.whole, 'B')}, {state.each:.3g} B a parameter, stops "
               f"training for {'; '.join(said)}")  # fmt: skip


def _failing(found: Goodput) -> Iterator[str]:
    shares, save = found.shares, found.saving
    if shares is None or save is None:
        if found.reliability is not None:
            yield f"not counted: {found.impossible or ', '.join(found.unknown) + ' unknown'}"
        return
    parts = ((name, part) for name, part in found.time.items() if name != "progress" and part > 0)
    words = ", ".join(f"{WORDS.get(name, name)} {part:.2%}" for name, part in parts)
    often = f"; a failure every {show(1 / found.rate, 's')}" if found.rate else ""
    yield (f"goodput {found.progress:.1%}: a checkpoint every {show(float(shares.interval), 's')}, "
           f"{words}; a restart takes {show(found.restart or 0.0, 's')}{often}")  # fmt: skip

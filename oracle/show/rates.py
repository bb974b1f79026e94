"""What is trained in a second, and how long a data set or a billion tokens take, in words."""

from __future__ import annotations

from oracle.ask.largest import pieces
from oracle.plan.plan import parse
from oracle.predict.estimate import Estimate
from oracle.predict.rates import tokens
from oracle.run.costs import price_of
from oracle.spec.units import number, show


def rate(shown: Estimate, row: int) -> str:
    """What is trained in a second, and how much of the datasheet's peak that is."""
    found = shown.rates(row)
    if found["tokens_per_second"]:
        words = (f"{found['tokens_per_second']:,.0f} tokens/s, "
                 f"{found['tokens_per_second_device']:,.0f} a device")  # fmt: skip
    else:
        words = (f"{number(found['samples_per_second'])} samples/s, "
                 f"{number(found['samples_per_second_device'])} a device")  # fmt: skip
    again = f", HFU {100 * found['hfu']:.0f} %" if found["hfu"] > found["mfu"] else ""
    fewer = "; Winograd's tiles multiply less than MFU counts" if found["mfu"] > 1 else ""
    return (f"{words}; {show(found['flops_per_device'], 'FLOP/s')} each, "
            f"MFU {100 * found['mfu']:.0f} %{again}{fewer}")  # fmt: skip


def epoch(shown: Estimate, row: int) -> str:
    """How long a data set takes and what it costs, where its devices have a price.

    Of text, where every run ends elsewhere: how long a billion tokens take.
    """
    found, devices = shown.rates(row), float(shown.devices[row])
    if each := found["device_hours_per_billion_tokens"]:
        seconds, what = each * 3600 / devices, "a billion tokens"
    elif shown.epoch is not None:
        seconds, what = float(shown.epoch[row]), "an epoch"
    else:
        return ""
    price = price_of(shown.system)
    paid = "" if not price else f" and {_money(devices * price * seconds)}"
    return f", {show(seconds, 's')}{paid} {what}"


def _money(dollars: float) -> str:
    """An amount, in cents where it is small."""
    return f"{dollars:,.0f} USD" if dollars >= 10 else f"{dollars:.2f} USD"


def rate_text(shown: Estimate, row: int) -> str:
    """The micro-batches of a plan at this batch, and what is trained in a second."""
    each = float(shown.batch[row] / shown.seconds[row])
    length = tokens(shown.model)
    words = f", {each * length:,.0f} tokens/s" if length else ""
    micro = int(shown.batch[row]) // pieces(parse(shown.plans[row], 1.0))
    largest = "the largest that fits" if shown.feasible[row] else "which does not fit"
    return (f"  micro-batch  {micro} sample{'s' * (micro > 1)}, {largest}: {each:,.1f} samples/s"
            f"{words}")  # fmt: skip


def sure(part: float) -> str:
    """A probability in words, never more than we know: `over 99 %`, not 100.

    >>> sure(0.97), sure(0.9999), sure(0.0001)
    ('97 %', 'over 99 %', 'under 1 %')
    """
    return "over 99 %" if part > 0.99 else "under 1 %" if part < 0.01 else f"{100 * part:.0f} %"

"""How open a ranking is: which plans cannot be told apart, and what to measure to tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oracle.models.model import Floats

if TYPE_CHECKING:
    from oracle.predict.estimate import Estimate

SURE = 0.6  # probability of the best from which a ranking stands
SEED = 0  # of the draws that say how likely a plan is the best
# of the variance of plans of one model on one machine, what they share: it moves all of them
ALIKE = 0.5


def likeliest(seconds: Floats, deviation: Floats, draws: int = 2000) -> Floats:
    """How likely each of these plans is the fastest of them, given 1σ of each.

    Two plans of one model on one machine err together: what they share cancels out.
    """
    rng = np.random.default_rng(SEED)
    spread = deviation / seconds * np.sqrt(1 - ALIKE)
    times = np.log(seconds) + spread * rng.standard_normal((draws, len(seconds)))
    return np.bincount(times.argmin(axis=1), minlength=len(seconds)) / draws


def tied(plans: tuple[str, ...], likely: np.ndarray) -> tuple[str, ...]:
    """The best and the likeliest other, where the best is not likely enough; else nothing."""
    if len(plans) < 2 or likely[0] >= SURE:
        return ()
    return plans[0], plans[1 + int(np.argmax(likely[1:]))]


def doubts(estimate: Estimate, row: int) -> dict[str, float]:
    """1σ in seconds that each kind of measurement would take away from a prediction."""
    talk: dict[str, float] = {}
    for message in estimate.exchange[row]:
        key = f"{message['op']} among {message['group']} ranks"
        talk[key] = talk.get(key, 0.0) + message["deviation"]
    rest = float(estimate.deviation[row]) ** 2
    rest -= sum(message["deviation"] ** 2 for message in estimate.exchange[row])
    priced = estimate.work[row]
    untried = float(priced.block.step.uncertainty.untried[priced.row])
    rest -= untried**2
    model = estimate.model
    families = {doubt.work for doubt in model.rows} & {"conv", "attention"} | {"gemm"}
    work = model.repeat * model.mac
    family = max(families, key=lambda f: sum(work[model.mask(lambda message: message.work == f)]))
    software = estimate.options.software
    runs = "your software" if software.name == "plain" else software.label
    steps = {f"a step under {runs}": untried} if untried else {}
    return {**talk, **steps, f"{family} kernels at the local shapes": max(rest, 0.0) ** 0.5}


def settling(
    own_doubts: dict[str, float], rival_doubts: dict[str, float]
) -> tuple[str, float] | None:
    """The measurement that would tell two plans apart best, and its share of what is open.

    What both err in alike moves both: only the difference of a shared doubt is open.
    """
    open_ = {
        key: abs(own_doubts.get(key, 0.0) - rival_doubts.get(key, 0.0)) ** 2
        for key in {**own_doubts, **rival_doubts}
    }
    total = sum(open_.values())
    if total <= 0:
        return None
    key = max(open_, key=lambda name: open_[name])
    return key, open_[key] / total

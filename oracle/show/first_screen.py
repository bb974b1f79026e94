"""The first screen of a ranking: the answer, what it rests on, the other plans, what to type next.

It takes at most `SCREEN` lines of 80 columns. Where it would take more, plans that are far behind
and facts that another command shows as well are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from oracle.plan.names import short_names
from oracle.predict.estimate import Estimate
from oracle.predict.rates import tokens
from oracle.show.layout import as_fits, command, fact, grouped, on_a_screen, percent
from oracle.show.placing import otherwise, placed
from oracle.show.plan_words import legend, plan_in_words, software_in_words
from oracle.show.rates import epoch, rate
from oracle.show.reading import SEEN
from oracle.show.terminal import fit, laid_out, width
from oracle.show.text import (
    SUPERLATIVES,
    bounds,
    options_of,
    parts,
    reads,
    room,
    source,
    why_not,
)
from oracle.show.training import NEAREST, critical_batch, failures, takes, tried, until
from oracle.spec.units import show

if TYPE_CHECKING:
    from oracle.ask.batches import Tried
    from oracle.ask.ranking import Ranking
    from oracle.run.target import Training

SCREEN = 18  # lines
USUAL = 5  # plans that are listed where nobody asked for more
FEWEST = 2  # plans that are listed whatever else there is to say
CLOSE = 0.01  # of each other, plans of which the simplest comes first
# facts that another command shows as well, those first that a screen without room leaves out
SPARED = ("bounds", "reads", "others", "faster", "failures", "speed", "batches")
MATTERS = 0.03  # of a step, from where it matters what a part of it stands on
BASES = ("assumed", "datasheet", "fitted", "measured")  # the weakest first
HEADS = ("#", "plan", "step", "memory", "basis", "fastest?", "slower by")
STANDS = {
    "assumed": "assumed", "datasheet": "from the datasheet", "fitted": "fitted to measurements",
    "measured": "measured",
}  # fmt: skip


def ranking_text(
    ranking: Ranking, request: Any = None, training: Training | None = None,
    batches: Sequence[Tried] = (), more: Sequence[tuple[str, str]] = (), over: bool = False,
) -> str:  # fmt: skip
    """Return what is best, whether it fits, how sure that is, why not the others, what next.

    `more` are facts that were asked for, with their labels; `over` says that limits are not kept.
    """
    estimate = ranking.estimate
    if not len(estimate):
        lines = [
            f"Nothing fits: none of {ranking.tried} combinations of strategies.",
            question(ranking.misses, ranking),
            *map(fit, otherwise(ranking.misses)),
            "",
        ]
        lines = "\n".join(lines).split("\n")
        return "\n".join([*lines, *_nothing_fits(ranking, request, SCREEN - len(lines))])
    likely, verbose = ranking.likely_best(), getattr(request, "verbose", False)
    facts = [
        fit("Nothing keeps to the limits. " * over + _answer(ranking, training)),
        question(estimate, ranking),
        *map(fit, otherwise(estimate)),
        fact("plan", estimate.plans[0]),
        fact(
            "time",
            _range(estimate) + epoch(estimate, 0)
            if training is None
            else f"{show(float(estimate.seconds[0]), 's')} a step, {_range(estimate)}",
        ),
        fact("speed", rate(estimate, 0).partition(", HFU")[0]),
        fact("memory", room(estimate, 0)),
        *_riskier(ranking),
        *waiting(estimate),
        fact("bounds", bounds(estimate, 0)),
        *_whole_training(training, batches, verbose),
        *map(fit, placed(estimate)),
        *(fact(label, words) for label, words in more),
        fact("trust", _trust(ranking, likely, brief=training is not None)),
    ]
    everything = request is not None and getattr(request, "everything", False)
    end = [fit(_counts(ranking))]
    if everything:
        end += ["", "These do not fit:", *_misses(ranking.misses, len(ranking.misses) * SCREEN)]
    if verbose:
        end += [fit(f" {row}  {plan}", 4) for row, plan in enumerate(estimate.plans, 1)]
    if request is not None:
        end += following(ranking, request, simple=training is None and not batches)
    if everything or verbose or len(estimate) > USUAL:
        return "\n".join([*facts, *ranking_table(estimate, likely), *end])
    return "\n".join(_screen(facts, ranking, likely, end))


def _whole_training(
    training: Training | None, batches: Sequence[Tried], verbose: bool
) -> list[str]:  # fmt: skip
    """Return what a whole training takes, what failures take of it, and what batches would."""
    if training is None:
        return []
    label, words = failures(training.goodput, brief=True)
    critical = critical_batch(training.length)
    sizes = [*([tried(batches, NEAREST)] if batches else []), *([critical] if critical else [])]
    together: Callable[..., str] = "; ".join if verbose else partial(as_fits, joint="; ")
    return [
        fact("training", ", ".join(takes(training)) if verbose else as_fits(takes(training))),
        *([fact(label, words)] if words else []),
        *([fact("batches", together(sizes))] if sizes else []),
    ]


def _screen(
    facts: Sequence[str], ranking: Ranking, likely: Any, end: Sequence[str]
) -> Iterator[str]:  # fmt: skip
    """Yield the lines without what has no room: plans that are far behind, then facts."""
    for most in range(len(ranking), 0, -1):
        table = ranking_table(ranking.estimate, likely, _listed(ranking, most))
        rest = "\n".join([*table, *end]).count("\n") + 1
        spared = SPARED if most <= FEWEST else SPARED[:-2] if most == FEWEST + 1 else ()
        kept = on_a_screen(facts, spared, rest, SCREEN)
        if most <= FEWEST or "\n".join(kept).count("\n") + 1 + rest <= SCREEN:
            break
    yield from (*kept, *table, *end)


def _listed(ranking: Ranking, most: int) -> list[int]:
    """Return the plans to list: the first so many, the one that may be as fast among them."""
    rows = list(range(min(most, len(ranking))))
    if ranking.tied and (rival := ranking.estimate.plans.index(ranking.tied[1])) not in rows:
        rows[-1] = rival
    return rows


def _answer(ranking: Ranking, training: Training | None) -> str:
    """Return the answer in a line: how long a training, or a step, takes under which plan."""
    estimate = ranking.estimate
    took = (f"{show(float(estimate.seconds[0]), 's')} a step" if training is None
            else until(training))  # fmt: skip
    text = f"{_superlative(ranking, training)}: {took} with "
    return text + plan_in_words(estimate.plans[0], width() - len(text))


def _range(estimate: Estimate) -> str:
    """Return between what a step takes, nine times of ten."""
    low, high = float(estimate.seconds_low[0]), float(estimate.seconds_high[0])
    if low == high:
        return f"{show(low, 's')} a step"
    return f"{show(low, 's')} to {show(high, 's')} (90\u00a0%)"


def _superlative(ranking: Ranking, training: Training | None = None) -> str:
    """Return what the first plan is the first in."""
    seconds = ranking.estimate.seconds
    late = seconds[0] > (1 + CLOSE) * seconds.min()
    if ranking.objective == "time" and training is not None and training.goodput.known and late:
        return "First to end"
    if ranking.bad_moment:
        return "Steadiest"
    if ranking.objective == "time" and ranking.fastest.seconds[0] * (1 + CLOSE) < seconds[0]:
        return "Best"
    return SUPERLATIVES[ranking.objective].capitalize().replace("\u00a0", " ")


def question(estimate: Estimate, ranking: Ranking) -> str:
    """Return what was asked: the model, the machine, the batch, how it is trained and by what."""
    model, system, options = estimate.model, estimate.system, estimate.options
    length = tokens(model)
    data = f" of {model.dataset.name}" if model.dataset else ""
    batch = f"{ranking.batch:,} × {length:,.0f} tokens" if length else (
        f"{ranking.batch:,} sample{'s' * (ranking.batch > 1)}{data}")  # fmt: skip
    runs = "ideal assumptions" if options.ideal else software_in_words(options.software)
    listed = ", launchable or not" if options.any_plan and not options.ideal else ""
    how = f"{options.precision}, {options.optimizer_text}, {runs}{listed}"
    return fit(f"{model.title or model.name} on {ranking.devices:,} "
               f"device{'s' * (ranking.devices > 1)} of {system.title or system.name}, "
               f"{batch} a step, {how}")  # fmt: skip


def waiting(estimate: Estimate) -> list[str]:
    """Return a line on reading, where a step waits for its samples or nobody knows."""
    read = estimate.reading[0]
    if estimate.options.ideal or (
        read is not None and read["exposed"] <= SEEN * estimate.seconds[0]
    ):
        return []
    return reads(estimate, 0, lines=1)


def _riskier(ranking: Ranking) -> list[str]:
    """Return a line on a plan that is faster and may run out of memory."""
    risky = ranking.riskier
    if not len(risky):
        return []
    fits = float(risky.fits[0])
    risk = min(1 - fits + 0.005, 0.99)
    return [fact("faster", f"{show(risky.seconds[0], 's')} a step, but fits with "
                 f"{percent(fits)} only: --risk {risk:.2f} puts it first")]  # fmt: skip


def bases(estimate: Estimate, row: int) -> dict[str, str]:
    """Return what a plan's kernels stand on, and its network where it matters."""
    if estimate.options.ideal:
        return {"kernels": "assumed"}
    talk = sum(message["exposed"] for message in estimate.exchange[row])
    kinds = ["kernels", *(["network"] if talk > MATTERS * estimate.seconds[row] else [])]
    stands = {kind: source(estimate, row, kind).get("origin", "") for kind in kinds}
    return {kind: origin for kind, origin in stands.items() if origin in BASES}


def basis(estimate: Estimate, row: int) -> str:
    """Return the weakest of what matters in a plan's time."""
    return min(bases(estimate, row).values(), key=BASES.index, default="fitted")


def _trust(ranking: Ranking, likely: Any, brief: bool = False) -> str:
    """Return how sure the answer is, and what to do about it, as a sentence."""
    estimate = ranking.estimate
    if estimate.options.ideal:
        return "the published equations as they are: no interval, no probability"
    stands: dict[str, list[str]] = {}
    for kind, origin in bases(estimate, 0).items():
        stands.setdefault(STANDS[origin], []).append(kind)
    sentences = [", ".join(f"{' and '.join(kinds)} {words}" for words, kinds in stands.items())]
    if any(source(estimate, 0, kind).get("outside") for kind in bases(estimate, 0)):
        sentences[0] += ", in part beyond their range"
    if not brief and (behind := _behind(ranking)):
        sentences.append(behind)
    if moment := ranking.bad_moment:
        sentences.append("too close to call, 1 loses least while the network is at its 5th "
                         f"percentile: {show(moment.first, 's')} a step, the fastest by its median "
                         f"{show(moment.fastest, 's')}")  # fmt: skip
        return "; ".join(sentences)
    if ranking.tied:
        rival = estimate.plans.index(ranking.tied[1]) + 1
        measure = f": measure {ranking.measure[0]} to decide" if ranking.measure else ""
        sentences.append(f"1 and {rival} are too close to call{measure}")
        return "; ".join(sentences)
    if len(likely) > 1:
        word = "the best" if ranking.objective == "time" else "the fastest"
        sentences.append(f"{word} of all with {percent(likely[0])}")
    if basis(estimate, 0) in ("assumed", "datasheet"):
        sentences.append("`oracle measure machine` replaces guesses")
    return "; ".join(sentences)


def _behind(ranking: Ranking) -> str:
    """Return how little the first plan, the simplest, is behind the fastest, where it is."""
    estimate, fastest_seconds = ranking.estimate, ranking.fastest.seconds
    if ranking.bad_moment or ranking.objective != "time":
        return ""
    if not estimate.seconds[0] > fastest_seconds[0] * (1 + 1e-9):
        return ""
    percent = 100 * max(estimate.seconds[0] / fastest_seconds[0] - 1, 0.001)
    plan = "the simplest plan" if percent <= 100 * CLOSE else "a plan as others run it,"
    return f"{plan} within {percent:.1f}\u00a0% of the fastest"


def ranking_table(
    estimate: Estimate, likely: Any, listed: Sequence[int] | None = None
) -> list[str]:  # fmt: skip
    """Return the head, a line for each plan, and what letters in their names stand for."""
    listed = range(len(estimate)) if listed is None else listed
    plans = [estimate.plans[row] for row in listed]
    first, names = parts(estimate, 0), short_names(plans)
    rows: list[tuple[str, ...]] = [HEADS]
    for row, name in zip(listed, names, strict=True):
        ahead = estimate.seconds[0] - estimate.seconds[row]
        why = "" if row == 0 else why_not(first, parts(estimate, row))
        if ahead > CLOSE * estimate.seconds[0]:
            why = f"{show(ahead, 's')} faster"
        rows.append((str(row + 1), name, show(estimate.seconds[row], "s"),
                     show(estimate.memory[row], "B"), basis(estimate, row), percent(likely[row]),
                     why))  # fmt: skip
    align = "><>><><"
    for column in (4, -1):  # what a row is spared where it is too long: the answer has the first
        if sum(max(map(len, cells)) + 2 for cells in zip(*rows, strict=True)) - 1 > width():
            rows = [(*row[:column], *row[column:][1:]) for row in rows]
            align = align[:column] + align[column:][1:]
    table = laid_out(rows, align, " ")
    words = legend(plans, "\u00a0")
    return [*table, *([fit(f"     {words}", 5)] if words else [])]


def _counts(ranking: Ranking) -> str:
    """Return how many combinations of strategies there are, and what became of each."""
    missed = ranking.tried - ranking.fitting
    return (f"{ranking.tried + ranking.slower:,} combinations: {ranking.fitting:,} "
            f"fit and compete, {ranking.slower:,} cannot win, {missed:,} do not fit")  # fmt: skip


def _nothing_fits(ranking: Ranking, request: Any, room: int) -> list[str]:
    """Return the nearest misses that there are lines for, and what would make room."""
    lines = []
    if ranking.wanted is not None:
        lines.append("No knob makes room: one sample's largest layer alone takes "
                     f"{ranking.wanted:.2g} times what a device has.")  # fmt: skip
    devices, software = (
        getattr(request, name, None) for name in ("devices_that_fit", "software_that_fits")
    )
    if software is not None:
        lines.append(f"More can lie outside the devices under --software {software}: it fits so.")
    if devices is not None:
        lines.append(f"It fits on {devices} devices: --devices {devices}")
    elif software is None:
        lines.append("Try more devices, a smaller batch, or a narrower --precision.")
    return ["Nearest misses:", *_misses(ranking.misses, room - len(lines) - 2), "", *lines]


def _misses(misses: Estimate, room: int) -> list[str]:
    """Return each plan with what it lacks: the first, and others while there are lines for them."""
    lines: list[str] = []
    for plan, broken in zip(misses.plans, misses.broken, strict=True):
        miss = "\n".join([fit(f"  {plan}", 4), *(fit(f"    {words}", 6) for words in broken)])
        if lines and len(lines) + miss.count("\n") + 1 > room:
            break
        lines += miss.split("\n")
    return lines


def following(ranking: Ranking, request: Any, simple: bool) -> list[str]:
    """Return the next command: `explain` with the same words, or with the plan where it must."""
    which = ["--devices", str(ranking.devices)] if simple else ["--plan", ranking.best.plan]
    words = [("oracle explain",), (request.model,), (request.system,), which,
             ("--batch", str(ranking.batch))]  # fmt: skip
    return [command([*words, *grouped(options_of(request, "explain"))])]

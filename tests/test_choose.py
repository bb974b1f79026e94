"""Which machine, how many: limits, energy, and choices held against brute force."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from command_line import told

import oracle
from benchmarks.trainings import energy
from oracle.ask.choose import Choice, frontier
from oracle.ask.setups import again, full_nodes
from oracle.ask.turning import label
from oracle.run.costs import costs
from oracle.run.limits import Limits, budget, duration
from oracle.run.power import load, load_of
from oracle.run.target import Training, given, training
from oracle.show.choose import choice_text
from oracle.spec import catalogue
from oracle.spec.doubt import NINETY
from oracle.spec.what_if import supposed

ONLY = ("data", "filter")
SMALL: dict[str, Any] = {"batch": 256, "steps": 1000, "only": ONLY}
PLACES = ("abci", "dgx-1-v100,price=1.5USD/h")
COUNTS = (4, 8)


@cache
def chosen(**more: Any) -> Choice:
    return oracle.choose("resnet18", PLACES, COUNTS, **SMALL, **more)


# --- limits ----------------------------------------------------------------------------------


def test_limits_are_read_with_their_units() -> None:
    assert duration("7d") == duration("1 week") == 7 * 86400
    assert duration("45 min") == 2700
    assert budget("1MUSD") == ("money", 1e6)
    assert budget("500MWh") == ("energy", 500e3)
    assert budget("30tCO2") == ("carbon", 30e3)
    assert budget("20k device-hours") == ("device_hours", 20e3)
    found = Limits.of("2h", ["5 USD", "3 USD"])
    assert (found.within, found.money, found.energy) == (7200, 3, None)
    assert found
    assert not Limits()


@pytest.mark.parametrize("text", ["7", "-1d", "0h", "d", "1e99d", "soon"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(oracle.SpecError, match="length of time"):
        duration(text)


@pytest.mark.parametrize("text", ["1M", "5 EUR", "-3USD", "0 kWh", "tCO2", "3 kg"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(oracle.SpecError, match="budget"):
        budget(text)


def test_the_chance_of_keeping_to_a_limit_by_hand() -> None:
    """At the middle of the interval one half, at its upper end 95 %, at its lower 5 %."""
    shown = oracle.estimate("resnet50", "abci", "data:8", batch=256, reading="none")
    one = training(shown, 0, given(shown, steps=1000))
    for at, chance in ((one.seconds, 0.5), (one.high, 0.95), (one.low, 0.05)):
        assert Limits(within=at).probability(one) == pytest.approx(chance, abs=1e-3)
    assert Limits(within=one.seconds / 2).over(one) == {"within": pytest.approx(2)}
    assert Limits(within=one.seconds * 2).over(one) == {}
    assert Limits(device_hours=one.device_hours / 3).over(one) == {"device_hours": pytest.approx(3)}
    assert NINETY > 1
    unknown = replace(one, costs=replace(one.costs, money=None))
    assert Limits(money=1e9).over(unknown) == {"money": None}
    assert Limits(money=1e9).probability(unknown) == 0


# --- energy ----------------------------------------------------------------------------------


def test_how_hard_devices_work_by_hand() -> None:
    """Awake all the time and at 40 % of the roofs: ½ + ½ · 0.4, known to ± 0.2."""
    assert load(1.0, 0.4).share == pytest.approx(0.7)
    assert (load(1.0, 0.4).low, load(1.0, 0.4).high) == (pytest.approx(0.5), pytest.approx(0.9))
    assert load(0.5, 3.0).share == pytest.approx(0.5)  # never more than its roof
    assert load(0.0, 0.0).low == 0


def test_energy_of_a_node_by_hand() -> None:
    """8 · (37 + 663 · 0.5) + 2,880 W for an hour are 5.828 kWh, times a PUE of 1.5."""
    where = replace(oracle.system("dgx-h100"), pue=1.5, grid=100.0)
    found = costs(where, 8, 3600.0, 0.5)
    assert found.energy == pytest.approx(1.5 * 5.828)
    assert found.carbon == pytest.approx(1.5 * 0.5828)
    assert found.unknown == ()
    # one device still needs its node
    assert costs(where, 1, 3600.0, 0.0).energy == pytest.approx(1.5 * (0.037 + 2.88))
    # nobody measured an idle A100: at most busy all the time
    plain = costs(oracle.system("jean-zay"), 8, 3600.0, load(1.0, 0.0))
    assert (plain.energy, plain.energy_high) == (pytest.approx(3.2), pytest.approx(3.2))
    assert plain.energy_low == pytest.approx(8 * 0.3 * 0.4)
    assert set(plain.unknown) == {"device.power.idle", "node_power", "pue"}


def test_more_work_in_less_time_draws_more() -> None:
    plans = ["data:8", "data:64"]
    shown = oracle.estimate("resnet50", "dgx-h100", plans, batch=3200, precision="fp16")
    busy, idle = (load_of(shown, row) for row in range(2))
    assert idle.low < idle.share < busy.share < busy.high <= 1


def test_reported_energy_and_measured_nodes() -> None:
    found = {name: one["value"] for name, one in energy.table()["figures"].items()}
    assert found["hours.worst"] <= 0.1
    assert found["nodes.mape"] <= 0.1
    assert found["nodes.covered"] >= 0.8


def test_every_value_of_what_machines_cost_has_a_source() -> None:
    for name in catalogue.shipped("systems"):
        where = oracle.system(name)
        said = {key for key in ("price", "node_power", "pue", "grid")
                if getattr(where, key) is not None}  # fmt: skip
        assert said == set(where.sources), name
    for name in catalogue.shipped("devices"):
        device = oracle.device(name)
        assert (device.price is None) == (not device.price_source), name
        assert device.power is None or device.power.source, name


def test_a_system_is_changed_after_its_name() -> None:
    where = oracle.system("dgx-h100,price=2 USD/h,device.power.busy=600 W,pue=1.3")
    assert where.price == pytest.approx(2 / 3600)
    assert where.device.power is not None
    assert (where.device.power.busy, where.device.power.idle, where.pue) == (600, 37, 1.3)
    assert costs(where, 8, 3600.0).money == pytest.approx(16)
    for wrong in ("dgx-h100,prise=2 USD/h", "dgx-h100,price", "dgx-h100,pue=0.5"):
        with pytest.raises(oracle.SpecError):
            oracle.system(wrong)


# --- choices ---------------------------------------------------------------------------------


@cache
def by_force() -> list[Training]:
    """The training under the best plan of every machine and number of devices."""
    found = []
    for place in PLACES:
        for devices in COUNTS:
            ranking = oracle.recommend("resnet18", place, devices, 256, top=1, only=ONLY)
            shown = ranking.estimate
            found.append(training(shown, 0, given(shown, steps=1000)))
    return found


@pytest.mark.parametrize("objective", ["time", "money", "cost", "energy"])
def test_the_answer_is_that_of_asking_for_each(objective: str) -> None:
    found = chosen(objective=objective, turned=False)
    least = min(found.asked.value(one) for one in by_force())
    assert found.asked.value(found.best.training) == pytest.approx(least, rel=0.01)
    assert len(found) == len(PLACES) * len(COUNTS)
    order = [found.asked.value(one.training) for one in found.setups]
    assert order == sorted(order)


def test_nothing_beats_the_frontier() -> None:
    found = chosen(objective="money", turned=False)
    front = found.front
    for one in found.setups:
        mine = one.training.seconds, one.training.costs.money
        beaten = [
            other
            for other in front
            if other is not one
            and other.training.seconds <= mine[0]
            and other.training.costs.money <= mine[1]
        ]
        assert bool(beaten) == (one not in front)
    assert frontier([]) == ()


@pytest.mark.slow
def test_more_may_be_spent_and_nothing_gets_worse() -> None:
    free = chosen(objective="time", turned=False)
    dear = max(one.training.costs.money or 0.0 for one in free.setups)
    best, many = math.inf, 0
    for share in (0.6, 0.8, 1.1):
        found = chosen(objective="time", budget=f"{dear * share:.6f}USD", turned=False)
        value = found.best.training.seconds if len(found) else math.inf
        assert value <= best
        assert len(found) >= many
        assert len(found) + len(found.misses) == len(free)
        assert all(set(one.over) == {"money"} for one in found.misses)
        best, many = value, len(found)
    assert best == pytest.approx(free.best.training.seconds, rel=0.01)


def test_money_grows_with_the_price() -> None:
    cheap, dear = (
        oracle.choose("resnet18", [f"abci,price={price}USD/h"], [8], objective="money",
                      turned=False, **SMALL).best.training.costs.money
        for price in (1, 3)
    )  # fmt: skip
    assert cheap is not None
    assert dear == pytest.approx(3 * cheap)


@pytest.mark.slow
def test_a_price_that_would_change_the_answer_does() -> None:
    found = chosen(objective="money")
    other = next(one for one in found.changes
                 if one.cause == "price" and one.system != found.best.system.name)  # fmt: skip
    assert found.best.system.name == "abci"
    assert other.system == "dgx-1-v100"
    for factor, changes in ((0.99, True), (1.01, False)):
        places = ["abci", f"dgx-1-v100,price={other.value * factor:.6f}USD/h"]
        again = oracle.choose("resnet18", places, COUNTS, objective="money", turned=False, **SMALL)
        assert (again.best.system.name != "abci") == changes


def test_kernels_that_would_change_the_answer_do() -> None:
    """Its own machine's slower by what is said, and a little less than that."""
    found = chosen(objective="money")
    first = found.best
    change = next(one for one in found.changes
                  if (one.cause, one.system) == ("kernels", first.system.name))  # fmt: skip
    rival = next(one for one in found.setups if label(one) == change.winner)
    for by, changes in ((1.0, True), (1.1, False)):
        slower = supposed(first.system, f"kernels={change.factor * by!r}")
        own = again(found.asked, first, slower)
        assert own is not None
        assert (own.training.costs.money > rival.training.costs.money) == changes


def test_devices_come_in_full_nodes() -> None:
    assert full_nodes(oracle.system("summit"), [4, 8, 16, 32]) == [4, 12, 18, 36]
    assert full_nodes(oracle.system("abci"), [2, 8, 10**6]) == [2, 8]


def test_a_free_batch_is_the_best_of_its_machine() -> None:
    found = oracle.choose("resnet50", ["abci"], [64], to_target=True, turned=False,
                          without=("pipeline", "spatial", "filter", "channel"))  # fmt: skip
    every = [
        training(shown, 0, found.asked.of(shown).length).seconds
        for batch in (2048, 4096, 8192, 16384)
        for shown in [oracle.recommend("resnet50", "abci", 64, batch, top=1, only=["data"],
                                       optimizer="lars").estimate]
    ]  # fmt: skip
    assert found.best.training.seconds == pytest.approx(min(every), rel=0.01)


def test_machines_that_nobody_priced_are_named() -> None:
    found = oracle.choose("resnet18", ["abci", "fugaku"], [8], objective="money", turned=False,
                          **SMALL)  # fmt: skip
    assert {one.system.name for one in found.setups} == {"abci"}
    assert [one.system.name for one in found.unknown] == ["fugaku"]
    assert "fugaku: nobody says its price" in choice_text(found)


def test_energy_is_compared_by_what_is_known_of_all() -> None:
    found = oracle.choose("resnet18", ["abci", "dgx-h100"], [8], objective="energy", turned=False,
                          **SMALL)  # fmt: skip
    h100 = next(one for one in found.setups if one.system.name == "dgx-h100")
    hours = h100.training.seconds / 3600
    assert h100.training.costs.energy is not None
    assert h100.training.costs.energy < 8 * 0.7 * hours  # its nodes' 2.88 kW left out
    assert found.notes == ("without nodes beside their devices: not known of abci",)


@pytest.mark.parametrize(("more", "why"), [
    ({"batch": 64}, "how long"),
    ({"steps": 10}, "a batch of"),
    ({"batch": 64, "steps": 10, "objective": "fun"}, "objective"),
    ({"batch": 64, "steps": 10, "within": "soon"}, "length of time"),
    ({"batch": 0, "steps": 10}, "a batch of 0"),
])  # fmt: skip
def test_what_cannot_be_asked(more: dict[str, Any], why: str) -> None:
    with pytest.raises(oracle.SpecError, match=why):
        oracle.choose("resnet50", ["abci"], [4], **more)


# --- the command -----------------------------------------------------------------------------


def test_a_first_screen_answers(capsys: Any) -> None:
    line = ["choose", "llama2-7b", "--systems", "dgx-h100,dgx-a100", "--devices", "128..256",
            "--tokens", "2T", "--within", "30d"]  # fmt: skip
    code, out, _ = told(capsys, *line)
    assert code == 0
    lines = out.splitlines()
    assert len(lines) <= 24
    assert all(len(each) <= 80 for each in lines if not each.startswith("next: "))
    assert "128 devices of DGX H100" in out
    assert "assumed: 4.2 M tokens" in out
    assert "changes   " in out


def test_nothing_that_keeps_to_the_limits_is_code_1(capsys: Any) -> None:
    line = ["choose", "resnet18", "--systems", "abci", "--devices", "4..8", "--batch", "256",
            "--steps", "1k", "--within", "1s", "--only", "data"]  # fmt: skip
    code, out, _ = told(capsys, *line)
    assert code == 1
    assert "Nothing keeps to the limits" in out
    assert "times the time" in out
    code, out, _ = told(capsys, *line, "--json")
    said = json.loads(out)
    assert (code, said["setups"]) == (1, [])
    assert said["misses"][0]["over"]["within"] > 1


def test_a_ranking_keeps_to_a_deadline(capsys: Any) -> None:
    line = ["recommend", "resnet18", "abci", "--devices", "8", "--batch", "256", "--only",
            "data,filter", "--steps", "1k"]  # fmt: skip
    code, out, _ = told(capsys, *line, "--within", "1h", "--fewer", "--json")
    said = json.loads(out)
    assert code == 0
    assert said["plans"][0]["training"]["over"] == {}
    assert said["plans"][0]["training"]["probability_within"] > 0.9
    times = [one["seconds"] for one in said["front"]]
    hours = [one["device_hours"] for one in said["front"]]
    assert times == sorted(times)
    assert hours == sorted(hours, reverse=True)
    assert told(capsys, *line, "--within", "1s")[0] == 1
    assert told(capsys, *line[:-2], "--within", "1h")[0] == 2  # of what training?


@pytest.mark.slow
def test_a_ranking_by_what_is_paid(capsys: Any) -> None:
    found = oracle.recommend("resnet18", "abci", 8, 256, objective="money", top=3)
    spent = [float(found.estimate.seconds[row] * found.estimate.devices[row]) for row in range(3)]
    assert spent == sorted(spent)
    with pytest.raises(oracle.SpecError, match="price"):
        oracle.recommend("resnet50", "fugaku", 16, 256, objective="money")
    with pytest.raises(oracle.SpecError, match="grid"):
        oracle.recommend("resnet50", "dgx-h100", 16, 256, objective="carbon")
    green = oracle.recommend("resnet18", "dgx-h100,grid=50g/kWh", 4, 256, objective="carbon")
    assert green.objective == "carbon"

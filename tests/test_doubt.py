"""Doubt grows with the distance from what was measured, and probabilities are worked by hand."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_profile import ABCI, DGX, lines_of, written

import oracle
from benchmarks import doubt, doubt_fit, fidelity
from benchmarks.doubt_fit import Rows
from benchmarks.published import CARRIED, TABLES, Case, rows
from oracle.ask.ties import doubts, likeliest
from oracle.kernels.curve import origin
from oracle.kernels.passes import Passes
from oracle.kernels.provenance import Provenance, _modelled, provenance
from oracle.models.shard import serial
from oracle.network.collectives import Message
from oracle.network.contention import lines
from oracle.plan.launchable import software as read_software
from oracle.predict.estimate import Estimate
from oracle.predict.overlap import Cover
from oracle.predict.uncertainty import Uncertainty
from oracle.spec import catalogue
from oracle.spec import doubt as constants
from oracle.spec.software import Software
from oracle.spec.system import System


def sides(found: Estimate, row: int = 0) -> tuple[float, float]:
    """How far the interval reaches down and up, as factors."""
    low, mid, high = found.seconds_low[row], found.seconds[row], found.seconds_high[row]
    return float(mid / low), float(high / mid)


def without(system: System, what: str) -> System:
    """The system with one kind of knowledge left out."""
    case = Case((), "", system, "", 1, 1.0)
    return doubt.less(case, what)[0]


EOS = catalogue.system("dgx-h100")
LAWFUL = [("megatron-2.5b", DGX, "data:4 tensor:8", 64, "megatron-lm-2022"),
          ("resnet50", ABCI, "data:64", 2048, "pytorch-ddp"),
          ("gpt2", EOS, "data:8,zero=3", 16, "torchtitan")]  # fmt: skip


@pytest.mark.parametrize(("model", "system", "plan", "batch", "software"), LAWFUL)
def test_an_interval_has_its_estimate_and_widens_with_what_is_left_out(
    model: str, system: System, plan: str, batch: int, software: str
) -> None:
    known = oracle.estimate(model, system, plan, batch, software=software)
    for found in (
        known,
        *(
            oracle.estimate(model, without(system, what), plan, batch, software=software)
            for what in doubt.WITHOUT
        ),
    ):
        assert found.seconds_low[0] < found.seconds[0] < found.seconds_high[0]
        assert found.memory_low[0] < found.memory[0] < found.memory_high[0]
    for what in ("kernels", "network"):
        bare = oracle.estimate(model, without(system, what), plan, batch, software=software)
        assert sides(bare)[1] > sides(known)[1]
    never = read_software(software).but(held={})
    nobody = oracle.estimate(model, system, plan, batch, software=never)
    assert min(sides(nobody)) > min(sides(known))
    relative = nobody.memory_deviation / nobody.memory, known.memory_deviation / known.memory
    assert relative[0] > 1.5 * relative[1]


def test_software_is_doubted_by_what_was_held_against_it_and_what_was_changed() -> None:
    """0.05 a field changed: 0.05, √2 · 0.05; 0.15 of memory where it was never held."""
    held, nobody = Software(held={"a table": ("volta",)}), Software()
    assert held.changed_doubt == 0
    assert held.but(changed=("a=1",)).changed_doubt == pytest.approx(0.05)
    assert nobody.but(changed=("a=1", "b=2")).changed_doubt == pytest.approx(0.0707, rel=1e-3)
    assert (held.memory_doubt, nobody.memory_doubt) == (0, 0.15)


def step_of(software: Software, host: float, fed: float, kernels: float = 0.1) -> Uncertainty:
    """10 s: 8 of kernels, of which `host` wait for it, 2 of messages that err by 0.3 or + 0.4."""
    ones = np.ones(1)
    known = Provenance({"fitted": ones}, 0 * ones, {"products": kernels * ones})
    none = Provenance({"fitted": 0 * ones}, 0 * ones, {})
    return Uncertainty(10 * ones, 8 * ones, 0.09 * ones, 2 * ones, 0.4 * ones, host * ones, fed,
                       software, np.zeros(1, int), lambda: (known, none, none))  # fmt: skip


ROUND = {"STEP": 0.1, "HOST": 0.25, "SOFTWARE": 0.2, "HIDES": 0.5, "LAYOUT": 0.3, "MORE": 0.06,
         "INPUT": 0.3}  # fmt: skip


def test_sources_add_up_in_squares_by_hand() -> None:
    """10 s of 8 s of kernels ± 10 %, 4 s of which wait for the host: 0.4 s, HOST 1 s, STEP 1 s,
    messages 0.3 s: √2.25 = 1.5 s; upwards MORE 0.6, SHORT 0.4, INPUT of 5 s 1.5: √2.77.

    Software that nobody held: 0.2 · 6 s and 0.5 · 2 s more; a field changed: 0.05 · 10 s.
    """
    held = Software(held={"a table": ("volta",)})
    either, more = step_of(held, 4.0, 5.0).deviations(ROUND)
    assert either[0] == pytest.approx(np.sqrt(0.4**2 + 1 + 1 + 0.3**2))
    assert more[0] == pytest.approx(np.sqrt(0.6**2 + 0.4**2 + 1.5**2))
    assert step_of(Software(), 4.0, 5.0).deviations(ROUND)[0][0] == pytest.approx(
        np.sqrt(either[0] ** 2 + 1.2**2 + 1)
    )
    assert step_of(held.but(changed=("a=1",)), 4.0, 5.0).deviations(ROUND)[0][0] == pytest.approx(
        np.sqrt(either[0] ** 2 + 0.5**2)
    )
    waits = step_of(held, 4.0, 50.0).deviations(ROUND)[1][0]  # no more than the whole step
    assert waits == pytest.approx(np.sqrt(0.6**2 + 0.4**2 + 3**2))


@pytest.mark.parametrize("name", list(ROUND))
def test_no_source_narrows_an_interval(name: str) -> None:
    """More of any source, for any share of the host and of what is fed: never less doubt."""
    for host in (0.0, 3.0, 8.0, 9.5):
        for fed in (0.0, 4.0, 40.0):
            for software in (Software(), Software(held={"a table": ("volta",)})):
                one = step_of(software, host, fed)
                found = [one.deviations(ROUND | {name: size}) for size in (0.0, 0.1, 1.0)]
                for less, most in itertools.pairwise(found):
                    assert most[0] >= less[0]
                    assert most[1] >= less[1]
                wider = step_of(software, host, fed, kernels=0.3).deviations(ROUND)
                assert wider[0] >= one.deviations(ROUND)[0]


def test_how_tensors_lie_is_doubted_where_nobody_says_and_units_care() -> None:
    """LAYOUT of what convolutions take: of nearly all of a ResNet-50, but for what the host adds.

    None on devices whose units don't mind, nor of a transformer, nor where it is said.
    """

    def convolved(model: str, system: str, software: str, precision: str) -> float:
        found = oracle.estimate(model, system, "serial", 64, software=software, precision=precision)
        step = found.work[0].block.step.uncertainty
        assert step.parts["LAYOUT"] == pytest.approx(step.convolved * (not step.software.held))
        return float(step.convolved[0] / step.seconds[0])

    assert 0.3 < convolved("resnet50", "dgx-a100", "plain", "fp16") < 0.9
    assert convolved("resnet50", "frontera", "plain", "fp32") == 0
    assert convolved("gpt2", "dgx-a100", "plain", "fp16") == 0
    assert convolved("resnet50", "dgx-a100", "pytorch-channels-last", "fp16") == 0
    known = Provenance({"fitted": np.full(1, 4.0)}, np.zeros(1), {}, np.full(1, 3.0))
    none = Provenance({"fitted": np.zeros(1)}, np.zeros(1))
    ten, eight = np.full(1, 10.0), np.full(1, 8.0)
    step = Uncertainty(ten, eight, 0 * ten, 0 * ten, 0 * ten, np.full(1, 4.0), 0.0, Software(),
                       np.zeros(1, int), lambda: (known, none, none))  # fmt: skip
    assert step.convolved == pytest.approx([3.0])  # 3/4 of the 4 s that do not wait for the host
    assert known.spread(lambda each: each[np.zeros(3, int)]).convolved.tolist() == [3.0] * 3


def test_pictures_wait_for_their_host_and_tokens_do_not() -> None:
    """2,048 pictures of 226² in three colours on 8 devices: 256 · 3 · 226² / READ = 0.31 s."""
    plan = ["data:8"], 2048
    seen, ahead = (
        oracle.estimate("resnet50", ABCI, *plan, software=name).work[0].block.step.uncertainty
        for name in ("pytorch-ddp", "mlperf-resnet")
    )
    values = float(oracle.model("resnet50").x[0])
    assert seen.fed == pytest.approx(256 * values / constants.READ)
    assert seen.parts["INPUT"] == pytest.approx(np.minimum(seen.seconds, seen.fed))
    assert ahead.fed == 0
    tokens = oracle.estimate("gpt2", DGX, ["data:8"], 64).work[0].block.step.uncertainty
    assert tokens.fed == 0


def test_round_figures_are_doubted_by_units_and_by_work() -> None:
    """Products on units for small matrices: 0.09, on none 0.5; in a step 2/3 of it are common,
    and 0.05 more for each e-fold of work below 10 GFLOP.
    """
    tensor, none = (
        origin(replace(catalogue.device(name), kernels=()), "gemm", "fp16")
        for name in ("a100-sxm4-80gb", "p100-sxm2-16gb")
    )
    assert (tensor.uncertainty, none.uncertainty) == (0.09, constants.UNTILED)
    assert tensor.outside
    for work, more in ((1e12, 0.0), (1e10, 0.0), (1e10 / np.e**2, 0.1)):
        tally = Provenance()
        _modelled(tally, "gemm", np.ones((1, 1)), tensor, np.full((1, 1), work))
        assert tally.doubts["products"][0] == pytest.approx(0.06 + more)
        assert tally.outside[0] == 0


def test_a_curve_is_doubted_no_more_than_none() -> None:
    for name in catalogue.shipped("devices"):
        device = catalogue.device(name)
        bare = replace(device, kernels=())
        for family in ("gemm", "attention", "conv", "stream"):
            for precision in device.peak:
                for part in ("forward", "data", "weight") if family == "conv" else ("",):
                    known, none = (origin(each, family, precision, part) for each in (device, bare))
                    common = constants.COMMON[known.kind], constants.COMMON[none.kind]
                    assert common[0] * known.uncertainty <= common[1] * none.uncertainty


def test_widths_are_fitted_to_how_far_software_moves_predictions() -> None:
    """A table of steps that all move by ± 0.2, half device and half messages: 0.2 in all."""
    whole = Rows("one", "", np.array([0.0, 0.0]), (np.full(2, 0.01), np.zeros(2)), PARTS)
    bare = replace(whole, without="software", ratio=np.array([0.2, -0.2]),
                   parts={**PARTS, "SOFTWARE": np.ones(2)})  # fmt: skip
    found = doubt_fit.fitted([whole, bare])
    assert np.hypot(found["SOFTWARE"], found["HIDES"] * 0.5) == pytest.approx(0.2, rel=0.05)


PARTS = {"STEP": np.ones(2), "HOST": np.zeros(2), "SOFTWARE": np.zeros(2),
         "HIDES": np.full(2, 0.5), "LAYOUT": np.zeros(2), "MORE": np.ones(2),
         "INPUT": np.zeros(2)}  # fmt: skip


def test_every_software_says_only_tables_that_there_are() -> None:
    for name in (Path(oracle.__file__).parents[1] / "specs" / "software").glob("*.yaml"):
        own = {path.stem for path in Path(doubt.__file__).parent.glob("closed_loop.py")}
        assert set(read_software(name.stem).held) <= {*TABLES, *own}


def test_a_table_s_software_was_held_against_it_on_its_devices_and_on_no_others() -> None:
    kinds: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name, table in TABLES.items():
        cases = list(table.cases([row for path in CARRIED.glob(table.file) for row in rows(path)]))
        for case in cases:
            device = catalogue.system(case.system).device
            kinds[case.software.partition(",")[0]][name].add(device.kind)
            if case.kind == "seconds" and case.software != "plain":
                known = read_software(case.software).on(device)
                assert known.held, f"{case.software} in {name} on {device.name}"
    for name, tables in kinds.items():
        for table_name, said in read_software(name).held.items():
            assert set(said) <= tables.get(table_name, set(said)), (name, table_name)


def profiled(spread: float, exact: bool, tmp_path: Path, samples: int = 1) -> Estimate:
    """ResNet-50 from a profile whose rows all vary so much, at its own shape or at another."""
    told = [{**line, "spread": spread, "samples": samples} if "row" in line else line
            for line in lines_of("resnet50", ABCI, ["data:4"], 64)]  # fmt: skip
    path = written(tmp_path / f"{spread}-{samples}.jsonl", told)
    plan = "data:4" if exact else "data:2"  # where the device sets the pace, not its host
    return oracle.estimate("resnet50", "abci", plan, 64, profile=path, software="pytorch-ddp")


@pytest.mark.parametrize("exact", [True, False])
def test_a_profile_that_varies_is_trusted_less(exact: bool, tmp_path: Path) -> None:
    wide = [sides(profiled(spread, exact, tmp_path))[0] for spread in (0.0, 0.01, 0.1, 0.46)]
    assert wide == sorted(wide)
    assert wide[1] < 1.01 * wide[0]
    assert np.log(wide[3]) > 1.8 * np.log(wide[1])


def test_many_samples_are_surer_than_one(tmp_path: Path) -> None:
    """The middle of 16 that vary by 40 % is as sure as one that varies by 10 %."""
    many, one = profiled(0.4, True, tmp_path, 16), profiled(0.1, True, tmp_path)
    assert sides(many) == pytest.approx(sides(one), rel=1e-9)
    assert sides(many)[0] < sides(profiled(0.4, True, tmp_path))[0]


def test_rows_timed_at_their_shapes_leave_less_of_a_step_in_doubt(tmp_path: Path) -> None:
    """STEP is of what no row was timed for; at other shapes it is of the whole step."""
    for exact in (True, False):
        step = profiled(0.0, exact, tmp_path).work[0].block.step.uncertainty
        passes = (step.work - step.launched)[0]
        assert step.timed[0] == pytest.approx(exact * passes, rel=1e-6)
        assert step.parts["STEP"][0] == pytest.approx(step.seconds[0] - exact * passes, rel=1e-6)


def test_the_doubt_of_measured_rows_by_hand() -> None:
    """1 s at its shape, ± 5 % and a spread of 12 %: 0.13 s; 2 s scaled, ± 10 % and 24 %: 0.52 s."""
    model = oracle.model("lenet5")
    count, options = len(model), oracle.estimate("lenet5", ABCI, "serial", 8).options
    seconds, how, spread = np.zeros((1, count)), np.zeros((1, count), np.int8), np.zeros((1, count))
    columns = [k for k, row in enumerate(model.rows) if row.work == "conv"][:2]
    seconds[0, columns], how[0, columns], spread[0, columns] = (1, 2), (2, 1), (0.12, 0.24)
    none = np.zeros((1, count))
    times = Passes(seconds, none, none, (none, none), how, spread)
    ahead, _, _ = provenance(serial(model, 8.0, 4.0), times, np.ones((1, 1)), ABCI.device, options)
    assert ahead.doubts["convolutions"][0] == pytest.approx(0.13 + 0.52)


def test_families_of_one_library_err_alike_and_others_apart() -> None:
    """Of 10 s convolutions err by 0.3 + 0.1 and 0.2 s, passes by 0.4 + 0.4 s: √(0.6² + 0.8²) s."""
    ahead, back = Provenance(), Provenance()
    one = np.ones(1)
    ahead.add("fitted", "conv", 3 * one, 0.0, 0.3)
    ahead.add("assumed", "depthwise", one, 0.0, 0.1)
    ahead.add("assumed", "norm", one, 0.0, 0.4)
    back.add("fitted", "conv", 2 * one, 0.0, 0.2)
    back.add("assumed", "stream", 3 * one, 0.0, 0.4)
    step = replace(step_of(Software(), 0.0, 0.0), sources=lambda: (ahead, back, Provenance()))
    assert step.kernels[0] == pytest.approx(0.1)


def net(extents: list[int], groups: int = 1) -> dict[str, Any]:
    """One convolution that is nearly all of the work."""
    window = [3] * len(extents)
    return {"name": "one", "source": "made up", "input": [32, *extents], "layers": [
        {"conv": {"filters": 32, "kernel": window, "groups": groups, "padding": 1}}]}  # fmt: skip


def test_curves_of_another_family_are_doubted() -> None:
    """Three dimensions by a curve of two, channels by themselves: FAMILY, as rows assumed share."""
    plane, box, alone = (
        oracle.estimate(net(*given), ABCI, "serial", 32).work[0].block.step.uncertainty.kernels[0]
        for given in (([64, 64],), ([16, 16, 16],), ([64, 64], 32))
    )
    assert plane < 0.2
    shared = constants.COMMON["assumed"]
    assert box == pytest.approx(shared * constants.FAMILY, rel=0.1)
    assert alone > shared * constants.FAMILY > 2 * plane


def test_a_way_is_doubted_by_what_is_known_of_it() -> None:
    """Within a node NCCL is known to fall short by less than networks between nodes do."""
    bare = without(ABCI, "network")
    shared = replace(bare, levels=tuple(replace(level, share=0.8) for level in bare.levels))
    one, two = ((4, 1),), ((8, 1),)
    found = [lines(system, "allreduce", pattern, pattern[0][0])[0].short
             for system, pattern in ((bare, one), (shared, two), (bare, two))]  # fmt: skip
    assert found == [constants.SHORT[way] for way in ("inside", "share", "between")]
    assert lines(ABCI, "allreduce", two, 8)[0].short == 0


def test_what_hides_may_show_where_the_network_falls_short() -> None:
    """4 s under 10 s in 4 calls: 1 s shows. Were it 12 s, 12 - 10 < 12 / 4: 3 s do; 20 s: 10."""
    cover = Cover({"forward": np.array([[10.0]])}, {"forward": np.zeros((1, 1))})
    message: Any = SimpleNamespace(hides="forward", when="forward", over="mesh")
    left = [
        float(cover.left(message, np.array([[s]]), np.array([[4.0]]), np.array([True]))[0, 0])
        for s in (4.0, 12.0, 20.0)
    ]
    assert left == [1, 3, 10]
    assert isinstance(Message, type)


def test_a_hidden_exchange_is_doubted_over_an_unknown_network() -> None:
    bare = without(DGX, "network")
    known, unknown = (
        oracle.estimate("megatron-2.5b", system, "data:64", 64, software="pytorch-ddp")
        for system in (without(replace(DGX, levels=tuple(
            replace(level, share=1.0) for level in DGX.levels)), ""), bare)
    )  # fmt: skip
    assert sides(unknown)[1] > 1.1 * sides(known)[1]


def test_what_to_measure_names_the_software() -> None:
    nobody = oracle.estimate("gpt2", DGX, ["data:4", "data:2 tensor:2"], 64, software="plain")
    step = nobody.work[0].block.step.uncertainty
    assert doubts(nobody, 0)["a step under your software"] == pytest.approx(step.untried[0])
    assert step.untried[0] < constants.WIDTHS["SOFTWARE"] * nobody.seconds[0] * 1.5
    whole = sum(part**2 for part in doubts(nobody, 0).values())
    assert whole == pytest.approx(nobody.deviation[0] ** 2)
    held = oracle.estimate("gpt2", DGX, ["data:4"], 64, software="megatron-lm-2022")
    assert not [key for key in doubts(held, 0) if "under" in key]


# --- probabilities ---------------------------------------------------------------------------


def test_likeliest_of_two_by_hand() -> None:
    """ln 1.1 = 0.0953 apart, each ± 0.1 · √½ alone: 0.0953 / 0.1 = 0.953 σ, 83 %."""
    assert likeliest(np.ones(2), np.full(2, 0.1), 100_000) == pytest.approx([0.5, 0.5], abs=0.01)
    found = likeliest(np.array([1.0, 1.1]), np.array([0.1, 0.11]), 100_000)
    assert found == pytest.approx([0.83, 0.17], abs=0.01)


def test_chances_by_hand() -> None:
    """10 of 10: 0.9^10 = 0.349 on that side alone; errors in common make all or none likelier."""
    alone, shared = doubt.chances(10, 10)
    assert alone == pytest.approx(0.349 + 0.264, abs=0.001)  # and what is as unlikely below: ≤ 8
    assert doubt.chances(100, 100)[0] < 0.001 < 0.05 < doubt.chances(100, 100)[1]
    assert doubt.chances(0, 10)[0] < 1e-9 < doubt.chances(0, 10)[1] < 0.01
    assert shared <= 1


def test_repeated_configurations_count_once() -> None:
    """Three of one configuration, in the middle 2 s; one of another that ran; one that did not."""
    cases = [Case((), "gpt2", "dgx-a100", plan, 64, seconds)
             for plan, seconds in (("data:4", 1.0), ("data:4", 2.0), ("data:4", 8.0),
                                   ("data:8", 1.0), ("data:2", np.inf))]  # fmt: skip
    held = doubt.Held(cases, fidelity.predict(cases))
    assert held.distinct() == [(0, pytest.approx(2.0)), (3, pytest.approx(1.0))]


@pytest.fixture(scope="module")
def judged() -> dict[str, Any]:
    return doubt.judged(CARRIED, ["memory_bloom", "b200_memory", "megatron_table5", "bloom"])


@pytest.mark.slow
def test_what_ran_out_of_memory_is_not_said_to_fit(judged: dict[str, Any]) -> None:
    figures = judged["figures"]
    assert figures["fits.out_of_memory"]["value"] <= 0.5
    assert figures["fits.ran"]["value"] >= 0.05
    assert figures["brier.best"]["value"] < figures["brier.best.guess"]["value"]
    assert figures["brier.fits"]["value"] < figures["brier.fits.guess"]["value"]


def test_intervals_of_tables_hold(judged: dict[str, Any]) -> None:
    whole = [line for line in judged["rows"] if not line["without"]]
    assert [line["verdict"] for line in whole] == ["holds"] * 4
    assert not any(line["wide"] for line in judged["rows"])
    fitted = {(line["table"], line["without"]): line["fitted"] for line in judged["rows"]}
    assert fitted["bloom", ""] > 0.5  # so ± 25 % is asked of it
    assert fitted["bloom", "kernels"] == 0
    assert {line["n"] + line["repeats"] for line in whole} == {56, 16, 8, 53}
    assert "megatron_table5" in doubt.text(judged)

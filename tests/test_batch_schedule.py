"""A batch that grows: phases by hand, what a target makes of them, and what is refused."""

import json

import jsonschema
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

import oracle
from oracle.commands.cli import main
from oracle.run.schedule import parsed, scheduled
from oracle.run.target import given, to_target, training
from oracle.show import contract
from oracle.spec.document import SpecError


def shown(batches, reading="none", optimizer="lars"):
    return [oracle.estimate("resnet50", "abci", "data:512", batch, optimizer=optimizer,
                            reading=reading) for batch in batches]  # fmt: skip


def test_phases_by_hand():
    """30, 30 and 30 of 90 epochs at 8,192, 16,384 and 32,768: ⌈30 · 1,281,167 / B⌉ steps each."""
    each = shown([8192, 16384, 32768])
    found = scheduled(parsed("0:8192 30:16384 60:32768"), each, epochs=90)
    steps = [phase.training.length.steps for phase in found.phases]
    assert steps == [-(-30 * 1281167 // batch) for batch in (8192, 16384, 32768)]
    evaluated = sum(phase.training.evaluation for phase in found.phases)
    by_hand = sum(n * float(one.seconds[0]) for n, one in zip(steps, each, strict=True))
    assert found.total("seconds") == pytest.approx(by_hand + evaluated)
    assert [(phase.start, phase.end) for phase in found.phases] == [(0, 30), (30, 60), (60, 90)]


def test_one_phase_is_a_plain_training():
    (one,) = shown([16384], reading="best")
    for how in ({"epochs": 90.0}, {"steps": 1000.0}):
        whole = training(one, 0, given(one, **how))
        assert scheduled(parsed("0:16384"), [one], **how).total("seconds") == whole.seconds
    whole = training(one, 0, to_target(one))
    found = scheduled(parsed("0:16384"), [one], target=True)
    assert found.total("seconds") == pytest.approx(whole.seconds, rel=1e-3)  # whole steps
    assert found.total("low") < found.total("seconds") < found.total("high")


def test_a_target_is_met_when_the_ways_add_up_to_one():
    each = shown([8192, 32768])
    needed = [to_target(one).epochs for one in each]
    found = scheduled(parsed("0:8192 20:32768"), each, target=True)
    assert found.phases[1].end == pytest.approx(20 + (1 - 20 / needed[0]) * needed[1])
    early = scheduled(parsed("0:8192 80:32768"), each, target=True)
    assert len(early.phases) == 1
    assert early.phases[0].end == pytest.approx(needed[0])


def test_what_is_done_once_is_done_before_the_first_phase():
    each = shown([16384, 16384], reading="best")
    both = scheduled(parsed("0:16384 45:16384"), each, epochs=90)
    once = each[0].reading[0]["once"]
    assert once > 0
    whole = training(each[0], 0, given(each[0], epochs=90))
    assert both.total("seconds") == pytest.approx(whole.seconds, rel=2e-3)


@drawn(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 2**20)), max_size=10))
def test_what_is_written_is_read(pairs):
    starts = sorted(dict(pairs).items())
    text = " ".join(f"{at}:{batch}" for at, batch in [(0, 8), *starts])
    assert [(one.at, one.batch) for one in parsed(text)] == [(0, 8), *starts]


@pytest.mark.parametrize("text", ["", "8192", "0:0", "5:8192", "0:8 30:16 20:32", "0:8 x:9",
                                  "0:8,0:9", "0:-8", "0:8 1e3:9", "0:8 " * 100])  # fmt: skip
def test_odd_schedules_are_refused(text):
    with pytest.raises(SpecError):
        parsed(text)


def test_a_schedule_longer_than_its_training_is_refused():
    with pytest.raises(SpecError, match="the last phase begins at 90 epochs"):
        scheduled(parsed("0:8192 90:16384"), shown([8192, 16384]), epochs=90)
    with pytest.raises(SpecError, match="nothing says when"):
        scheduled(parsed("0:8192"), shown([8192]))


def test_by_the_command_line(capsys):
    words = ["recommend", "resnet50", "abci", "--devices", "64", "--epochs", "90", "--reading",
             "none", "--only", "data", "--schedule", "0:16 30:8192"]  # fmt: skip
    assert main([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, contract.answer("schedule"))
    first, second = data["phases"]
    assert first["devices"] <= 16 < second["devices"] == 64  # no device without a sample
    assert data["training"]["seconds"] == pytest.approx(first["seconds"] + second["seconds"])
    assert main(["estimate", "llama3-8b", "dgx-h100", "--plan", "data:128,zero=3", "--tokens",
                 "1T", "--schedule", "0:128 252M:256"]) in (0, 1)  # fmt: skip
    assert "0-252M tokens" in capsys.readouterr().out
    assert main([*words, "--batch", "8"]) == 2
    assert main(["estimate", "resnet50", "abci", "--plan", "data:8", "--plan", "data:4",
                 "--schedule", "0:64", "--epochs", "9"]) == 2  # fmt: skip
    assert main(["estimate", "resnet50", "abci", "--plan", "data:8"]) == 2

"""A user's own trainings as a `convergence:` of a model: read, fitted, written, refused."""

import json

import jsonschema
import numpy as np
import pytest

import oracle
from oracle.calibration.convergence import block, fitted, merged
from oracle.commands.cli import main
from oracle.readers.trainings import parse
from oracle.show import contract
from oracle.spec.document import SpecError

BATCHES = (512, 2048, 8192, 32768)


def table(critical=20_000.0, least=40.0, runs=1, scatter=0.0):
    """Runs of the law itself, several of a batch about it."""
    dice = np.random.default_rng(0)
    lines = ["batch,epochs,seed"]
    for batch in BATCHES:
        for seed in range(runs):
            epochs = least * (1 + batch / critical) * np.exp(dice.normal(0, scatter))
            lines.append(f"{batch},{epochs:.9g},{seed}")
    return "\n".join(lines) + "\n"


def test_the_law_is_found_again():
    read = parse(table())
    assert read.unread == ("seed",)
    (found,) = fitted(read.runs, "x", "lars", "75.9 %")
    assert found.entry.epochs == pytest.approx(40, rel=1e-3)
    assert found.entry.critical_batch == pytest.approx(20_000, rel=1e-2)
    assert (found.entry.smallest, found.entry.largest) == (512, 32768)
    assert (found.among, found.runs, found.batches) == (None, 4, 4)
    assert max(abs(error) for _, error in found.left) < 1e-3


def test_runs_of_one_batch_tell_the_scatter():
    (found,) = fitted(parse(table(runs=40, scatter=0.1)).runs, "x", "lars", "75.9 %")
    assert found.among == pytest.approx(0.1, rel=0.15)
    assert found.entry.scatter == pytest.approx(np.hypot(found.law.scatter, found.among), rel=0.01)


def test_steps_and_samples_are_epochs_of_a_data_set():
    text = "batch,samples,steps\n10,2000,\n20,,100\n40,,50\n80,,25\n"
    (found,) = fitted(parse(text).runs, "x", "lars", "t")
    assert (found.entry.epochs, found.entry.samples) == (None, 2000)
    (found,) = fitted(parse(text).runs, "x", "lars", "t", samples=1000.0)
    assert (found.entry.epochs, found.entry.critical_batch) == (2, None)
    mixed = parse("batch,epochs,steps\n10,2,\n20,,100\n40,,50\n").runs
    assert fitted(mixed, "x", "lars", "t", samples=1000.0)[0].entry.epochs == 2
    with pytest.raises(SpecError, match="some runs are in epochs"):
        fitted(mixed, "x", "lars", "t")


def test_each_optimizer_and_target_has_a_law_and_runs_that_failed_are_left_out():
    text = ("batch,epochs,optimizer,target,met\n8,30,adam,a,yes\n64,32,adam,a,\n512,40,adam,a,1\n"
            "4096,90,adam,a,no\n8,20,lamb,a,\n64,21,lamb,a,\n")  # fmt: skip
    one, other = fitted(parse(text).runs, "x")
    assert (one.entry.optimizer, one.missed, one.entry.largest) == ("adam", ((4096, 1),), 512)
    assert (other.entry.optimizer, other.batches) == ("lamb", 2)
    assert other.entry.scatter >= 0.4  # two batches tell no scatter
    with pytest.raises(SpecError, match="no run of adam met a"):
        fitted(parse("batch,epochs,optimizer,target,met\n8,3,adam,a,no\n").runs, "x")


def test_all_that_is_odd_is_refused_at_once():
    with pytest.raises(SpecError) as error:
        parse("batch,epochs,steps,met\n10.5,3,,\nx,3,4,perhaps\n12,-1,,\n9,,,\n")
    assert len(error.value.faults) == 6
    assert [fault.place.line for fault in error.value.faults] == [2, 3, 3, 3, 4, 5]
    for text in ("epochs\n3\n", "batch\n3\n", "batch,epochs,epochs\n1,2,3\n", "batch,epochs\n",
                 "batch,epochs\n8,inf\n", "batch,epochs\n8,1e400\n", ""):  # fmt: skip
        with pytest.raises(SpecError):
            parse(text)


def test_a_new_entry_takes_the_place_of_its_own_alone():
    old = oracle.model("resnet50").convergence
    (found,) = fitted(parse(table()).runs, "x", "lars", "75.9 % top-1")
    both = merged(old, [found.entry])
    assert [one.optimizer for one in both] == ["lars", "kfac"]
    assert both[0].epochs == pytest.approx(40)
    assert 'target: "a \\"b\\" ?"' in block([oracle.model("resnet50").convergence[0].__class__(
        "sgd", 'a "b" \x07', "x", epochs=1.0)])  # fmt: skip


def test_by_the_command_line(tmp_path, capsys):
    runs, mine = tmp_path / "runs.csv", tmp_path / "mine.yaml"
    runs.write_text(table(runs=3, scatter=0.02))
    words = ["calibrate", "convergence", str(runs), "--optimizer", "lars", "--target",
             "75.9 % top-1"]  # fmt: skip
    assert main([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, contract.answer("convergence"))
    assert main([*words, "--onto", "resnet50", "-o", str(mine)]) == 0
    assert "each batch as the others predict it" in capsys.readouterr().out
    assert oracle.model(mine).convergence[0].epochs == pytest.approx(40, rel=0.03)
    assert main([*words, "-o", str(tmp_path / "b.yaml")]) == 2
    assert main([*words[:3]]) == 2
    assert main([*words, "--ranks", "4"]) == 2
    assert "not for `calibrate convergence`" in capsys.readouterr().err

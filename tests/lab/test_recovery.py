"""Checkpoints and failures of a real training take what is predicted of them."""

import json

import pytest

from benchmarks import recovery_loop

pytest.importorskip("torch")


def test_a_training_that_fails_takes_what_is_predicted(tmp_path, capsys):
    assert recovery_loop.main(["--json", "--out", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)["figures"]
    assert found["recovery_loop.bytes.worst"]["value"] == 0
    assert found["recovery_loop.seconds.worst"]["value"] < recovery_loop.GOALS["seconds"]
    assert found["recovery_loop.whole.worst"]["value"] < recovery_loop.GOALS["whole"]

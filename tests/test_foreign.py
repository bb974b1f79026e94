"""What a user holds is taken where a MODEL is asked for, with a line that says how it was read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import NCCL, told

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
    "intermediate_size": 688, "num_attention_heads": 8, "num_key_value_heads": 4,
    "num_hidden_layers": 4, "vocab_size": 1000, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path / "small"


@pytest.mark.parametrize("whole", [False, True])
def test_a_config_and_its_folder_are_read(folder: Path, whole: bool, capsys: Any) -> None:
    what = str(folder if whole else folder / "config.json")
    line = ["ethernet-pair", "--plan", "data:2", "--batch", "8", "--json"]
    code, out, err = told(capsys, "estimate", what, *line)
    assert code == 0
    assert f"read {folder / 'config.json'} as `oracle import huggingface " in err
    (kept,) = (folder.parent / "cache" / "oracle" / "models").iterdir()
    assert told(capsys, "estimate", str(kept), *line)[0] == 0
    place = folder / "my.yaml"
    told(capsys, "import", "huggingface", str(folder / "config.json"), "-o", str(place))
    mine = json.loads(told(capsys, "estimate", str(place), *line)[1])
    assert json.loads(out)["plans"] == mine["plans"]


def test_a_sequence_of_another_length_is_taken(folder: Path, capsys: Any) -> None:
    line = ["estimate", str(folder), "ethernet-pair", "--plan", "data:2", "--batch", "8"]
    code, out, err = told(capsys, *line, "--sequence", "128")
    assert (code, "--tokens 128" in err) == (0, True)
    assert "sequence=" not in out
    assert told(capsys, *line, "-q")[2] == ""


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "mine"}', '{"layers": []}'])
def test_what_is_no_config_is_a_spec_with_its_own_errors(
    tmp_path: Path, text: str, capsys: Any
) -> None:
    (tmp_path / "m.json").write_text(text)
    line = ["ethernet-pair", "--plan", "data:2", "--batch", "8"]
    code, _, err = told(capsys, "estimate", str(tmp_path / "m.json"), *line)
    assert code == 2
    assert err.startswith("error[E1")
    assert "huggingface" not in err


def test_logs_without_a_system_are_told_what_to_add(capsys: Any, tmp_path: Path) -> None:
    """The last log was taken for the system, and one log alone for none."""
    for logs in ([NCCL], [NCCL, NCCL], [NCCL, str(tmp_path)]):
        code, _, err = told(capsys, "calibrate", *logs)
        assert code == 2
        assert "nothing says which system these logs are of" in err
        assert "--onto SYSTEM" in err
        assert all(log in err for log in logs)

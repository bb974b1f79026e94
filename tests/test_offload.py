"""What lies beside the device: bytes and seconds by hand, room for it, who is told of it, laws."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from oracle.commands.cli import main
from oracle.network.host import START, STREAMED

MODEL, SYSTEM, LAYERS = "gpt2", "dgx-a100-40gb", "data:8,zero=1,accumulate=2"
WEIGHTS = 124_439_808  # of GPT-2
LINK, MEMORY = 25e9, STREAMED * 400e9 / 8


def asked(plan: str, **more: Any) -> Any:
    return oracle.estimate(MODEL, SYSTEM, plan, batch=64, software="deepspeed", **more)


def why(found: Any) -> str:
    return " ".join(found.broken[0])


def sent(found: Any, row: int = 0) -> dict[str, Any]:
    return {one["what"].removeprefix("offload: "): one for one in found.exchange[row]
            if one["what"].startswith("offload")}  # fmt: skip


def test_seconds_of_an_optimizer_on_the_host_by_hand() -> None:
    """An eighth of the weights: 2 bytes out each time and back, 28 through the host's memory."""
    found = asked(f"{LAYERS} offload:optimizer")
    one, mine = sent(found), WEIGHTS / 8
    starts = START * 2 * 14  # a copy of each of 14 units, twice
    out = 2 * mine * 2 / LINK + starts
    assert one["gradients out"]["seconds"] == pytest.approx(out, rel=1e-3)
    added = 2 * mine * 12 / MEMORY + starts
    assert one["gradients added up on the host"]["seconds"] == pytest.approx(added, rel=1e-3)
    assert one["update on the host"]["seconds"] == pytest.approx(mine * 28 / MEMORY, rel=0.01)
    assert one["weights back"]["seconds"] == pytest.approx(mine * 2 / LINK, rel=0.02)
    assert one["update on the host"]["exposed"] == one["update on the host"]["seconds"]
    assert one["gradients out"]["exposed"] < one["gradients out"]["seconds"]
    assert found.compute["update"][0] == 0.0  # the device renews nothing


def test_bytes_of_an_optimizer_on_the_host_by_hand() -> None:
    here, there = (asked(plan) for plan in (LAYERS, f"{LAYERS} offload:optimizer"))
    assert here.memory_kinds["optimizer"][0] == pytest.approx(12 * WEIGHTS / 8, rel=1e-3)
    assert there.memory_kinds["optimizer"][0] == 0
    assert there.memory_kinds["gradients"][0] == 0
    assert there.memory_kinds["weights"] == pytest.approx(here.memory_kinds["weights"])
    for plan, each in (("offload:optimizer", 12 + 4), ("offload:weights+optimizer", 12 + 4 + 2)):
        (held,) = (work.block.held for work in asked(f"data:8,zero=3,accumulate=2 {plan}").work)
        assert held.beside[0] == pytest.approx(each * WEIGHTS / 8, rel=1e-3)


def test_weights_on_the_host_come_in_for_either_pass() -> None:
    """A unit at a time, beside the units before it."""
    found = asked("data:8,zero=3,accumulate=2 offload:weights+optimizer")
    one = sent(found)
    for name in ("weights in", "weights in again"):
        taken = 2 * WEIGHTS / 8 * 2 / LINK + 2 * 14 * START
        assert one[name]["seconds"] == pytest.approx(taken, rel=1e-3)
        assert one[name]["exposed"] < one[name]["seconds"]
    bare = asked("data:8,zero=3,accumulate=2")
    assert found.memory_kinds["weights"][0] < bare.memory_kinds["weights"][0]
    assert "weights back" not in one


def test_disks_read_and_write_all_state() -> None:
    one = sent(asked("data:8,zero=3 offload:optimizer,to=disk"))
    whole = 2 * 12 * WEIGHTS / 8 / (25e9 / 8)
    assert one["state from disk and back"]["seconds"] == pytest.approx(whole, rel=0.01)


def test_an_update_that_comes_late_hides_under_the_next_iteration() -> None:
    now, late = (
        asked(f"data:8,zero=1,accumulate=8 offload:optimizer{more}", any_plan=True)
        for more in ("", ",delayed=on")
    )
    assert late.seconds[0] < now.seconds[0]
    one = sent(late)["update on the host, delayed"]
    assert one["seconds"] == pytest.approx(sent(now)["update on the host"]["seconds"], rel=0.01)
    assert one["exposed"] < one["seconds"]


def test_a_device_that_renews_its_state_takes_it_in() -> None:
    found = asked("data:8,zero=1 offload:optimizer,update=device", any_plan=True)
    assert sent(found)["state in"]["seconds"] == pytest.approx(12 * WEIGHTS / 8 / LINK, rel=0.01)
    assert found.compute["update"][0] > 0


def test_software_says_where_gradients_are_added_up() -> None:
    """Megatron-Core keeps them and copies once a step: fp32, with nothing to hide it."""
    found = oracle.estimate(MODEL, SYSTEM, f"{LAYERS} offload:optimizer", batch=64,
                            software="megatron-core")  # fmt: skip
    one = sent(found)
    assert {"gradients out at the end", "update on the host", "weights back"} == {*one}
    assert one["gradients out at the end"]["seconds"] == pytest.approx(4 * WEIGHTS / 8 / LINK,
                                                                       rel=0.02)  # fmt: skip
    assert found.memory_kinds["gradients"][0] == pytest.approx(4 * WEIGHTS, rel=0.05)


def test_copies_and_messages_hide_beside_each_other() -> None:
    """Each link has an engine of its own: copies under all of a pass leave gradients theirs."""
    where = oracle.system(SYSTEM)
    where = replace(where, host=replace(where.host, link=3e9))
    here, there = (
        oracle.estimate("llama2-7b", where, f"data:8,zero=1{more}", batch=8, software="deepspeed")
        for more in ("", " offload:optimizer")
    )
    out = sent(there)["gradients out"]
    assert out["seconds"] - out["exposed"] == pytest.approx(there.compute["backward"][0], rel=0.01)
    assert here.exchange[0][0]["exposed"] < 0.7 * here.exchange[0][0]["seconds"]
    shown = {one["what"]: one["exposed"] for one in there.exchange[0]}
    for one in here.exchange[0]:
        assert shown[one["what"]] == pytest.approx(one["exposed"])


def test_host_memory_has_an_end() -> None:
    where = oracle.system(SYSTEM)
    small = replace(where, host=replace(where.host, memory=1e9))
    plan = "data:8,zero=3 offload:optimizer"
    words = why(oracle.estimate(MODEL, small, plan, batch=64, software="deepspeed"))
    assert "a node, in the memory of the host" in words
    bare = replace(where, host=None, storage=None)
    words = why(oracle.estimate(MODEL, bare, plan, batch=64, software="deepspeed"))
    assert "`host.memory` of the system" in words
    plan += ",to=disk"
    words = why(oracle.estimate(MODEL, bare, plan, batch=64, software="deepspeed"))
    assert "`storage.local.capacity` of the system" in words


@pytest.mark.parametrize(("plan", "said"), [
    ("data:8 offload:nothing,to=disk", "nothing is said to lie beside the device"),
    ("data:8 offload:optimizer,update=device,delayed=on", "cannot be delayed"),
    ("data:8 offload:optimizer", "ZeRO alone lays state beside the device"),
    ("data:8,zero=1 offload:weights+optimizer", "under ZeRO-3 only"),
])  # fmt: skip
def test_plans_that_mean_nothing_are_not_feasible(plan: str, said: str) -> None:
    assert said in why(asked(plan))


def test_it_is_searched_where_nothing_fits(capsys: Any) -> None:
    """70 billion weights on eight devices of 40 GB; 1.13 TB do not fit 1 TB of the host either."""
    line = ["recommend", "llama3-70b", SYSTEM, "--devices", "8", "--batch", "64", "--json"]
    assert main([*line, "--software", "deepspeed"]) == 0
    best = json.loads(capsys.readouterr().out)["plans"][0]
    assert "offload:weights+optimizer,to=disk" in best["plan"]
    assert any("state from disk" in one["what"] for one in best["exchange"])


@pytest.mark.slow
def test_software_that_can_be_told_is_named_where_nothing_fits(capsys: Any) -> None:
    line = ["recommend", "llama3-70b", SYSTEM, "--devices", "8", "--batch", "64"]
    assert main([*line, "--software", "megatron-core"]) == 1
    said = capsys.readouterr().out
    assert "outside the devices under --software deepspeed: it fits so" in said
    # weights in 16 bits and gradients in 32 over eight devices: the nearest that there is
    plan, _, needs = said.split("misses:\n")[1].partition("needs")
    assert {"tensor:8,sequence=on", "offload:optimizer"} <= set(plan.split())
    assert "of 838 GiB a node, in the memory of the host" in needs.splitlines()[0]
    assert main([*line, "--software", "megatron-core", "--any", "--without", "offload"]) == 1
    assert "outside the devices" not in capsys.readouterr().out


def test_it_is_not_searched_where_something_fits_without() -> None:
    found = oracle.recommend(MODEL, SYSTEM, devices=8, batch=64, software="deepspeed")
    assert not any("offload" in plan for plan in found.estimate.plans)
    asked = oracle.recommend(MODEL, SYSTEM, devices=8, batch=64, software="deepspeed",
                             only=["data", "offload"], objective="memory")  # fmt: skip
    assert any("offload" in plan for plan in asked.estimate.plans)


@pytest.mark.parametrize(("form", "plan", "wanted"), [
    ("megatron", "data:8,zero=1 offload:optimizer",
     ("--optimizer-cpu-offload", "--use-precision-aware-optimizer")),
    ("deepspeed", "data:8,zero=3 offload:weights+optimizer",
     ('"offload_optimizer"', '"offload_param"')),
])  # fmt: skip
def test_launchers_are_told(
    form: str, plan: str, wanted: tuple[str, ...], capsys: Any, tmp_path: Any
) -> None:
    line = ["export", form, MODEL, SYSTEM, "--batch", "64", "--plan", plan, "-o",
            str(tmp_path / "job")]  # fmt: skip
    assert main(line) == 0, capsys.readouterr().err
    text = "".join(path.read_text() for path in (tmp_path / "job").iterdir())
    assert all(word in text for word in wanted)


@given(
    st.sampled_from(
        ["optimizer", "weights+optimizer", "optimizer,to=disk", "weights+optimizer,update=device"]
    ),
    st.sampled_from([1, 2, 4]),
)
def test_what_is_away_takes_no_room_and_some_time(what: str, pieces: int) -> None:
    plan = f"data:8,zero=3,accumulate={pieces}"
    here, there = (asked(text, any_plan=True) for text in (plan, f"{plan} offload:{what}"))
    assert there.memory[0] < here.memory[0]
    assert there.seconds[0] > here.seconds[0]
    assert there.seconds_high[0] / there.seconds[0] > here.seconds_high[0] / here.seconds[0]

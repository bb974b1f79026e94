"""What was counted of a system is kept in a file, which may be missing, damaged or anybody's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans_drawn import law

import oracle
from oracle.commands.cli import main
from oracle.network.contention import lines, offer_store, price
from oracle.network.contention.cached import cache_of
from oracle.network.contention.offer_store import OfferStore, store_of

SYSTEMS = sorted(path.stem for path in (Path(__file__).parents[1] / "specs/systems").glob("*.yaml"))
PATTERN, DEVICES = ((128, 8),), 1024


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for files, nothing of which is written when this process ends."""
    monkeypatch.setenv("ORACLE_COUNTS", str(tmp_path / "kept"))
    monkeypatch.setattr(offer_store.atexit, "register", lambda save: None)
    return tmp_path / "kept"


def counted(name: str = "dgx-a100") -> Any:
    """Offers as a process that has counted nothing yet comes to them, and what it would keep."""
    system = replace(oracle.system(name))
    offer = lines(system, "allreduce", PATTERN, DEVICES)
    return offer, cache_of(system)["store"]


def test_what_one_process_counted_another_finds(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer, store = counted()
    assert not folder.exists()
    store.save()
    (file,) = folder.iterdir()
    assert json.loads(file.read_text())

    def never(*given: Any) -> Any:
        raise AssertionError("counted again")

    monkeypatch.setattr(price, "_lines", never)
    again, other = counted()
    assert again == offer
    assert not other.new


@pytest.mark.parametrize("name", SYSTEMS)
def test_offers_of_every_system_come_back_as_they_were(name: str, folder: Path) -> None:
    system = replace(oracle.system(name))
    for op in ("allreduce", "alltoall"):
        lines(system, op, ((64, 8),), 512)
    store = cache_of(system)["store"]
    store.save()
    assert store.place is None or OfferStore(store.place).offers == store.offers


def test_other_systems_and_other_code_have_other_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = store_of(oracle.system("dgx-a100")).place
    assert place == store_of(oracle.system("dgx-a100")).place
    assert place != store_of(oracle.system("dgx-h100")).place
    assert place != store_of(oracle.system("dgx-a100").of_size(65536, grow=True)).place
    monkeypatch.setattr(offer_store, "code_digest", lambda: "older")
    assert place != store_of(oracle.system("dgx-a100")).place


def test_two_processes_keep_what_both_counted(folder: Path) -> None:
    (_, one), (_, other) = counted(), counted()
    other.offers = {"theirs": next(iter(other.offers.values()))}
    one.save()
    other.save()
    assert {"theirs", *one.offers} == {*OfferStore(one.place).offers}


@pytest.mark.parametrize("said", ["off", "/proc/nowhere", __file__])
def test_where_no_file_can_be_answers_are_the_same(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORACLE_COUNTS", "off")
    offer, store = counted()
    assert store.place is None
    monkeypatch.setenv("ORACLE_COUNTS", said)
    monkeypatch.setattr(offer_store.atexit, "register", lambda save: None)
    again, store = counted()
    store.save()
    assert again == offer


JSON = st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(
                        st.text(max_size=3), inner, max_size=3), max_leaves=20)  # fmt: skip


@law
@given(st.one_of(JSON.map(lambda tree: json.dumps(tree).encode()), st.binary(max_size=60),
                 st.dictionaries(st.text(max_size=3), st.lists(st.lists(
                     st.sampled_from(["ring", 1.0, 2, True, [], ["nvlink"], [1.0, "x"], None]),
                     min_size=9, max_size=11), max_size=2), max_size=2)
                 .map(lambda tree: json.dumps(tree).encode())))  # fmt: skip
def test_any_file_is_read_as_lines_or_as_nothing(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    place = tmp_path_factory.mktemp("any") / "file.json"
    place.write_bytes(content)
    for offer in OfferStore(place).offers.values():
        assert offer.numbers.shape == (8, len(offer.cheapest))


def test_the_oldest_files_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offer_store, "FILES", 2)
    for name in ("dgx-a100", "dgx-h100", "eos"):
        counted(name)[1].save()
    assert len([*folder.iterdir()]) == 2


def test_the_flag_says_where_counts_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ORACLE_CACHE", "off")
    monkeypatch.setattr(offer_store.atexit, "register", lambda save: save)
    folder = tmp_path / "counts"
    assert main(["estimate", "resnet50", "abci", "--plan", "data:4", "--batch", "64",
                 "--counts", str(folder)]) == 0  # fmt: skip
    assert offer_store.folder_of() == folder
    capsys.readouterr()

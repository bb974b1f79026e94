"""Seconds of reading: each equation worked by hand, and laws over every mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from oracle.spec.dataset import Dataset
from oracle.spec.storage import Disk, Host, SharedFiles
from oracle.storage import (
    MODES,
    Machine,
    Question,
    Samples,
    Shuffle,
    checkpoint,
    file_system,
    loader,
)
from oracle.storage import shuffle as shuffle_of

SHARED = SharedFiles(100e9, write=100e9, per_node=1.2e9, streams=16, open=0.5e-3, metadata=60e3)
DISK = Disk(480e6, write=400e6, capacity=144e9, open=30e-6)
HOST = Host(50e9 / 0.7, 40, "", bandwidth=100e9)
HERE = Machine(SHARED, DISK, HOST, ports=12.5e9, latency=2e-6)
PICTURES = Samples(1e6, 100e9, 1e6, 1000)  # of 100 kB, a file each
BOXES = Samples(1000, 1e12, 1000)  # of 1 GB


def asked(samples: Samples = PICTURES, batch: Any = 4096.0, nodes: Any = 16.0, **more: Any) -> Any:
    given_ = {"groups": 64.0, "parts": 1.0, **more}
    return Question(given_.pop("machine", HERE), samples, batch, nodes, **given_)


def ms(value: Any) -> float:
    return float(np.asarray(value).ravel()[0]) * 1e3


def test_the_shared_file_system_by_hand() -> None:
    """4,096 files of 100 kB, 16 nodes of 32 threads: opened at 60,000 operations a second."""
    found = MODES["shared"](asked())
    terms = {name: ms(took) for name, took in found.terms.items()}
    assert terms == pytest.approx({
        "bandwidth": 409.6e6 / (16 * 1.2e9) * 1e3,
        "metadata": 4096 * 3 / 60e3 * 1e3,
        "latency": (256 * 0.5 + 25.6e6 / 75e6 * 1e3) / 32,
        "decode": 0.0,
    })  # fmt: skip
    assert ms(found.load) == pytest.approx(204.8)
    assert found.bound_by == ["metadata"]
    assert found.listing == pytest.approx(64 * 1000 / 60e3)
    assert float(found.opens) == 4096
    # of 512 nodes the servers are the limit, not the clients; few threads are limited by one read
    many = MODES["shared"](asked(nodes=512.0, groups=512.0))
    assert ms(many.terms["bandwidth"]) == pytest.approx(409.6e6 / 100e9 * 1e3)
    slow = replace(HERE, host=replace(HOST, cores=5))
    few = MODES["shared"](asked(machine=slow))
    assert ms(few.terms["bandwidth"]) == pytest.approx(409.6e6 / (16 * 4 * 75e6) * 1e3)


def test_a_storm_of_listing_at_the_start() -> None:
    """64 processes and ImageNet's 2,002 directories: 128 thousand operations, as was seen."""
    one = replace(SHARED, metadata=1.0)
    assert file_system.listing(one, 64, 1.3e6, 2002) == pytest.approx(128_128)
    assert file_system.listing(one, 64, 1.3e6, 1) == pytest.approx(64 * 1300)  # all in one
    looked = file_system.listing(one, 64, 1.3e6, 2002, look=True)
    assert looked == pytest.approx(64 * 1_302_002)


def test_objects_are_got_by_name() -> None:
    """One request each, and no list of them."""
    store = replace(SHARED, kind="objects", metadata=5500.0)
    found = MODES["shared"](asked(machine=replace(HERE, shared=store)))
    assert ms(found.terms["metadata"]) == pytest.approx(4096 / 5.5)
    assert float(found.listing) == 0


def test_staging_by_hand() -> None:
    found = MODES["staged"](asked())
    assert ms(found.load) == pytest.approx(25.6e6 / 480e6 * 1e3)
    assert ms(found.terms["latency"]) == pytest.approx(256 * 0.03 / 32)
    assert float(found.staging) == pytest.approx(100e9 / 400e6)  # all of it to every disk
    part = MODES["staged"](asked(shuffle=shuffle_of("local")))
    assert float(part.staging) == pytest.approx(3e6 / 60e3)  # 6.25 GB each, but all files opened
    some = MODES["staged"](asked(shuffle=shuffle_of("partial:0.1")))
    assert ms(some.network) == pytest.approx(0.1 * 25.6e6 / 12.5e9 * 1e3)
    assert ms(part.network) == 0
    slow = replace(HERE, ports=0.2e9)  # and what was read once is passed on
    assert float(MODES["staged"](asked(machine=slow)).staging) == pytest.approx(93.75e9 / 0.2e9)


def test_room_is_checked() -> None:
    """455 GB on disks of 60 GB take eight nodes."""
    small = replace(HERE, local=replace(DISK, capacity=60e9))
    data = Samples(1e6, 455e9, 1e6)
    found = MODES["striped"](asked(data, nodes=np.array([7.0, 8.0]), machine=small))
    assert found.possible.tolist() == [False, True]
    assert found.short == pytest.approx([5e9, 0])
    whole = MODES["staged"](asked(data, machine=small))
    assert float(whole.short) == pytest.approx(395e9)
    unsaid = replace(HERE, local=replace(DISK, capacity=None))
    assert bool(MODES["staged"](asked(data, machine=unsaid)).possible)


def test_memory_answers_what_fits() -> None:
    """Half of the data: half the reads, whatever the policy."""
    found = MODES["cached"](asked())
    assert ms(found.load) == pytest.approx(0.5 * 204.8 + 0.5 * 25.6e6 / 100e9 * 1e3)
    assert ms(found.first) == pytest.approx(204.8)
    assert found.bound_by == ["metadata"]
    own = MODES["cached"](asked(shuffle=shuffle_of("local")))  # 6.25 GB a node all fit
    assert ms(own.load) == pytest.approx(25.6e6 / 100e9 * 1e3)
    assert own.bound_by == ["memory"]
    some = MODES["cached"](asked(shuffle=shuffle_of("partial:0.25")))
    assert ms(some.load) == pytest.approx(0.25 * 204.8 + 0.75 * 0.256)


@pytest.mark.parametrize("step", [0.001, 0.1, 0.2, 0.3])
@pytest.mark.parametrize("nodes", [1, 2, 16])
@pytest.mark.parametrize("epochs", [1, 2, 5, 90])
def test_memory_fills_epoch_by_epoch(step: float, nodes: int, epochs: int) -> None:
    first, full = 0.2048, 0.000256
    misses = [(1 - 1 / nodes) ** before for before in range(epochs)]
    longer = sum(max(full + (first - full) * miss - step, 0.0) for miss in misses)
    found = loader.slower(step, first, full, 1 - 1 / nodes, epochs)
    assert float(found) == pytest.approx(longer, abs=1e-12)


def test_memory_of_a_node_that_reads_a_part_each_epoch() -> None:
    found = MODES["cached"](asked())
    assert float(found.left) == pytest.approx(15 / 16)
    assert ms(found.full) == pytest.approx(0.256)
    own = MODES["cached"](asked(shuffle=shuffle_of("local")))
    assert float(own.left) == pytest.approx(0)


def test_striping_by_hand() -> None:
    """15 of 16 files lie on another node's disks."""
    found = MODES["striped"](asked())
    near, served = 1.6e6 / 480e6, 24e6 / 480e6
    named = 240 * (2 * 2e-6 + 30e-6) / 32
    assert ms(found.load) == pytest.approx((near + served + named) * 1e3)
    assert ms(found.network) == pytest.approx(24e6 / 12.5e9 * 1e3)
    slow = MODES["striped"](asked(machine=replace(HERE, ports=0.1e9)))
    assert ms(slow.load) == pytest.approx((near + 24e6 / 0.1e9 + named) * 1e3)
    assert slow.bound_by == ["network"]
    packed = replace(PICTURES, compression=2.0, unpack=50e6)
    half = MODES["striped"](asked(packed))
    assert ms(half.load) == pytest.approx(((near + served) / 2 + named) * 1e3)
    assert ms(half.terms["decode"]) == pytest.approx(256 * 100e3 / 50e6 / 32 * 1e3)


def test_parts_of_samples_by_hand() -> None:
    """8 samples of 1 GB on 64 ranks of 16 nodes, each cut in eight."""
    question = asked(BOXES, batch=8.0, groups=8.0, parts=8.0, scatter=50e9)
    led = MODES["shared"](question)  # eight nodes read, one thread each
    assert ms(led.load) == pytest.approx((0.5e-3 + 1e9 / 75e6) * 1e3)
    assert ms(led.alone) == pytest.approx(7 / 8 * 1e9 / 50e9 * 1e3)
    own = MODES["spatial"](question)  # all sixteen, with 32 threads each
    assert ms(own.first) == pytest.approx(8e9 / (16 * 1.2e9) * 1e3)
    assert float(own.opens) == 64
    assert ms(own.load) == ms(own.first)  # 62.5 GB a node do not fit in its memory
    roomy = replace(HERE, host=replace(HOST, memory=500e9))
    kept = MODES["spatial"](asked(BOXES, batch=8.0, groups=8.0, parts=8.0, machine=roomy))
    assert ms(kept.load) == pytest.approx(0.5e9 * 15 / 16 / 12.5e9 * 1e3)
    whole = MODES["spatial"](asked(BOXES, parts=np.array([1.0, 8.0])))
    assert whole.possible.tolist() == [False, True]
    assert "format" in MODES["spatial"](replace(question, samples=replace(BOXES, parts=False))).why


def test_cores_make_samples_and_the_slowest_node_waits_for_its_own() -> None:
    found = MODES["shared"](asked(replace(PICTURES, decode=30e-3)))
    assert ms(found.load) == pytest.approx(256 * 30 / 32)
    assert found.bound_by == ["decode"]
    greatest = 1.7685  # of 16 normal numbers, Φ⁻¹(15.625/16.25)
    most = 1 + 2 * greatest / np.sqrt(512)
    uneven = replace(PICTURES, spread=2.0)
    even, odd = (MODES["staged"](asked(data)) for data in (PICTURES, uneven))
    assert ms(odd.load) == pytest.approx(ms(even.load) * most, rel=1e-4)  # its own disks
    # files are as many, and what all share serves the sum, whoever has the most
    assert ms(MODES["shared"](asked(uneven)).load) == pytest.approx(204.8)
    narrow = replace(HERE, shared=replace(HERE.shared, bandwidth=1e9, metadata=1e9))
    found = MODES["shared"](asked(uneven, machine=narrow)).terms["bandwidth"]
    assert float(found) == pytest.approx(16 * float(asked(uneven).nbytes()) / 1e9)


def test_a_step_waits_for_what_is_not_hidden() -> None:
    assert float(loader.step(0.2, 0.1)) == 0.2
    assert float(loader.step(0.2, 0.3)) == 0.3
    assert float(loader.step(0.2, 0.1, alone=0.05)) == pytest.approx(0.25)
    # over the same ports: at once where no exchange is waited for, else in each other's way
    assert float(loader.step(0.2, 0.1, network=0.1)) == 0.2
    assert float(loader.step(0.2, 0.1, network=0.1, waited=0.2)) == pytest.approx(0.3)
    assert float(loader.step(0.2, 0.1, network=0.1, talked=0.15)) == pytest.approx(0.25)
    some = float(loader.step(0.2, 0.1, network=0.1, waited=0.05))
    assert some == pytest.approx(0.2 + 0.05 * 0.1 / (some - 0.1))  # it has the rest of the ports


def test_state_is_written_by_those_that_hold_it() -> None:
    """1.4 TB, 64 nodes: all at once, by one, to their own disks."""
    assert float(checkpoint.seconds(HERE, 1.4e12, 64)) == pytest.approx(1.4e12 / (64 * 1.2e9))
    assert float(checkpoint.seconds(HERE, 1.4e12, 512)) == pytest.approx(14)
    assert float(checkpoint.seconds(HERE, 1.4e12, 1)) == pytest.approx(1.4e12 / 1.2e9)
    assert float(checkpoint.seconds(HERE, 1.4e12, 64, to="local")) == pytest.approx(
        1.4e12 / (64 * 400e6))  # fmt: skip
    assert checkpoint.seconds(replace(HERE, local=None), 1.4e12, 64, to="local") is None


def test_shuffling_is_said_in_one_word() -> None:
    assert shuffle_of("global") == Shuffle()
    assert shuffle_of("partial:0.1") == Shuffle(False, 0.1)
    assert [shuffle_of(text).text for text in ("global", "local", "partial:0.1")] == [
        "global", "local", "partial:0.1"]  # fmt: skip
    for text in ("", "partial", "partial:2", "local:1", "partial:nan"):
        with pytest.raises(oracle.SpecError, match="shuffled"):
            shuffle_of(text)


def test_what_nobody_says_is_assumed_and_listed() -> None:
    system = oracle.system("summit")
    bare = replace(system, host=None, storage=replace(
        system.storage, shared=SharedFiles(1e9), local=Disk(5e9)))  # fmt: skip
    found = Machine.of(bare, 12.5e9, 1e-6)
    assert {one.key for one in found.assumed} == {
        "storage.shared.per_node", "storage.shared.streams", "storage.shared.open",
        "storage.shared.metadata", "storage.shared.write", "storage.local.open",
        "storage.local.write", "host.cores", "host.memory", "host.bandwidth",
    }  # fmt: skip
    assert found.shared.per_node == 1e9  # no client gets more than all together
    assert found.turned("storage.shared.open", 3).shared.open == 3 * found.shared.open
    assert found.turned("host.cores", 2).host.cores == 2 * found.host.cores
    nothing = Dataset("some", 1000, "")
    assert Samples.of(nothing) is None
    silent = Samples.of(replace(nothing, size=1e12, format="records"))
    assert silent.files == 1000
    assert silent.assumed == ("files", "decode")


ROW = st.tuples(st.integers(0, 6), st.integers(0, 5), st.integers(0, 5), st.integers(0, 4))


@given(st.lists(ROW, min_size=1, max_size=6), st.sampled_from(["global", "local", "partial:0.2"]))
def test_every_mode_answers_for_many_plans_as_for_one(rows: Any, how: str) -> None:
    batch, nodes, groups, parts = (2.0 ** np.array(each) for each in zip(*rows, strict=True))
    batch = batch * groups * 8  # every rank that reads has some
    data = replace(BOXES, spread=0.3, decode=1e-3, compression=1.5, unpack=1e8)
    for name, seconds in MODES.items():
        many = seconds(asked(data, batch, nodes, groups=groups, parts=parts,
                             shuffle=shuffle_of(how), epochs=10))  # fmt: skip
        assert not many.why
        assert (many.first >= many.load * (1 - 1e-12)).all(), name
        assert (many.load > 0).all()
        assert np.isfinite(many.load).all()
        for i in range(len(rows)):
            one = seconds(asked(data, batch[i], nodes[i], groups=groups[i], parts=parts[i],
                                shuffle=shuffle_of(how), epochs=10))  # fmt: skip
            able = np.broadcast_to(many.possible, len(rows))[i]
            assert bool(one.possible) == bool(able)
            assert name != "spatial" or bool(able) == (parts[i] > 1)
            for what in ("load", "first", "alone", "network", "staging", "listing", "short"):
                mine = np.broadcast_to(getattr(many, what), len(rows))[i]
                assert float(np.asarray(getattr(one, what)).ravel()[0]) == pytest.approx(mine), what


FASTER = ("shared.bandwidth", "shared.per_node", "shared.metadata", "local.read", "local.write",
          "host.memory", "host.cores", "host.bandwidth")  # fmt: skip


@given(ROW, st.sampled_from(FASTER), st.floats(1.1, 10))
def test_nothing_faster_makes_reading_slower(row: Any, key: str, by: float) -> None:
    batch, nodes, groups, parts = (2.0**each for each in row)
    data = replace(PICTURES, decode=1e-3)
    better = HERE.turned(key, by)
    for name, seconds in MODES.items():
        here, there = (
            seconds(asked(data, batch * groups * 8, nodes, groups=groups, parts=parts, machine=m))
            for m in (HERE, better)
        )
        if here.why:
            continue
        for what in ("load", "first", "staging"):
            one, other = (float(np.asarray(getattr(r, what)).ravel()[0]) for r in (here, there))
            assert other <= one * (1 + 1e-12), (name, what)


@given(*[st.floats(0, 2)] * 3, st.floats(0, 1), st.floats(0, 3))
def test_reading_only_adds(work: float, load: float, net: float, part: float, talk: float) -> None:
    waited = part * work
    found = float(loader.step(work, load, 0.0, net, waited, talk))
    assert found >= max(work, load) * (1 - 1e-12)
    assert found <= max(work + net, load) * (1 + 1e-12) + min(talk, work)

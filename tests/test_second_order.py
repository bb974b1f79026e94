"""K-FAC: its work and messages by hand, what its knobs change, and where it is refused."""

import numpy as np
import pytest

import oracle
from oracle.models.model import model
from oracle.plan import curvature
from oracle.plan.plan import parse
from oracle.predict.workload import split
from oracle.spec.document import SpecError
from oracle.spec.optimizer import Kfac, parted
from oracle.spec.options import SLOTS, Options


def priced(optimizer, plan="data:16", batch=512, name="resnet50"):
    return oracle.estimate(name, "abci", plan, batch=batch, optimizer=optimizer)


def sent(optimizer, plan="data:16"):
    return {part["what"]: part for part in priced(optimizer, plan).exchange[0]}


def test_resnet_50_has_the_factors_of_its_54_layers():
    net = model("resnet50")
    a, g = curvature.sizes(net)
    assert net.repeat @ (a > 0) == 54
    assert net.repeat @ a**2 == pytest.approx(124.6e6, rel=1e-3)
    assert net.repeat @ g**2 == pytest.approx(29.2e6, rel=1e-3)
    work = curvature.flop(net)
    assert work["inverses"] == pytest.approx(453e9, rel=1e-3)
    assert work["factors"] == pytest.approx(50e9, rel=5e-3)


def test_by_hand_of_one_dense_layer():
    """a = 3 inputs and a bias, g = 2: 16 + 4 elements, 64 + 8, 2 (16 + 4), 2 (32 + 16)."""
    net = model({"name": "one", "source": "by hand", "input": [3], "layers": [{"dense": 2}]})
    work = curvature.flop(net)
    assert curvature.elements(net, Kfac()).sum() == 20
    assert curvature.elements(net, Kfac(halves=True), sent=True).sum() == 10 + 3
    assert (work["inverses"], work["factors"], work["preconditioning"]) == (72, 40, 96)


def test_messages_by_hand():
    """Of ResNet-50 615 MB of factors, 102 MB of gradients: each in its groups, each so often.

    Of its 54 layers both inverses and the gradient go apart; a device has those of a quarter.
    """
    net, plan = model("resnet50"), parse("data:16", 512.0)
    shard = split(net, plan, Options(optimizer="kfac"))
    each = {
        m.what: m
        for m, _ in curvature.messages(shard, plan, Kfac(10, 100, workers=0.25, halves=True))
    }
    call = {what: float((np.asarray(m.nbytes) @ net.repeat)[0]) for what, m in each.items()}
    often = {what: float(np.ravel(m.calls)[0]) for what, m in each.items()}
    assert call["factors"] == pytest.approx(615e6 / 2, rel=2e-3)
    assert call["inverses"] == pytest.approx(615e6 / 108, rel=2e-3)
    assert call["preconditioned gradients"] == pytest.approx(4 * 25.5e6 / 54, rel=5e-3)
    assert often == pytest.approx({"factors": 0.1, "inverses": 108 / 4 / 100,
                                   "preconditioned gradients": 54})  # fmt: skip
    assert [float(np.ravel(part)[0]) for part in each["inverses"].line] == [4, 4]
    assert [float(np.ravel(part)[0]) for part in each["preconditioned gradients"].line] == [4, 1]


def test_who_holds_inverses_says_what_is_sent_and_kept():
    """f = 1 sends no gradients, f = 1/p no inverses; the rest of the replicas keep none."""
    all_, one = sent("kfac"), sent("kfac,workers=0.001")
    assert {"data: factors", "data: inverses"} < all_.keys()
    assert {"data: factors", "data: preconditioned gradients"} < one.keys()
    assert all_.keys() ^ one.keys() == {"data: inverses", "data: preconditioned gradients"}
    kept = [float(priced(f"kfac,workers={f}").memory_kinds["optimizer"][0]) for f in (0.001, 1)]
    momentum = float(priced("momentum").memory_kinds["optimizer"][0])
    assert kept[1] - momentum == pytest.approx(2 * 615e6, rel=2e-3)
    assert kept[0] < kept[1] - 0.8 * 615e6
    assert not any("factors" in what for what in sent("momentum"))


def test_the_share_of_holders_makes_even_groups():
    replicas = np.array([[1.0], [12.0], [7.0], [16.0]])
    assert curvature.holders(Kfac(workers=0.5), replicas).ravel().tolist() == [1, 6, 1, 8]
    assert curvature.holders(Kfac(workers=0.01), replicas).ravel().tolist() == [1, 1, 1, 1]


def test_rarer_updates_are_cheaper_and_nothing_is_faster_than_momentum():
    rarely, often = "kfac,factors=1000,inverse=100000", "kfac,factors=1,inverse=10"
    seconds = [float(priced(one).seconds[0]) for one in ("momentum", rarely, "kfac", often)]
    assert all(np.diff(seconds) > 0)


def test_layers_are_dealt_to_replicas_until_the_longest_is_alone():
    update = [float(priced("kfac,workers=0.001", f"data:{p}", 32 * p).compute["update"][0])
              for p in (1, 2, 64, 128)]  # fmt: skip
    assert update[0] > 1.5 * update[1]
    assert update[2] == pytest.approx(update[3], rel=1e-6)


@pytest.mark.parametrize("plan", ["filter:4 data:4", "spatial:4", "data:4,zero=1", "sharded:4"])
def test_refused_where_devices_have_parts_of_layers(plan):
    (why,) = priced("kfac", plan).broken
    assert any("K-FAC is defined for whole layers" in each for each in why)


def test_stages_of_a_pipeline_have_whole_layers():
    assert bool(priced("kfac", "pipeline:4,segments=8 data:4", 1024).feasible[0])


@pytest.mark.parametrize(
    ("text", "what"),
    [("kfac,often=3", "no knob `often`"), ("kfac,factors=0", "factors=0"), ("lars,a=1", "no knobs"),
     ("kfac,workers=2", "workers=2"), ("kfac,inverse=nan", "inverse=nan"), ("kfc", "unknown opt"),
     ("kfac,solve=qr", "solve=qr"), ("kfac,factors=1e400", "factors=1e400")],
)  # fmt: skip
def test_odd_knobs_are_refused(text, what):
    with pytest.raises(SpecError, match=what):
        parted(text, SLOTS)


def test_knobs_are_written_as_they_are_read():
    text = "kfac,factors=20,workers=0.5,solve=cholesky,halves=on"
    assert str(parted(text, SLOTS)[1]) == text
    assert priced(text).to_dict()["optimizer"] == text


def test_eigenvectors_take_nine_times_the_work_of_inverses():
    """Of 4,096 columns 9 n³ FLOP for n³, each in products as deep as a panel; one pass more."""
    from oracle.kernels.factors import solved

    device = oracle.system("abci").device
    inverse, vectors = (float(solved(device, 4096.0, eigen)) for eigen in (False, True))
    read = 4 * 4096**3 / 3 / device.memory_bandwidth
    assert 9 * inverse + read <= vectors < 9 * inverse + 2 * read
    assert inverse > 4096**3 / device.peak["fp32"]


def test_refused_of_experts_and_as_published():
    with pytest.raises(SpecError, match="experts"):
        oracle.estimate("mixtral-8x7b", "dgx-a100", "data:8", batch=8, optimizer="kfac")
    with pytest.raises(SpecError, match="second-order"):
        oracle.estimate("resnet50", "abci", "data:8", batch=64, optimizer="kfac", ideal=True)


def test_no_format_that_starts_a_job_takes_it():
    from oracle.writers.export import ExportError, writer
    from oracle.writers.exported import Job

    job = Job(priced("kfac"), parse("data:16", 512.0), None)
    writer("torchrun").files(job)
    with pytest.raises(ExportError, match="factors"):
        job.check_read("torchrun")
    writer("trace").files(job)
    job.check_read("trace")


@pytest.mark.slow
def test_a_search_leaves_out_what_leaves_parts_of_layers():
    found = set(curvature.undefined())
    assert {"tensor", "filter", "channel", "spatial", "sharded", "context", "expert"} <= found
    assert not {"data", "pipeline", "recompute"} & found
    ranked = oracle.recommend("resnet50", "abci", 8, 256, optimizer="kfac", reading="none")
    assert ranked.best.plan == "data:8"

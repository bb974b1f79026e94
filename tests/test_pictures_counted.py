"""Networks of pictures and volumes hold what PyTorch itself counts of them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.memories.pictures import NETWORKS, counted, predicted
from oracle.kernels.rows import COPIED, COPIES, passes
from oracle.models import masks
from oracle.models.model import model
from oracle.models.shard import serial
from oracle.plan.launchable import software
from oracle.spec import catalogue

QUICK = ("nnunet-2d",)
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS if name not in QUICK]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_bytes_alive_are_those_that_torch_counts(name: str) -> None:
    assert predicted(name) == pytest.approx(counted(name), rel=0.01)


def test_what_is_done_in_place_on_a_view_has_two_more_tensors_by_hand() -> None:
    """32 channels of 128³ in fp32 are 256 MiB; the gradient of the last activation has four."""
    usual, alone = (predicted("nnunet-3d", f"pytorch-channels-first,rebased={word}")
                    for word in ("true", "false"))  # fmt: skip
    assert usual - alone == 2 * 256 * 2**20
    rows = masks.after_instance_norms(model("nnunet-3d"))
    assert rows.sum() == 22  # two of each of eleven blocks
    assert not masks.after_instance_norms(model("resnet50")).any()


def test_copies_take_as_long_as_passes_over_memory() -> None:
    device, what = catalogue.device("v100-sxm2-32gb"), model("nnunet-3d")
    found = []
    for word in ("true", "false"):
        spec = software(f"pytorch-channels-first,rebased={word}")
        shard = serial(what, 2.0, 4.0)
        found.append(passes(shard.but(software=spec), device, "fp32"))
    longer = np.ravel(found[0].data - found[1].data)
    rows = masks.after_instance_norms(what)
    least = COPIED * 4 * 2 * what.y / device.memory_bandwidth
    assert (longer[rows] > least[rows]).all()
    assert (longer[rows] < 1.6 * least[rows]).all()
    assert not longer[~rows].any()
    launched = np.ravel(found[0].kernels[1] - found[1].kernels[1])
    assert (launched == COPIES * rows).all()

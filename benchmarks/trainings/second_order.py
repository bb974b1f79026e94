"""K-FAC: epochs by batch left out in turn, time saved over SGD, and where LARS is behind.

Pauloski et al. (2020) report that ResNet-50 was at 75.9 % in 18 to 25 % less time than with SGD on
16 to 256 V100s: 55 epochs for 90, 32 pictures a GPU (arXiv 2007.00784, abstract; epochs and batch:
scripts of gpauloski/kfac-pytorch). How often they updated is not in those: two ways are priced.
"""

from __future__ import annotations

from statistics import mean

import oracle
from benchmarks.published import RUNS, rows
from benchmarks.table import Table, figure
from oracle.ask.optimizers import ahead_from, scaling
from oracle.predict.defaults import options_for
from oracle.run.convergence import left_out

GPUS = (16, 32, 64, 128, 256)
EACH, EPOCHS, PLAIN = 32, 55, 90  # pictures a GPU; epochs with K-FAC, and with SGD
OFTEN = {"often": "kfac,factors=10,inverse=100", "rarely": "kfac,factors=50,inverse=500"}
SYSTEMS = ("abci", "dgx-a100")


def schedules() -> tuple[list[float], list[float]]:
    """Batches and epochs of chainerkfac's schedules that came to 75.9 %."""
    found = [row for row in rows(RUNS / "convergence.csv") if row["family"] == "kfac-osawa"]
    met = [row for row in found if row["steps"] and float(row["batch"]) < 131072]
    return [float(row["batch"]) for row in met], [float(row["epochs_or_samples"]) for row in met]


def saved(gpus: int, optimizer: str) -> float:
    """Share of the time of 90 epochs with SGD that 55 with K-FAC save."""
    plain, second = (
        float(oracle.estimate("resnet50", "abci", f"data:{gpus}", batch=EACH * gpus, optimizer=each,
                              software="pytorch-ddp", reading="none").seconds[0])
        for each in ("momentum", optimizer)
    )  # fmt: skip
    return 1 - EPOCHS * second / (PLAIN * plain)


def table(quick: bool = False) -> Table:
    """Every schedule as the others predict it; shares of time saved; devices where it is ahead."""
    errors = left_out(*schedules())
    lines = [{"what": f"epochs at {batch:,.0f}, left out", "found": f"{error:+.1%}"}
             for batch, error in errors]  # fmt: skip
    figures = {"kfac.left_out": figure(mean(abs(error) for _, error in errors), "", "")}
    for name, optimizer in OFTEN.items():
        shares = [saved(gpus, optimizer) for gpus in GPUS]
        what = f"time saved over SGD with {optimizer}"
        lines += [{"what": f"{what}, {gpus} V100", "found": f"{share:.1%}"}
                  for gpus, share in zip(GPUS, shares, strict=True)]  # fmt: skip
        figures[f"kfac.saved_{name}"] = figure(mean(shares), "", "0.18 to 0.25 reported")
    net = oracle.model("resnet50")
    for name in SYSTEMS[: 1 if quick else None]:
        machine = oracle.system(name)
        options = options_for(net, machine)
        lars, kfac = (scaling(net, machine, options, each) for each in ("lars", "kfac"))
        first = ahead_from(kfac, lars)
        lines.append({"what": f"ahead of LARS on {name}",
                      "found": "on no number of devices" if first is None
                      else f"from {first:,} devices on"})  # fmt: skip
        ratio = kfac[-1].training.seconds / lars[-1].training.seconds
        figures[f"kfac.over_lars_{name}"] = figure(ratio, f"at {kfac[-1].devices:,} devices", "")
    return {"title": "K-FAC beside first order, ResNet-50", "rows": lines, "figures": figures}

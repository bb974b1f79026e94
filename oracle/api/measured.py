"""Measurements: a system calibrated to them, and predictions compared with them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from warnings import warn

if TYPE_CHECKING:
    from oracle.ask.compare import Comparison
    from oracle.calibration.calibrate import Calibration
    from oracle.models.model import Model
    from oracle.spec.system import System

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def calibrate(
    files: Paths,
    onto: System | str | dict[str, Any],
    *,
    ranks: int | None = None,
    nodes: int | None = None,
    whose: str = "",
) -> Calibration:
    """Fit a system to logs of benchmarks and files of topology; `.write(path)` saves the result.

    A name may add what its log does not say, `a.log:nodes=2,ranks=16`, as `ranks` and `nodes` do
    for all logs; `whose` says if a storage benchmark reads `shared` or `local` files.

    >>> import oracle
    >>> found = oracle.calibrate("notebooks/data/abci-allreduce.jsonl", "abci")
    >>> found.fits[0].pool.op
    'allreduce'
    """
    from oracle.calibration import calibrate as fitting
    from oracle.calibration.believed import believed
    from oracle.readers.log_files import gathered

    readings = gathered(_listed(files), ranks, nodes).readings
    if doubtful := believed(readings, onto, whose):
        warn(doubtful, stacklevel=2)
    return fitting.calibrate(readings, onto, whose)


def compare(
    files: Paths,
    model: Model | str | dict[str, Any],
    system: System | str | dict[str, Any],
    *,
    dataset: Any = None,
    precision: str | None = None,
    optimizer: str | None = None,
    profile: Any = None,
    grow: bool = False,
) -> Comparison:
    """Compare measurement files of `oracle run` with the predictions of the same plans.

    >>> import oracle
    >>> found = oracle.compare("run.json", "lenet5", "laptop")  # doctest: +SKIP
    >>> found.accuracy, found.covered  # doctest: +SKIP
    (array([0.93]), array([ True]))
    """
    from oracle.ask.compare import compare as compared

    return compared(
        _listed(files), model, system, dataset=dataset, precision=precision, optimizer=optimizer,
        profile=profile, grow=grow,
    )  # fmt: skip


def _listed(files: Paths) -> list[str]:
    return [
        os.fspath(path) for path in ([files] if isinstance(files, str | os.PathLike) else files)
    ]

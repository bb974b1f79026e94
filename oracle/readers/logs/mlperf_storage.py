"""MLPerf Storage: `mlperf_storage_report.json`, the mean of the runs of a submission.

A result counts only if its accelerators are kept busy (`au`, 90 % or 70 % by the network): the
rate is what the steps asked for, so that storage has at least this.
"""

from __future__ import annotations

from oracle.readers.logs import InputError, Reading, whole_json
from oracle.readers.storage_samples import StorageSample, finite, usable

TITLE = "MLPerf Storage report"
PRECEDENCE = 1
SAMPLES = "train_throughput_mean_samples_per_second"


def recognises(text: str) -> bool:
    """The keys of a report, which a summary of one run has not."""
    return text[:64].lstrip().startswith("{") and '"overall"' in text and f'"{SAMPLES}"' in text


def parse(text: str, path: str) -> Reading:
    """One sample: what all runs come to."""
    data = whole_json(text, path, "give the report as it was written")
    overall = data.get("overall") if isinstance(data, dict) else None
    if not isinstance(overall, dict):
        raise InputError(path, 1, "`overall` is no object", "give the report as it was written")
    rate = finite(overall.get(SAMPLES))
    moved = finite(overall.get("train_throughput_mean_MB_per_second")) * 2**20
    hosts, each = overall.get("num_client_hosts"), overall.get("num_samples_per_file")
    one = StorageSample(
        "files" if each == 1 else "read", rate, moved / rate if rate else 0.0, None,
        hosts if type(hosts) is int and 0 < hosts < 2**31 else None, None, least=True,
        where=f"{path}:1",
    )  # fmt: skip
    machine = {"tool": "MLPerf Storage"}
    words = (overall.get("model"), overall.get("accelerator"))
    machine |= {"workload": " ".join(str(word)[:40] for word in words if word)}
    skipped = () if usable(one) else ((1, "no usable rate"),)
    return Reading(path, TITLE, machine=machine, skipped=skipped,
                   storage=() if skipped else (one,))  # fmt: skip

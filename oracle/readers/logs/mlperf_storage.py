"""MLPerf Storage: `mlperf_storage_report.json`, the mean of the runs of a submission.

A result counts only if its accelerators are busy (`au`, 90 % or 70 % by the network): the steps
set the rate, so it is a lower bound of the storage's rate.
"""

from __future__ import annotations

from oracle.readers.logs import InputError, Reading, json_document
from oracle.readers.storage_samples import StorageSample, finite, usable

TITLE = "MLPerf Storage report"
PRECEDENCE = 1
SAMPLES = "train_throughput_mean_samples_per_second"


def recognises(text: str) -> bool:
    """Return whether a text has the keys of a report, which a summary of one run lacks."""
    return text[:64].lstrip().startswith("{") and '"overall"' in text and f'"{SAMPLES}"' in text


def parse(text: str, path: str) -> Reading:
    """Return one sample: the mean of all runs."""
    data = json_document(text, path, "give the report as it was written")
    overall = data.get("overall") if isinstance(data, dict) else None
    if not isinstance(overall, dict):
        raise InputError(path, 1, "`overall` is no object", "give the report as it was written")
    rate = finite(overall.get(SAMPLES))
    moved = finite(overall.get("train_throughput_mean_MB_per_second")) * 2**20
    hosts, samples_a_file = overall.get("num_client_hosts"), overall.get("num_samples_per_file")
    sample = StorageSample(
        "files" if samples_a_file == 1 else "read", rate, moved / rate if rate else 0.0, None,
        hosts if type(hosts) is int and 0 < hosts < 2**31 else None, None, least=True,
        where=f"{path}:1",
    )  # fmt: skip
    machine = {"tool": "MLPerf Storage"}
    words = (overall.get("model"), overall.get("accelerator"))
    machine |= {"workload": " ".join(str(word)[:40] for word in words if word)}
    skipped = () if usable(sample) else ((1, "no usable rate"),)
    return Reading(path, TITLE, machine=machine, skipped=skipped,
                   storage=() if skipped else (sample,))  # fmt: skip

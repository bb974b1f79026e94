"""What the answers look like as JSON, as JSON Schema: the contract other programs lean on.

Fields are only ever added, so a reader that ignores what it does not know keeps working.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
YES: Schema = {"type": "boolean"}
SECONDS: Schema = {"type": "number", "minimum": 0, "description": "seconds"}
BYTES: Schema = {"type": "number", "minimum": 0, "description": "bytes"}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}


def record(fields: Schema, optional: Schema | None = None) -> Schema:
    """An object with fields that are always there, and some that may be."""
    return {"type": "object", "properties": {**fields, **(optional or {})},
            "required": list(fields)}  # fmt: skip


def listed(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def named(value: Schema) -> Schema:
    """An object whose names are not fixed."""
    return {"type": "object", "additionalProperties": value}


def maybe(value: Schema) -> Schema:
    return {"anyOf": [value, {"type": "null"}]}


MADE_BY = {
    "schema": {"const": 1},
    "tool": record({"name": {"const": "oracle"}, "version": TEXT}),
}
FROM = {
    "inputs": listed(record({"kind": TEXT, "name": TEXT, "sha256":
                             {"type": "string", "pattern": "^[0-9a-f]{64}$"}})),
}  # fmt: skip
SOURCE: Schema = {"enum": ["measured", "fitted", "datasheet", "assumed", "counted"]}
ORIGIN = record({"origin": SOURCE, "outside": YES, "shares": named(SHARE)})
MESSAGE = record(
    {"what": TEXT, "op": TEXT, "algorithm": TEXT, "group": COUNT, "calls": NUMBER, "bytes": BYTES,
     "seconds": SECONDS, "exposed": SECONDS, "phi": {"type": "number", "minimum": 1},
     "origin": SOURCE, "outside": YES},
    {"full": listed(TEXT), "deviation": SECONDS},
)  # fmt: skip
COMPUTE = dict.fromkeys(("forward", "backward", "update", "bubble", "recompute"), SECONDS)
KINDS = ("weights", "gradients", "optimizer", "activations", "workspace", "buffers", "reserve")
HELD = dict.fromkeys(("total", *KINDS), BYTES)
READ = record(
    {"mode": TEXT, "where": TEXT, "seconds": SECONDS, "exposed": SECONDS, "first_epoch": SECONDS,
     "once": SECONDS, "staging": maybe(SECONDS), "listing": SECONDS, "bound_by": TEXT,
     "cause": TEXT, "terms": named(SECONDS), "files": NUMBER, "bytes": BYTES,
     "files_per_second": NUMBER, "bytes_per_second": NUMBER, "nodes": NUMBER,
     "shuffle": TEXT, "assumed": listed(TEXT),
     "alternatives": listed(record({
         "mode": TEXT, "step": maybe(SECONDS), "exposed": maybe(SECONDS), "once": maybe(SECONDS),
         "possible": YES, "why": TEXT})),
     "pays_after": maybe(record({"epochs": NUMBER, "against": TEXT}))},
)  # fmt: skip
GOODPUT = record({
    **{name: maybe(SHARE) for name in
       ("progress", "checkpoints", "lost", "restarts", "waiting", "away")},
    "interval": maybe(SECONDS), "failures_per_hour": maybe(NUMBER), "how": maybe(TEXT),
    "to": maybe(TEXT), "checkpoint_seconds": maybe(SECONDS), "safe_after": maybe(SECONDS),
    "checkpoint_bytes": maybe(BYTES), "restart_seconds": maybe(SECONDS), "slow": NUMBER,
    "of": TEXT, "assumed": listed(TEXT), "unknown": listed(TEXT), "impossible": TEXT,
})  # fmt: skip
TRAINING = {
    "ends": TEXT, "origin": TEXT, "steps": NUMBER, "epochs": maybe(NUMBER), "seconds": SECONDS,
    "low": SECONDS, "high": SECONDS, "device_hours": NUMBER, "critical_batch": maybe(NUMBER),
    "largest_batch": maybe(NUMBER), "worth": maybe(NUMBER),
    "money": maybe(NUMBER), "energy": maybe(NUMBER),
    "carbon": maybe(NUMBER), "energy_low": maybe(NUMBER), "energy_high": maybe(NUMBER),
    "evaluation": maybe(SECONDS), "unknown": listed(TEXT), "goodput": GOODPUT,
}  # fmt: skip
PLACED = record({
    "how": {"enum": ["block", "cyclic", "best"]}, "levels": TEXT, "nodes": maybe(TEXT),
    "seconds": SECONDS, "seconds_block": SECONDS, "saved": NUMBER,
    "seconds_neighbours": maybe(SECONDS), "tried": COUNT,
})  # fmt: skip
SIDE = record({  # a partition of unlike devices
    "number": COUNT, "name": TEXT, "device": TEXT, "devices": COUNT, "samples": NUMBER,
    "micro_batches": COUNT, "busy": SECONDS, "mean": SECONDS, "waits": SECONDS, "memory": BYTES,
    "capacity": BYTES, "bounds": YES,
})  # fmt: skip
PLAN = record(
    {
        "plan": TEXT, "rank": maybe(COUNT), "feasible": YES, "broken": listed(TEXT),
        "seconds": record({"iteration": SECONDS, "low": SECONDS, "high": SECONDS,
                           "epoch": maybe(SECONDS), "speed_of_light": SECONDS}),
        "compute": record(COMPUTE), "exchange": listed(MESSAGE), "reading": maybe(READ),
        "memory": record(HELD, {"cached": BYTES, "low": BYTES, "high": BYTES}),
        "origin": record(dict.fromkeys(("forward", "backward", "update", "memory"), ORIGIN)),
    },
    {"beside": record({
         "jobs": listed(TEXT), "alone": SECONDS, "mean": SECONDS, "worst": SECONDS,
         "messages": listed(record({"what": TEXT, "mean": NUMBER, "worst": NUMBER,
                                    "link": TEXT}))}),
     "training": record(TRAINING, {"over": named(maybe(NUMBER)), "probability_within": SHARE}),
     "probability_best": SHARE, "capacity": BYTES, "fits": SHARE, "batch": COUNT,
     "samples_per_second": NUMBER, "placement": PLACED, "partitions": listed(SIDE),
     "units": listed(record({  # of which a job takes a part
         "level": TEXT, "devices": COUNT, "used": COUNT, "units": COUNT, "idle": TEXT})),
     "rates": record({
         "samples_per_second": NUMBER, "samples_per_second_device": NUMBER,
         "tokens_per_second": maybe(NUMBER), "tokens_per_second_device": maybe(NUMBER),
         "flops_per_device": NUMBER, "mfu": NUMBER, "hfu": NUMBER,
         "device_hours_per_epoch": maybe(NUMBER),
         "device_hours_per_billion_tokens": maybe(NUMBER)})},
)  # fmt: skip
# who set an option: the command line, the environment, a file and line, the model, the default
SET = named(record({"value": {}, "origin": TEXT}))
CONFIG: Schema = {"config": SET}  # what a file of settings made of the question
QUESTION = {
    "model": TEXT, "system": TEXT, "devices": COUNT, "batch": COUNT, "precision": TEXT,
    "optimizer": TEXT, "software": TEXT, "workspace": maybe(TEXT), "dataset": maybe(TEXT),
    "ideal": YES,
}  # fmt: skip
REMARK = record({"field": TEXT, "what": TEXT, "hint": TEXT})  # done otherwise, or looks wrong
WORKSPACE = record({  # of one pass of a convolution
    "name": TEXT, "pass": {"enum": ["forward", "data", "weight"]}, "shape": TEXT, "count": COUNT,
    "pieces": listed(record({"count": COUNT, "samples": NUMBER, "algorithm": TEXT})),
    "bytes": NUMBER, "seconds": SECONDS, "saved": NUMBER})  # fmt: skip
ESTIMATE = {**MADE_BY, **FROM, **QUESTION, "options": SET, "computed_in": TEXT,
            "warnings": listed(REMARK), "plans": listed(PLAN)}  # fmt: skip
ROW = {
    "point": COUNT, "model": TEXT, "system": TEXT, "what_if": TEXT, "way": TEXT, "devices": COUNT,
    "batch": COUNT, "status": {"enum": ["ok", "infeasible", "impossible"]}, "plan": TEXT,
    **{name: maybe(SECONDS) for name in
       ("seconds", "seconds_low", "seconds_high", "epoch_seconds", "forward", "backward",
        "recompute", "update", "bubble", "exchange", "exposed", "reading")},
    **{name: maybe(NUMBER) for name in
       ("samples_per_second", "tokens_per_second", "flops_per_device", "mfu",
        "device_hours_per_epoch")},
    "memory": maybe(BYTES), "capacity": maybe(BYTES), "why": maybe(TEXT),
}  # fmt: skip
FITTED = record({
    "op": TEXT, "level": TEXT, "samples": COUNT, "ranks": listed(NUMBER), "sizes": listed(BYTES),
    "r2": NUMBER, "residual": NUMBER, "repeats": maybe(NUMBER),
    "errors": named(record({"large": maybe(NUMBER), "small": maybe(NUMBER)})),
    "residuals": listed(record({"bytes": BYTES, "median": NUMBER, "low": NUMBER, "high": NUMBER,
                                "samples": COUNT})),
    "outliers": listed(TEXT),
    "entries": listed(record({
        "algorithm": TEXT, "protocol": maybe(TEXT), "base": SECONDS, "latency": SECONDS,
        "bandwidth": {"type": "number", "minimum": 0, "description": "bytes per second"},
        "ranks": listed(COUNT), "sizes": listed(BYTES), "uncertainty": named(NUMBER)})),
    "notes": listed(TEXT),
})  # fmt: skip
SETUP = record(
    {"system": TEXT, "software": TEXT, "devices": COUNT, "batch": COUNT, "plan": TEXT,
     "step": SECONDS, "memory": BYTES, "within_limits": YES, "over": named(maybe(NUMBER)),
     "probability_within": SHARE,
     "price": maybe(record({"usd_per_hour": NUMBER, "source": TEXT})), **TRAINING},
    {"rank": COUNT, "front": YES},
)  # fmt: skip
BY_ROOF = dict.fromkeys(("compute", "memory", "network", "storage"), SECONDS)
ROOFED = record({
    "name": TEXT, "kind": TEXT, "shape": TEXT, "count": COUNT, "seconds": SECONDS, "flop": NUMBER,
    "memory": BYTES, "network": BYTES, "storage": BYTES,
    "intensity": record({roof: maybe(NUMBER) for roof in ("memory", "network", "storage")}),
    "roofs": record(BY_ROOF), "binds": {"enum": [*BY_ROOF]}, "share": NUMBER, "attained": NUMBER,
})  # fmt: skip
ALIVE = record({
    "plan": TEXT, "stage": COUNT, "stages": COUNT, "seconds": SECONDS, "iteration": SECONDS,
    "pass": TEXT, "micro_batch": maybe(COUNT), "chunk": maybe(COUNT), "during": TEXT,
    "total": BYTES, "tensors": BYTES, "reserve": BYTES, "capacity": BYTES,
    "kinds": named(BYTES), "layers": named(BYTES),
    "alive": listed(record({"kind": TEXT, "layer": TEXT, "what": TEXT, "count": COUNT,
                            "bytes": BYTES})),
    "allocator": named(record({"tensors": BYTES, "reserved": BYTES, "pinned": BYTES,
                               "share": NUMBER})),
    "hints": listed(record({"plan": TEXT, "memory": BYTES, "seconds": SECONDS, "fits": YES})),
})  # fmt: skip
STAGE = record({
    "stage": TEXT, "times": COUNT, "trials": COUNT, "share": NUMBER, "at_once": COUNT,
    "waves": COUNT, "devices": COUNT, "nodes": NUMBER, "plan": TEXT, "batch": COUNT,
    "trial_seconds": SECONDS, "seconds": SECONDS,
})  # fmt: skip
CAMPAIGN = record({
    "model": TEXT, "system": TEXT, "search": {"type": "object", "required": ["kind"]},
    "trials": maybe(COUNT), "nodes": COUNT, "devices": COUNT, "feasible": YES,
    **{name: maybe(NUMBER) for name in
       ("seconds", "low", "high", "at_once", "nodes_each", "idle_nodes", "busy", "device_hours",
        "money", "energy", "carbon", "one_node", "speedup", "spread")},
    "unknown": listed(TEXT), "training": maybe(record(TRAINING)), "stages": listed(STAGE),
    "tried": listed(record({"devices": COUNT, "at_once": COUNT, "seconds": SECONDS})),
})  # fmt: skip
COMBINED = record({
    "nodes": COUNT, "status": {"enum": ["ok", "infeasible"]}, "plan": maybe(TEXT),
    **{name: maybe(NUMBER) for name in
       ("seconds", "at_once", "devices_each", "data", "model", "batch", "search_speedup",
        "data_speedup", "model_speedup", "product", "honest", "overstated", "waves_loss",
        "epochs_loss", "steps_loss")},
})  # fmt: skip
NETWORK = record({
    "name": TEXT, "words": TEXT, "switches": COUNT, "optical": COUNT, "cables": COUNT,
    "cables_by_length": named(COUNT), "most_ports": COUNT, "diameter": COUNT, "mean_hops": NUMBER,
    "bisection": NUMBER, "cost": maybe(NUMBER), "slowdown": NUMBER, "unbeaten": YES,
    "workloads": listed(record({
        "model": TEXT, "plan": TEXT, "seconds": SECONDS, "low": SECONDS, "high": SECONDS,
        "exposed": SECONDS, "algorithm": maybe(TEXT), "routing": maybe(TEXT)})),
    "levels": listed(record({
        "name": TEXT, "kind": TEXT, "devices": COUNT, "ports": maybe(NUMBER), "bandwidth": NUMBER,
        "latency": SECONDS, "shape": listed(COUNT), "oversubscription": NUMBER,
        "routing": maybe(TEXT)})),
})  # fmt: skip
CIRCUITS = record({
    "level": TEXT, "circuits": COUNT, "setting": SECONDS, "seconds": SECONDS, "packets": SECONDS,
    "changes": COUNT,
    "flows": listed(record({
        "what": TEXT, "op": TEXT, "when": TEXT, "bytes": BYTES, "circuits": COUNT,
        "seconds": SECONDS, "packets": SECONDS, "threshold": maybe(BYTES)})),
})  # fmt: skip
ANSWERS: dict[str, Schema] = {
    "recommend": record({
        **ESTIMATE, "tried": COUNT,
        "objective": {"enum": ["time", "cost", "memory", "money", "energy", "carbon"]},
        "fitting": COUNT, "slower": COUNT, "seed": COUNT, "tied": listed(TEXT),
        "riskier": listed(PLAN),
        "measure": maybe(record({"what": TEXT, "share": NUMBER}))},
        {"batches": listed(record({"batch": COUNT, "plan": TEXT, **TRAINING})),
         "front": listed(SETUP),
         "optimizers": listed(record({"optimizer": TEXT, "batch": COUNT,
                                      "ahead_from": maybe(COUNT), **TRAINING}))}),
    "estimate": record(ESTIMATE),
    "explain": record({
        **ESTIMATE,
        "factors": listed(record({"factor": TEXT, "seconds": NUMBER, "share": NUMBER,
                                  "words": TEXT})),
        "bottleneck": TEXT, "limits": listed(record({"factor": TEXT, "words": TEXT})),
        "contention": listed(TEXT), "whole": listed({"type": "object"}), "place": maybe(COUNT),
        "unmeasured": listed(record({"family": TEXT, "share": NUMBER, "settled_by": TEXT})),
        "better_knobs": maybe(TEXT), "rivals": listed(record({"plan": TEXT, "seconds": SECONDS})),
        "flips": listed(record({"cause": TEXT, "factor": NUMBER, "winner": TEXT, "loser": TEXT})),
        "measure": maybe(record({"what": TEXT, "share": NUMBER}))},
        {"placement": maybe(PLACED), "circuits": CIRCUITS, "roofline": listed(ROOFED),
         "evened": record({"words": TEXT, "plan": maybe(TEXT), "seconds": maybe(SECONDS)}),
         "memory": ALIVE, "workspaces": listed(WORKSPACE)}),
    "choose": record({
        **MADE_BY, **FROM, "options": SET, "model": TEXT, "objective": TEXT,
        "limits": named(maybe(NUMBER)), "setups": listed(SETUP), "front": listed(SETUP),
        "misses": listed(SETUP), "unpriced": listed(SETUP),
        "skipped": listed(record({"system": TEXT, "software": TEXT, "devices": COUNT,
                                  "why": TEXT})),
        "changes": listed(record({"cause": TEXT, "system": TEXT, "factor": NUMBER,
                                  "value": maybe(NUMBER), "winner": TEXT})),
        "notes": listed(TEXT)}),
    "design-network": record({
        **MADE_BY, **FROM, "options": SET, "system": TEXT, "devices": COUNT, "nodes": COUNT,
        "node_ports": COUNT, "switch_ports": COUNT, "link": NUMBER, "within": NUMBER,
        "plans": TEXT, "best": TEXT, "fastest": TEXT, "networks": listed(NETWORK),
        "workloads": listed(record({"model": TEXT, "batch": COUNT, "assumed": TEXT,
                                    "plan": maybe(TEXT)})),
        "refused": listed(record({"name": TEXT, "why": TEXT}))}),
    "sweep": record({**MADE_BY, **FROM, "options": SET, "rows": listed(record(ROW))}),
    "workflow": record({**MADE_BY, **FROM, "options": SET, "campaigns": listed(CAMPAIGN)},
                       {"table": listed(COMBINED)}),
    "calibrate": record({
        **MADE_BY, **FROM, "system": TEXT,
        "readings": listed(record({"path": TEXT, "format": TEXT, "samples": COUNT,
                                   "skipped": named(COUNT)})),
        "fits": listed(FITTED), "refused": listed(record({"what": TEXT, "why": TEXT})),
        "library": listed(record({
            "level": TEXT, "source": TEXT, "base": named(NUMBER), "hop": named(NUMBER),
            "bandwidth": named(NUMBER), "tree": NUMBER, "own": NUMBER, "few": NUMBER,
            "opened": NUMBER, "error": NUMBER, "operations": listed(TEXT), "ranks": listed(COUNT),
            "sizes": listed(BYTES), "median error": named(NUMBER), "datasheet share": NUMBER,
            "dropped": listed(TEXT)})),
        "storage": listed(record({
            "kind": {"enum": ["shared", "local"]}, "samples": COUNT, "source": TEXT,
            "values": named(record({"value": NUMBER, "reached": YES})),
            "median error": maybe(NUMBER), "notes": listed(TEXT)})),
        "datasheet": listed(TEXT), "dropped": listed(TEXT),
        "crowds": listed(record(
            {"op": TEXT, "ranks": COUNT, "nodes": COUNT, "groups": COUNT, "memory": TEXT,
             "measured": NUMBER, "low": NUMBER, "high": NUMBER, "sizes": COUNT,
             "counted": NUMBER})),
        "structure": listed(record(dict.fromkeys(
            ("level", "field", "spec", "file", "verdict", "source", "why"), TEXT)))}),
    "schedule": record({
        **MADE_BY, **FROM, "options": SET, "model": TEXT, "system": TEXT, "precision": TEXT,
        "optimizer": TEXT, "software": TEXT, "dataset": maybe(TEXT),
        "training": record({
            "ends": TEXT, "origin": TEXT, "steps": NUMBER, "seconds": SECONDS, "low": SECONDS,
            "high": SECONDS, "device_hours": NUMBER, "largest_batch": maybe(NUMBER),
            **{name: maybe(NUMBER) for name in ("money", "energy", "carbon")}}),
        "phases": listed(record({
            "start": NUMBER, "end": NUMBER, "unit": TEXT, "batch": COUNT, "plan": TEXT,
            "devices": COUNT, "steps": NUMBER, "seconds": SECONDS, "low": SECONDS,
            "high": SECONDS, "device_hours": NUMBER}))}),
    "convergence": record({
        **MADE_BY, **FROM, "block": TEXT,
        "convergence": listed(record({
            "optimizer": TEXT, "target": TEXT, "epochs": maybe(NUMBER), "samples": maybe(NUMBER),
            "critical_batch": maybe(NUMBER), "smallest": COUNT, "largest": COUNT,
            "scatter": NUMBER, "runs": COUNT, "batches": COUNT, "among": maybe(NUMBER),
            "left_out": listed(record({"batch": NUMBER, "error": NUMBER})),
            "missed": listed(record({"batch": COUNT, "runs": COUNT}))}))}),
    "profile": record({
        **MADE_BY, **FROM,
        "runs": listed(record({
            "plan": TEXT, "batch": COUNT, "part": TEXT, "seconds": SECONDS, "spread": NUMBER,
            "before": SECONDS, "after": SECONDS})),
        "factors": named(record({"times": NUMBER, "doubt": NUMBER})),
        "layers": COUNT, "notes": listed(TEXT)}),
    "measure": record({**MADE_BY, "output": TEXT, "complete": YES}, {
        "source": TEXT, "machine": {"type": "object"}, "disk": {"type": "object"},
        "memory_bandwidth": NUMBER, "host_seconds_a_kernel": SECONDS, "refused": listed(TEXT),
        "kernels": listed(record(
            {"family": TEXT, "precision": TEXT, "part": TEXT, "shape": TEXT, "seconds": SECONDS})),
        "curves": listed(record({"family": TEXT, "precision": TEXT, "part": TEXT, "kernels": COUNT,
                                 "median_error": NUMBER, "p90_error": NUMBER})),
        "collectives": listed(TEXT), "not_fitted": listed(TEXT), "files": listed(TEXT),
        "samples": listed(record({
            "operation": TEXT, "per_second": NUMBER, "size": NUMBER, "threads": COUNT,
            "nodes": COUNT, "cached": YES, "repeats": listed(NUMBER)}))}),
    "compare": record({
        **MADE_BY, **FROM, "model": TEXT, "system": TEXT, "accuracy": NUMBER, "coverage": SHARE,
        "tau": maybe(NUMBER), "regret": NUMBER,
        "plans": listed(record({
            "plan": TEXT, "batch": COUNT, "predicted": SECONDS, "measured": SECONDS,
            "low": SECONDS, "high": SECONDS, "accuracy": NUMBER, "covered": YES, "spread": NUMBER,
            "parts": named(record({"predicted": SECONDS, "measured": SECONDS},
                                  {"waiting": SECONDS, "transfer": SECONDS})),
            "memory": record({"predicted": BYTES, "measured": BYTES})},
            {"recovery": record({
                "checkpoints": {"type": "object"}, "failures": listed({"type": "object"}),
                "goodput": named(NUMBER), "predicted": {"type": "object"}})}))}),
    "job": record({
        **MADE_BY, "framework": TEXT, "software": TEXT, "plan": TEXT, "batch": COUNT,
        "devices": COUNT, "precision": TEXT, "optimizer": TEXT,
        "model": {"anyOf": [TEXT, {"type": "object"}]}, "command": TEXT, "notes": listed(TEXT),
        "estimate": maybe(PLAN),
        "better": maybe(record({"plan": TEXT, "seconds": SECONDS, "memory": BYTES,
                                "faster": NUMBER}))}),
    "config": record({"schema": {"const": 1}}, {
        "settings": listed(record({"key": TEXT, "value": TEXT, "verbs": TEXT}, {"origin": TEXT})),
        "files": listed(record({"file": TEXT, "there": TEXT}))}),
    "check": record({"schema": {"const": 1}, "files": listed(record({
        "name": TEXT, "kind": maybe(TEXT), "sound": YES, "faults": listed(record({
            "file": TEXT, "code": TEXT, "what": TEXT, "line": COUNT, "column": COUNT,
            "hint": TEXT})),
        "warnings": listed(record({
            "field": TEXT, "what": TEXT, "line": COUNT, "column": COUNT, "hint": TEXT}))}))}),
    "selftest": record({**MADE_BY, "sound": YES, "checks": listed(record({
        "check": TEXT, "sound": YES, "words": TEXT, "seconds": SECONDS}))}),
}  # fmt: skip


def answer(name: str) -> Schema:
    """The JSON Schema of what a verb prints with `--json`."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"oracle {name} --json"}  # fmt: skip
    body = ANSWERS[name]
    return {**head, **body, "properties": {**body["properties"], **CONFIG}}

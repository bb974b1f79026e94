"""Models and plans of the proof of equality: odd shapes, strides, kernels, uneven parts."""

import oracle
from benchmarks.memories.counted import chosen
from oracle.plan.plan import parse


def network(name, shape, layers):
    return {"name": name, "source": "made for tests", "input": shape, "layers": layers}


def conv(filters, kernel=3, **more):
    return {"conv": {"filters": filters, "kernel": kernel, "padding": (kernel - 1) // 2, **more}}


VGG = network("vgg", [3, 16, 12], [
    conv(8), "relu", conv(16), {"pool": {"kernel": 2}}, "relu", conv(8, bias=False), "flatten",
    {"dense": 12}, "loss",
])  # fmt: skip
RESNET = network("resnet", [3, 32, 32], [
    conv(8, 7, stride=2, bias=False), "norm", "relu", {"pool": {"kernel": 3, "stride": 2,
                                                                "padding": 1}},
    {"layers": [
        conv(8, bias=False), "norm", "relu", conv(16, bias=False), {"norm": {"name": "branch"}},
        {"conv": {"from": ["block"], "filters": 16, "kernel": 1, "bias": False}},
        {"norm": {"name": "projection"}}, {"add": {"from": ["branch", "projection"]}}, "relu"]},
    {"repeat": 2, "layers": [
        conv(16, bias=False), "norm", "relu", conv(16, bias=False), {"norm": {"name": "branch"}},
        {"add": {"from": ["branch", "block"]}}, "relu"]},
    {"pool": {"kernel": "global", "op": "mean"}}, "flatten", {"dense": 12}, "loss",
])  # fmt: skip
ODD = network("odd", [4, 17, 13], [
    {"conv": {"filters": 6, "kernel": 5, "stride": 2, "padding": 1}}, "gelu",
    {"conv": {"filters": 9, "kernel": 4, "padding": "same"}}, {"norm": "instance"}, "leaky_relu",
    {"conv": {"filters": 7, "kernel": 3, "padding": 2, "dilation": 2}}, "tanh",
    {"pool": {"kernel": 3, "stride": 2, "op": "mean", "padding": 1}}, {"norm": "layer"},
    "flatten", {"dense": 11}, "sigmoid", {"dense": 5}, "loss",
])  # fmt: skip
GROUPED = network("grouped", [4, 12, 12], [
    conv(8), "relu", conv(8, groups=8), {"norm": "group"}, "silu", conv(16, 1), conv(8, groups=4),
    {"pool": {"kernel": "global", "op": "max"}}, "flatten", {"dense": 4}, {"loss": "mse"},
])  # fmt: skip
CUBES = network("cubes", [2, 16, 8, 8], [
    conv(4), {"pool": {"kernel": 2}}, "leaky_relu", conv(8, stride=2), "relu", conv(8), "relu",
    "flatten", {"dense": 8}, {"loss": "mse"},
])  # fmt: skip
WAVES = network("waves", [2, 48], [conv(6, 5), "relu", conv(6, 5, stride=2), "relu",
                                   "flatten", {"dense": 5}, "loss"])  # fmt: skip
PIXELS = network("pixels", [3, 16, 16], [conv(8), "relu", conv(8), "relu", conv(4, 1), "loss"])
GPT = {"name": "gpt", "source": "made for tests", "transformer": {
    "layers": 2, "hidden": 16, "heads": 4, "vocab": 32, "sequence": 8,
    "tied_embeddings": False}}  # fmt: skip
LLAMA = {"name": "llama", "source": "made for tests", "transformer": {
    "layers": 2, "hidden": 24, "heads": 4, "kv_heads": 2, "ffn": 40, "gated": True, "vocab": 30,
    "sequence": 7, "tied_embeddings": True, "flash": False}}  # fmt: skip
LLAMA8 = {**LLAMA, "name": "llama8", "transformer": LLAMA["transformer"] | {"sequence": 8}}

MIXTURE = {"name": "mixture", "source": "made for tests", "transformer": {
    "layers": 2, "hidden": 16, "heads": 4, "vocab": 32, "sequence": 8, "ffn": 24,
    "tied_embeddings": False, "experts": 4, "active": 2}}  # fmt: skip
GROUPS = {"name": "groups", "source": "made for tests", "transformer": {
    "layers": 3, "hidden": 16, "heads": 4, "kv_heads": 2, "vocab": 32, "sequence": 8, "ffn": 12,
    "gated": True, "bias": True, "tied_embeddings": False, "experts": 8, "active": 3, "shared": 1,
    "groups": 4, "reach": 2, "first_dense": 1}}  # fmt: skip

UNET = network("unet", [2, 16, 16], [
    {"name": "down0", "layers": [conv(4), "relu"]}, {"pool": {"kernel": 2}},
    {"name": "down1", "layers": [conv(8), {"norm": "instance"}, "relu"]}, {"pool": {"kernel": 2}},
    conv(8), "relu", {"deconv": {"name": "up1", "filters": 8, "kernel": 2, "stride": 2}},
    {"concat": {"from": ["up1", "down1"]}}, conv(8), "relu",
    {"deconv": {"name": "up0", "filters": 4, "kernel": 2, "stride": 2}},
    {"concat": {"from": ["up0", "down0"]}}, conv(4), "relu", conv(4, 1), "loss",
])  # fmt: skip
RISING = network("rising", [4, 14, 10], [  # parts that do not lie as those before them do
    conv(6), "relu", {"deconv": {"filters": 8, "kernel": 2, "stride": 2}}, "relu",
    {"deconv": {"filters": 4, "kernel": [1, 2], "stride": [2, 3], "padding": [0, 1],
                "output_padding": [1, 0], "bias": False}}, {"norm": "instance"}, conv(4, 1), "loss",
])  # fmt: skip
BERT = {"name": "bert", "source": "made for tests", "transformer": {
    "layers": 2, "hidden": 16, "heads": 4, "vocab": 32, "sequence": 8, "causal": False,
    "tied_embeddings": False, "pooler": True, "head_transform": True, "embedding_norm": True,
    "segments": 2, "final_norm": False}}  # fmt: skip
DROPPED = network("dropped", [3, 8, 8], [
    conv(8), "relu", {"dropout": {"rate": 0.3}}, conv(8), {"dropout": {"rate": 0.2}}, "flatten",
    {"dense": 12}, {"dropout": {"rate": 0.5}}, {"dense": 6}, "loss",
])  # fmt: skip
BRANCHES = network("branches", [3, 8, 8], [  # two branches, and an encoder that all blocks read
    {"conv": {"name": "stem", "filters": 8, "kernel": 3, "padding": 1}},
    {"conv": {"name": "one", "from": ["stem"], "filters": 4, "kernel": 1}},
    {"conv": {"name": "other", "from": ["stem"], "filters": 4, "kernel": 3, "padding": 1}},
    {"concat": {"name": "memory", "from": ["one", "other"]}},
    {"conv": {"from": ["input"], "filters": 8, "kernel": 3, "padding": 1}},
    {"repeat": 4, "layers": [{"conv": {"name": "own", "filters": 8, "kernel": 3, "padding": 1}},
                             {"add": {"from": ["own", "memory", "block"]}}, "relu"]},
    "flatten", {"dense": 8}, "loss",
])  # fmt: skip
TRANSLATOR = network("translator", [1, 8], [  # of eight words into four
    {"embedding": {"vocab": 20, "hidden": 16, "positions": 8}},
    {"repeat": 2, "layers": [
        {"norm": "layer"}, {"attention": {"name": "attention", "heads": 4}},
        {"add": {"name": "residual", "from": ["block", "attention"]}}, {"norm": "layer"},
        {"mlp": {"name": "mlp", "ffn": 24}}, {"add": {"from": ["residual", "mlp"]}}]},
    {"norm": {"name": "memory", "op": "layer"}},
    {"embedding": {"from": ["input"], "vocab": 20, "hidden": 16, "tokens": 4}},
    {"repeat": 3, "layers": [
        {"norm": "layer"}, {"attention": {"name": "attention", "heads": 4, "causal": True}},
        {"add": {"name": "residual1", "from": ["block", "attention"]}},
        {"norm": {"name": "queries", "op": "layer"}},
        {"cross": {"name": "cross", "from": ["queries", "memory"], "heads": 4}},
        {"add": {"from": ["residual1", "cross"]}}]},
    {"norm": "layer"}, {"dense": {"filters": 20, "bias": False, "role": "vocab"}}, "loss",
])  # fmt: skip

PLANS = {
    "translator": [
        "pipeline:2,segments=4",
        "pipeline:4,segments=4",
        "pipeline:2,segments=4,interleave=3",
        "pipeline:3,segments=2,schedule=gpipe data:2",
        "pipeline:2,segments=2 tensor:2",
        "pipeline:2,segments=4 recompute:full",
        "data:2,zero=3 recompute:selective",
        "tensor:4",
        "tensor:2,sequence=on",
    ],
    "unet": [
        "pipeline:2,segments=4",
        "pipeline:4,segments=4",
        "pipeline:3,segments=4,schedule=gpipe",
        "pipeline:2,segments=4,interleave=3",
        "pipeline:3,segments=2 data:2",
        "pipeline:3,segments=2 recompute:full",
        "data:2,zero=3 recompute:full",
        "pipeline:2,segments=2 sharded:2",
        "data:2 spatial:2",
        "spatial:2x2",
        "filter:2",
        "channel:2",
    ],
    "dropped": [
        "data:2",
        "spatial:2",
        "spatial:2x2",
        "filter:2",
        "channel:2",
        "pipeline:2,segments=4",
        "pipeline:2,segments=4 recompute:stage",
        "data:2,accumulate=2 recompute:full",
    ],
    "rising": [
        "spatial:2",
        "spatial:2x2",
        "spatial:3x1",
        "filter:2",
        "channel:2",
        "filter:2 channel:2",
        "data:2 spatial:2",
    ],
    "bert": [
        "data:2,zero=2",
        "tensor:2",
        "tensor:2,sequence=on",
        "context:2,kind=alltoall",
        "context:2 tensor:2,sequence=on",
        "pipeline:2,segments=2 data:2",
        "data:2 context:2,kind=alltoall tensor:2,sequence=on",
    ],
    "branches": [
        "pipeline:4,segments=4",
        "pipeline:4,segments=8,cuts=balanced",
        "pipeline:2,segments=2,interleave=3 data:2",
        "pipeline:3,segments=4,cuts=2/7",
        "pipeline:3,segments=2,cuts=memory/flatten recompute:full",
        "data:2,zero=3",
    ],
    "vgg": [
        "serial",
        "data:2",
        "data:4",
        "data:3",
        "data:2,overlap=off",
        "data:2,accumulate=2",
        "data:2,zero=2,accumulate=2",
        "data:2,zero=3,accumulate=2",
        "data:2,zero=1",
        "data:2,zero=2",
        "data:4,zero=3",
        "sharded:2",
        "sharded:4,zero=1",
        "data:2 sharded:2",
        "filter:2",
        "filter:4",
        "filter:4,back=scatter",
        "data:2 filter:2,back=scatter",
        "filter:2,back=scatter channel:2",
        "filter:2,back=scatter recompute:full",
        "channel:2",
        "channel:4",
        "spatial:2",
        "spatial:2x2",
        "spatial:4x1",
        "spatial:1x2",
        "pipeline:2,segments=4",
        "pipeline:3,segments=4,schedule=gpipe",
        "pipeline:4,segments=8,cuts=balanced",
        "pipeline:2,segments=4,interleave=3",
        "pipeline:3,segments=6,interleave=2 data:2",
        "data:2 filter:2",
        "data:4 filter:2",
        "data:2 channel:2",
        "data:2 spatial:2",
        "data:2 spatial:2x2",
        "filter:2 channel:2",
        "spatial:2 filter:2",
        "spatial:2 channel:2",
        "pipeline:2,segments=2 data:2",
        "pipeline:2,segments=2 filter:2",
        "pipeline:2,segments=2 data:2 spatial:2",
        "data:2,zero=1 filter:2",
        "recompute:full",
        "recompute:selective",
        "filter:2 recompute:full",
        "spatial:2 recompute:full",
        "data:2,zero=3 recompute:full",
        "pipeline:2,segments=4,schedule=gpipe recompute:full",
        "recompute:operators",
        "recompute:stage",
        "pipeline:2,segments=4,schedule=gpipe recompute:stage",
        "recompute:best",
        "offload:activations",
        "offload:activations,to=disk,prefetch=2",
        "data:2 offload:activations recompute:best",
        "pipeline:2,segments=4 offload:activations recompute:best",
        "offload:optimizer",
        "offload:optimizer,to=disk",
        "offload:optimizer,update=device",
        "offload:weights+optimizer",
        "offload:weights+optimizer,to=disk",
        "offload:weights+optimizer,update=device",
        "offload:optimizer,delayed=on",
        "offload:weights+optimizer,delayed=on",
        "data:2 offload:optimizer",
        "data:2,zero=1 offload:weights+optimizer",
        "data:2,zero=2,accumulate=2 offload:optimizer",
        "data:4,zero=3 offload:weights+optimizer",
        "data:2,zero=3,accumulate=2 offload:optimizer,update=device",
        "filter:2 offload:weights+optimizer",
        "spatial:2 offload:optimizer",
        "pipeline:2,segments=4 offload:weights+optimizer",
        "data:2,zero=3 recompute:full offload:weights+optimizer",
    ],
    "resnet": [
        "data:2",
        "data:4,zero=3",
        "filter:2",
        "filter:4,back=scatter",
        "data:2,overlap=on filter:2,back=scatter",
        "spatial:2 filter:2,back=scatter",
        "pipeline:2,segments=2 filter:2,back=scatter",
        "filter:8",
        "channel:2",
        "spatial:2",
        "spatial:2x2",
        "spatial:8x1",
        "pipeline:2,segments=2,schedule=gpipe",
        "data:2 filter:2",
        "data:2 spatial:2",
        "data:2 channel:2",
        "pipeline:2,segments=4 data:2",
        "recompute:full",
        "data:2,zero=3 recompute:full",
        "channel:2 recompute:full",
    ],
    "odd": [
        "data:5",
        "spatial:2",
        "spatial:3x1",
        "spatial:2x2",
        "filter:2",
        "filter:5",
        "channel:3",
        "data:2 spatial:2 filter:2",
        "pipeline:3,segments=5",
    ],
    "grouped": ["filter:2", "filter:4", "channel:2", "spatial:2", "data:2 filter:4"],
    "cubes": [
        "data:2",
        "spatial:2",
        "spatial:2x2",
        "spatial:2x2x2",
        "filter:4",
        "channel:2",
        "pipeline:2,segments=2",
        "data:2 spatial:2",
    ],
    "waves": ["spatial:2", "spatial:4", "filter:3", "data:2 spatial:2"],
    "pixels": ["spatial:2", "spatial:2x2", "data:2 spatial:2", "filter:2"],
    "gpt": [
        "data:4",
        "data:2,zero=3",
        "tensor:2",
        "tensor:4",
        "tensor:2,sequence=on",
        "filter:2",
        "channel:2",
        "data:2 tensor:2",
        "data:2,zero=1 tensor:2",
        "sharded:2 tensor:2",
        "pipeline:2,segments=4 tensor:2,sequence=on",
        "pipeline:2,segments=2 data:2 tensor:2",
        "pipeline:2,segments=2,borders=whole tensor:2",
        "recompute:full",
        "recompute:selective",
        "context:2",
        "context:4",
        "context:8",
        "context:2,kind=alltoall",
        "context:4,kind=alltoall",
        "data:2 context:2",
        "data:2,zero=1 context:2,kind=alltoall",
        "data:2,zero=3 context:4",
        "pipeline:2,segments=4 context:2",
        "tensor:2 context:2",
        "tensor:2 context:2,kind=alltoall",
        "tensor:2,sequence=on context:2",
        "data:2 tensor:2,sequence=on context:2,kind=alltoall",
        "data:2,accumulate=2 offload:optimizer",
        "pipeline:2,segments=4 data:2,zero=1 offload:weights+optimizer",
        "context:2 recompute:full",
        "context:2,kind=alltoall recompute:selective",
        "recompute:operators",
        "pipeline:2,segments=2 recompute:best",
        "offload:activations recompute:best",
        "pipeline:2,segments=2 offload:optimizer",
        "tensor:2,sequence=on offload:weights+optimizer",
        "data:2,zero=2 context:2 offload:optimizer,delayed=on",
        "tensor:2 recompute:full",
        "tensor:2,sequence=on recompute:full",
        "tensor:2 recompute:selective",
        "data:2,zero=3 recompute:full",
        "pipeline:2,segments=4 recompute:full",
        "pipeline:2,segments=4,interleave=2",
        "pipeline:2,segments=2,interleave=2,schedule=gpipe data:2",
        "pipeline:2,segments=4,interleave=2 tensor:2,sequence=on",
    ],
    "mixture": [
        "data:2",
        "tensor:2",
        "data:2 expert:2",
        "data:4 expert:4",
        "data:4,zero=1 expert:2",
        "data:4,zero=3 expert:2",
        "data:2,zero=2,accumulate=2 expert:2",
        "data:2 sharded:2 expert:2",
        "pipeline:2,segments=2 data:2 expert:2",
        "data:2 context:2 expert:4",
        "data:2 tensor:2 expert:2",
        "data:2 tensor:2,sequence=on expert:2",
        "data:2 tensor:2,sequence=on expert:4,cut=whole",
        "tensor:4,sequence=on expert:2,cut=whole",
        "data:2 expert:2 recompute:full",
        "data:2 expert:2 recompute:selective",
        "data:2 expert:2 offload:optimizer",
        "data:2 expert:2 offload:weights+optimizer",
    ],
    "groups": [
        "data:2 expert:2",
        "data:4 expert:4",
        "pipeline:2,segments=2 data:2 tensor:2,sequence=on expert:2",
        "data:2 tensor:2 expert:2",
    ],
    "llama8": ["context:2", "context:2,kind=alltoall", "data:2 context:4", "tensor:2 context:2"],
    "llama": [
        "context:2",
        "context:3",
        "data:2 context:2",
        "data:2",
        "tensor:2",
        "tensor:2,sequence=on",
        "data:2 tensor:2",
        "data:3,zero=1",
        "pipeline:2,segments=2",
        "pipeline:4,segments=3 data:2,zero=1",
        "pipeline:2,segments=2,interleave=2 tensor:2",
    ],
}
BATCH = {"odd": 10, "llama": 6, "vgg": 24}
MODELS = {
    m["name"]: m
    for m in (VGG, RESNET, ODD, GROUPED, CUBES, WAVES, PIXELS, GPT, LLAMA, LLAMA8, MIXTURE, GROUPS,
              UNET, BRANCHES, RISING, BERT, DROPPED, TRANSLATOR)
}  # fmt: skip


WORDS = ("keep", "offload", "recompute")
FEW = 4  # ranks that telling cases need at most


def shown(case):
    """What a case shows: its model, each strategy, knob and word of its plan, its optimizer, …"""
    found = {str(case[key]) for key in ("optimizer", "dtype", "routing", "units") if key in case}
    for word in case["plan"].split():
        axis, *knobs = word.split(",")
        name, _, value = axis.partition(":")
        found.add(name if value[:1].isdigit() else axis)
        if value.count("x") == 1 and value[:1].isdigit():  # corners cross, if windows have any
            found.add(f"{case['model']['name']} over two extents")
        for knob in knobs:
            key, _, value = knob.partition("=")
            found.add(f"{name},{key}" if value.isdigit() and key != "zero" else f"{name},{knob}")
    return {case["model"]["name"], *found}


def telling(cases):
    """Names of few cases that show all that small ones show, each the most that is left."""
    small = {case["name"]: shown(case) for case in cases
             if parse(case["plan"], case["batch"]).devices[0, 0] <= FEW}  # fmt: skip
    left = set().union(*small.values())
    while left:
        name = max(small, key=lambda one: len(small[one] & left))
        yield name
        left -= small[name]


def words_of(case):
    """What units do with their activations: by turns, or as the room decides."""
    if case.get("units"):
        return [WORDS[unit % 3] for unit in range(len(oracle.model(case["model"]).units[1]))]
    return chosen(case["model"], case["plan"], case["batch"])


MIXED = [  # weights of 16 bits, masters and sums of 32
    ("vgg", "data:2", "bfloat16"), ("vgg", "data:2,overlap=off", "bfloat16"),
    ("gpt", "data:2,zero=1", "bfloat16"), ("gpt", "data:2,zero=2,accumulate=2", "bfloat16"),
    ("gpt", "data:2,zero=3", "float16"), ("gpt", "tensor:2,sequence=on", "bfloat16"),
    ("gpt", "tensor:2", "float16"), ("resnet", "filter:2", "bfloat16"),
    ("vgg", "channel:2", "bfloat16"), ("vgg", "spatial:2", "bfloat16"),
    ("gpt", "pipeline:2,segments=2", "float16"), ("gpt", "context:2", "bfloat16"),
    ("mixture", "data:2 expert:2", "bfloat16"),
]  # fmt: skip


def cases():
    """Every model under every plan; in double precision, but for a few."""
    for name, plans in PLANS.items():
        for plan in plans:
            yield {"name": f"{name} {plan}", "model": MODELS[name], "plan": plan, "steps": 3,
                   "batch": BATCH.get(name, 8)}  # fmt: skip
    by_unit = {"vgg": ("serial", "data:2,zero=3", "spatial:2", "pipeline:2,segments=4",
                       "offload:weights+optimizer"), "gpt": ("serial", "tensor:2"),
               "resnet": ("serial",)}  # fmt: skip
    for name, plan in ((name, plan) for name, plans in by_unit.items() for plan in plans):
        yield {"name": f"{name} {plan} by unit", "model": MODELS[name], "plan": plan, "steps": 3,
               "batch": BATCH.get(name, 8), "units": True}  # fmt: skip
    for plan in ("offload:optimizer", "offload:weights+optimizer,delayed=on",
                 "data:2,zero=1 offload:optimizer,update=device"):  # fmt: skip
        yield {"name": f"vgg {plan} adam", "model": VGG, "plan": plan, "steps": 3, "batch": 8,
               "optimizer": "adam"}  # fmt: skip
    for optimizer in ("sgd", "adam"):
        for plan in ("data:2,zero=1", "filter:2", "pipeline:2,segments=2"):
            yield {"name": f"vgg {plan} {optimizer}", "model": VGG, "plan": plan, "steps": 3,
                   "batch": 8, "optimizer": optimizer}  # fmt: skip
    for optimizer in ("lars", "lamb"):
        for plan in ("data:2", "data:2,zero=1", "data:4,zero=3", "filter:2 channel:2",
                     "data:2 channel:2", "pipeline:2,segments=2", "spatial:2"):  # fmt: skip
            yield {"name": f"vgg {plan} {optimizer}", "model": VGG, "plan": plan, "steps": 3,
                   "batch": 8, "optimizer": optimizer, "rate": 0.05}  # fmt: skip
        for plan in ("tensor:2", "data:2,zero=1 tensor:2,sequence=on", "sharded:2 context:2"):
            yield {"name": f"gpt {plan} {optimizer}", "model": GPT, "plan": plan, "steps": 3,
                   "batch": 8, "optimizer": optimizer, "rate": 0.05}  # fmt: skip
    for plan in ("data:2 tensor:2,sequence=on expert:2", "data:2 context:2 expert:4"):
        yield {"name": f"mixture {plan} even", "model": MIXTURE, "plan": plan, "steps": 3,
               "batch": 8, "routing": "even", "optimizer": "lamb", "rate": 0.05}  # fmt: skip
    for plan in ("data:2", "filter:2", "channel:2", "spatial:2", "pipeline:2,segments=2"):
        yield {"name": f"resnet {plan} fp32", "model": RESNET, "plan": plan, "steps": 3, "batch": 8,
               "dtype": "float32"}  # fmt: skip
    for name, plan, dtype in MIXED:
        yield {"name": f"{name} {plan} {dtype}", "model": MODELS[name], "plan": plan, "steps": 3,
               "batch": BATCH.get(name, 8), "dtype": dtype}  # fmt: skip

"""The texts of `benchmarks.attack`: sound ones of every reader, after accidents."""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SPECS, DATA = ROOT / "specs", ROOT / "tests" / "data"
BATCH, MOST = 100, 5.0  # texts that one process reads, and seconds of a processor for each
WORDS = (
    b"0 1 -1 nan inf 1e999 -0 1e308 010 1_000 \xc2\xb2 \xd9\xa3 9223372036854775808 { } [ ] < > ' "
    b'" '
    b", : = # & * ! | - ? % @ ` ~ null true {} [] [[[[ {{{{ !!python/object:os.system &a *a << \\ "
    b"\t \r \n \0 \xff \xe2\x80\xae \xed\xa0\x80 GiB Gb B/s s us % ../ /dev/zero $(id) ${HOME} ; "
    b"repeat "
    b"conv dense abci resnet50 data:2 pipeline:4,segments=2 name: - 99999999999999999999 x\rx"
).split(b" ")


def mutated(seed: bytes, dice: random.Random) -> bytes:
    """A text after one to five accidents."""
    data = bytearray(seed[: 2**16])
    for _ in range(dice.randrange(1, 6)):
        at = dice.randrange(len(data) + 1)
        end = at + dice.randrange(1, 64)
        kind = dice.randrange(8)
        if kind == 0:
            data[at:at] = dice.choice(WORDS)
        elif kind == 1:
            data[at:end] = dice.choice(WORDS)
        elif kind == 2:
            del data[at:end]
        elif kind == 3:
            data[at:at] = data[at:end] * dice.randrange(1, 40)
        elif kind == 4 and at < len(data):
            data[at] = dice.randrange(256)
        elif kind == 5:
            del data[at:]
        elif kind == 6:
            data[at:at] = dice.choice((b"[", b"{", b"[{", b"- ", b"a: ")) * dice.randrange(1, 3000)
        else:
            lines = data.split(b"\n")
            dice.shuffle(lines)
            data = bytearray(b"\n".join(lines))
    return bytes(data)


# ------------------------------------------------------------------ texts


# what a number of a spec becomes: nothing, next to nothing, more than there is
NUMBER = r"(?<![\w.+-])(\d+(?:\.\d*)?(?:e[+-]?\d+)?)(?=[\s,\]}]|$)"
EXTREMES = ("0", "-1", "1e-300", "1e-99", "1e-30", "1e-9", "1e9", "1e30", "1e99", "1e300", "1e308",
            "0.5", "3", "255", "65537", "1000000007", "9" * 25, "nan", "inf")  # fmt: skip


def enlarged(seed: bytes, dice: random.Random) -> bytes:
    """A spec of which one to three numbers are beyond this world, units and all else as it was."""
    text = seed.decode()
    # not those of names, of lines that say where things come from, or of comments
    places = [
        (line + found.start(1), line + found.end(1))
        for line, content in _lines(text)
        if not re.match(r"\s*(- )?(name|title|source|description):|\s*#", content)
        for found in re.finditer(
            r"(?<![\w.+-])(\d+(?:\.\d*)?(?:e[+-]?\d+)?)(?=[\s,\]}]|$)", content
        )
    ]
    for begin, end in sorted(dice.sample(places, min(len(places), dice.randrange(1, 4))))[::-1]:
        text = text[:begin] + dice.choice(EXTREMES) + text[end:]
    return text.encode()


def _lines(text: str) -> Iterator[tuple[int, str]]:
    at = 0
    for content in text.split("\n"):
        yield at, content
        at += len(content) + 1


def finite(data: Any) -> None:
    """Refuse an answer of which a number is none."""
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, list | tuple):
        for each in data:
            finite(each)
    elif isinstance(data, float) and not math.isfinite(data):
        raise ArithmeticError(f"an answer of {data}")


@dataclass(frozen=True)
class Texts:
    """A batch of mutated texts of one reader."""

    name: str
    seeds: tuple[bytes, ...]
    read: Callable[[Path], Any]
    suffix: str
    seed: str
    accident: Callable[[bytes, random.Random], bytes] = mutated
    count: int = BATCH

    def run(self) -> int:
        """Read them all; 70 where something else than a refusal comes out."""
        from oracle.spec.document import SpecError

        signal.signal(signal.SIGVTALRM, _too_long)
        warnings.simplefilter("error")  # an overflow of a library is a number that is none
        dice = random.Random(self.seed)
        folder = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path.cwd()
        path, code = folder / f"attack-{os.getpid()}{self.suffix}", 0
        try:
            for _ in range(self.count):
                path.write_bytes(self.accident(dice.choice(self.seeds), dice))
                signal.setitimer(signal.ITIMER_VIRTUAL, MOST)
                try:
                    self.read(path)
                except SpecError as error:
                    str(error)
                except Exception:
                    code = 70
                    sys.stderr.write(f"{path.read_bytes()[:300]!r}\n{traceback.format_exc()}")
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        finally:
            path.unlink(missing_ok=True)
        return code


def _too_long(number: int, frame: Any) -> None:
    raise TimeoutError(f"a text took {MOST:g} s of a processor")


def seeds_of(*places: Path) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for place in places for path in sorted(place.glob("*"))
                 if path.is_file() and path.stat().st_size < 2**17)  # fmt: skip


def _estimated(path: Path) -> None:
    import oracle

    plans = ["data:2", "pipeline:2,segments=4", "serial"]
    finite(oracle.estimate(oracle.model(path), "abci", plans, 8).to_dict())


def _on_system(path: Path) -> None:
    import oracle

    system = oracle.system(path)
    inner = min(2, system.devices)
    plans = [f"data:{min(4, system.devices)}", f"pipeline:{inner},segments=4", f"filter:{inner}"]
    finite(oracle.estimate("lenet5", system, plans, 8).to_dict())
    if system.levels and system.devices > 8:
        finite(
            oracle.estimate(
                "gpt2", system, f"tensor:4 data:{system.devices // 4}", 64 * system.devices
            ).to_dict()
        )


def _on_device(path: Path) -> None:
    import oracle

    level = {"name": "node", "devices": 4, "bandwidth": "25 GB/s", "latency": "2 us",
             "source": "x"}  # fmt: skip
    system = {"name": "x", "source": "x", "device": str(path.absolute()), "levels": [level]}
    for model in ("lenet5", "gpt2"):
        finite(oracle.estimate(model, system, ["data:4", "tensor:2"], 8).to_dict())


def _fitted(path: Path) -> None:
    import oracle
    from oracle.spec import catalogue

    text = catalogue.shipped("systems")["abci"].read_text(encoding="utf-8")
    (path.parent / f"{path.stem}-system.yaml").write_text(
        text.replace("collectives: abci-nccl", f"collectives: {path.name}"), encoding="utf-8"
    )
    try:
        found = oracle.estimate("lenet5", path.parent / f"{path.stem}-system.yaml", "data:64", 64)
    finally:
        (path.parent / f"{path.stem}-system.yaml").unlink()
    finite(found.to_dict())


def _run_by(path: Path) -> None:
    import oracle

    plans = ["data:8,zero=1", "pipeline:2,segments=8 data:2 tensor:2,sequence=on", "data:8,zero=3"]
    finite(oracle.estimate("gpt2", "dgx-a100", plans, 64, software=path, any_plan=True).to_dict())


def _on_data(path: Path) -> None:
    import oracle

    with suppress(oracle.SpecError):  # of another shape than the model's
        found = oracle.model("resnet50", dataset=path)
        finite(oracle.estimate(found, "dgx-a100", "data:4", 64).to_dict())


def _job(path: Path) -> None:
    from oracle.readers import frameworks, jobs
    from oracle.readers.frameworks.training import Overrides

    frameworks.training(jobs.read([path], {}), Overrides(None, 16, None))


def _plans(path: Path) -> None:
    from oracle.plan.plan import parse
    from oracle.spec.files import read_text

    for line in read_text(path).splitlines():
        parse(line, 64.0)


def _settings(path: Path) -> None:
    from oracle.commands.settings import _read

    list(_read(path))


def _rows(path: Path) -> None:
    from oracle.show.plot.rows import SWEPT, columns, read_bars, read_rows

    columns(read_rows(str(path)), SWEPT, str(path))
    read_bars(str(path))


def _profiled(path: Path) -> None:
    import oracle

    oracle.estimate("lenet5", "abci", "data:2", 8, profile=path)


def _onnx_seeds() -> tuple[bytes, ...]:
    """A convolution, what follows it and a product, where ONNX is installed."""
    try:
        from onnx import TensorProto, helper
    except ImportError:
        return ()
    node, value = helper.make_node, helper.make_tensor_value_info
    zeros = [
        helper.make_tensor(name, TensorProto.FLOAT, shape, [0.0] * size)
        for name, shape, size in (("w", (4, 3, 3, 3), 108), ("b", (4,), 4), ("v", (10, 64), 640))
    ]
    graph = helper.make_graph(
        [node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
         node("Relu", ["c"], ["r"]),
         node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
         node("Flatten", ["p"], ["f"]), node("Gemm", ["f", "v"], ["y"], transB=1)],
        "net", [value("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [value("y", TensorProto.FLOAT, [1, 10])], zeros,
    )  # fmt: skip
    return (helper.make_model(graph).SerializeToString(),)


def _onnx(path: Path) -> None:
    from oracle.readers.importers import onnx

    onnx.read(path)


def readers() -> dict[str, tuple[Callable[[Path], Any], tuple[bytes, ...], str]]:
    """Name -> (function of a path, sound texts, ending) of every reader of texts."""
    from oracle.calibration import structure
    from oracle.executor.measured import read as measurement
    from oracle.readers import kernels, logs
    from oracle.readers.importers import huggingface
    from oracle.spec import catalogue
    from oracle.spec.files import read_text

    def logged(path: Path) -> None:
        reading = logs.read(path)
        if reading.levels:
            structure.learned([reading], catalogue.system("abci"))

    plans = b"data:4\npipeline:2,segments=4,schedule=1f1b data:2,zero=1 tensor:2,sequence=on\n" \
            b"spatial:2x2\nrecompute:full\nserial\nfilter:2 channel:2,x=1\n"  # fmt: skip
    toml = b'precision = "bf16"\nmax-memory = "70 GiB"\ntop = 3\n[report]\ntop = 40\n'
    table = b"device,family,precision,part,shape,seconds\na,gemm,bf16,,m=2 n=3 k=4,1e-5\n" * 2
    header = b"point,model,system,what_if,way,devices,batch,status,plan,seconds,seconds_low," \
             b"seconds_high,samples_per_second,forward,backward,recompute,update,bubble,exposed," \
             b"memory,capacity\n0,a,b,,best,2,8,ok,data:2,1,1,1,8,1,1,0,0,0,0,1,2\n"  # fmt: skip
    profile = b'{"oracle-profile": 1, "precision": "fp32"}\n{"optimizer": "momentum", ' \
              b'"weights": 100, "seconds": 0.1}\n'  # fmt: skip
    run = json.dumps({"schema": 1, "measured": True, "plans": [{
        "plan": "data:2", "seconds": {"iteration": 1.0}, "compute": {"forward": 0.5},
        "exchange": [{"what": "g", "op": "allreduce", "group": 2, "calls": 1, "bytes": 8.0,
                      "seconds": 0.1}], "memory": {"total": 1.0},
        "measured": {"model": "lenet5", "batch": 8, "devices": 2, "each": [1.0], "ranks": [],
                     "options": {}, "environment": {}, "stages": [[0, 1]], "complete": True},
    }]}).encode()  # fmt: skip
    config = json.dumps({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
                         "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100,
                         "max_position_embeddings": 64,
                         "num_key_value_heads": 2}).encode()  # fmt: skip
    logged_ = seeds_of(DATA / "logs", DATA / "topology") or (b"# nccl-tests\n",)
    return {
        "model": (_estimated, seeds_of(SPECS / "models"), ".yaml"),
        "system": (_on_system, seeds_of(SPECS / "systems"), ".yaml"),
        "device": (_on_device, seeds_of(SPECS / "devices"), ".yaml"),
        "data set": (_on_data, seeds_of(SPECS / "datasets"), ".yaml"),
        "software": (_run_by, seeds_of(SPECS / "software"), ".yaml"),
        "collectives": (_fitted, seeds_of(SPECS / "collectives"), ".yaml"),
        "job": (_job, seeds_of(DATA / "jobs"), ".sh"),
        "plan": (_plans, (plans,), ".txt"), "settings": (_settings, (toml,), ".toml"),
        "log": (logged, logged_, ".log"), "kernels": (kernels.read, (table,), ".csv"),
        "rows": (_rows, (header, b'{"rows": [{"point": 0, "devices": 2}]}'), ".csv"),
        "profile": (_profiled, (profile,), ".jsonl"), "measurement": (measurement, (run,), ".json"),
        "config": (huggingface.read, (config,), ".json"),
        "onnx": (_onnx, _onnx_seeds(), ".onnx"),
        "text": (read_text, (plans, toml, run), ".txt"),
    }  # fmt: skip


SPECS_OF = ("model", "system", "device", "data set", "software", "collectives")


def texts(seed: int, quick: bool) -> Iterator[Texts]:
    """Batches of every reader."""
    for name, (read, seeds, suffix) in readers().items():
        if not seeds:
            continue
        for number in range(1 if quick else 6):
            yield Texts(name, seeds, read, suffix, f"{seed} {name} {number}")
            if name in SPECS_OF and number < 2:
                yield Texts(f"{name}, extreme", seeds, read, suffix, f"{seed} {name} {number} far",
                            enlarged, BATCH // 10 if quick else BATCH)  # fmt: skip

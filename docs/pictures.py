"""The gallery: every picture that the product makes, at the width of a page and of a phone.

`python docs/pictures.py` writes `docs/pictures/` and `docs/pictures.md`; `--only KIND` one of them,
`--out DIR` elsewhere. Each picture is what its command line draws.
"""

from __future__ import annotations

import argparse
import csv
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
WIDTHS = {"wide": 1200, "phone": 390}


@dataclass(frozen=True)
class Picture:
    """A picture's file, the arguments of `oracle plot`, and one sentence on what it shows."""

    name: str
    command: str
    says: str


PICTURES = (
    Picture("parts", "parts gpt3-175b dgx-a100 --devices 1024 --batch 1536 --top 6",
            "What an iteration of each plan is made of, with its 90 % interval."),
    Picture("memory", "memory gpt3-175b dgx-a100 --devices 1024 --batch 1536 --top 6",
            "Bytes of a device by kind against its capacity, and how surely each plan fits."),
    Picture("memory-over-time", "memory gpt3-175b dgx-a100 --batch 128 --over-time "
            "--plan 'pipeline:8,segments=16 data:8 tensor:8,sequence=on'",
            "What is allocated when, on the stage that needs most."),
    Picture("pareto", "pareto gpt3-175b dgx-a100 --devices 256..1024 --batch 1536",
            "Time, memory and device-hours of every plan; ringed ones are beaten by none."),
    Picture("money", "pareto gpt3-175b dgx-a100 --devices 256..1024 --batch 1536 --top 12 "
            "--against money", "The same by time and money; device-hours where nobody says a "
            "price."),
    Picture("timeline", "timeline gpt3-175b dgx-a100 --batch 64 "
            "--plan 'pipeline:8,segments=16 data:4 tensor:8,sequence=on'",
            "Two streams a stage: passes, and below them the exchanges; what is pale waits."),
    Picture("timeline-data", "timeline resnet50 abci --plan data:64 --batch 2048",
            "Data parallelism: gradients leave beside the backward pass, the rest after it."),
    Picture("timeline-long", "timeline gpt3-175b dgx-a100 --batch 1536 --plan "
            "'pipeline:8,segments=96,interleave=6 data:16,zero=1 tensor:8,sequence=on'",
            "Where there are too many passes to see, the begin and the end of the iteration."),
    Picture("contention", "network gpt3-175b dgx-a100 --batch 128 "
            "--plan 'pipeline:4,segments=16 data:8 tensor:8,sequence=on'",
            "The links under a plan's dearest exchange; those that set the pace are red."),
    Picture("contention-data", "network resnet50 abci --batch 2048 --plan data:64",
            "Gradients of data parallelism on a fat tree, device by device."),
    Picture("contention-groups", "contention fugaku --devices 64 --pattern 64x1",
            "Any groups and operation, here on a torus."),
    Picture("breakdown", "breakdown resnet50 abci --devices 2..16 --batch 64 "
            "--each data,spatial,filter,channel --free",
            "Computation and communication of each strategy, from few devices to many."),
    Picture("scaling", "scaling resnet50 abci --devices 1..1024 --batch-per-device 32 "
            "--each data,spatial,filter,pipeline",
            "Time and throughput over devices, with the 90 % interval; gaps do not fit."),
    Picture("scaling-plan", "scaling gpt2 dgx-a100 --devices 8..256 --batch 256 "
            "--plan data:* --plan 'data:* tensor:2'",
            "Two plans that grow along one axis."),
    Picture("roofline", "roofline gpt2-xl dgx-a100 --plan 'data:8 tensor:8' --batch 256",
            "Layers and the whole step under the roofs of compute, memory, network, storage."),
    Picture("waits", "waits resnet50 v100-slow-node --plan data:128 --batch 8192",
            "Unlike devices: how long each partition is busy, and how long it waits."),
    Picture("measured", "measured docs/pictures/measured.csv",
            "Predicted against measured seconds, with the band of ten per cent."),
    Picture("workflow", "workflow resnet50 abci --nodes 1..1024 --search ensemble --trials 8",
            "A search over hyper-parameters: the product of speed-ups, and the honest one."),
    Picture("design-network", "design-network --devices 1024 --ports 36 "
            "--for resnet50,gpt3-175b", "Networks that could be bought, by time and by size."),
)  # fmt: skip


HEAD = """# Pictures

Every picture that `oracle plot` makes, each by the command below it; the report and the live
page show the same. They are laid out for their width, `--width 390` for a phone. Plans have short
names: `PP8·DP16·TP4` is `pipeline:8 data:16 tensor:4` (CP context, EP expert, FSDP sharded), with
a knob only where two would be called the same. This page and its pictures are written by
`python docs/pictures.py`.
"""


def measured(place: Path) -> None:
    """ParaDL's runs of ResNet-50 on ABCI beside what is predicted for them, as rows to draw."""
    import oracle

    table = ROOT / "benchmarks" / "data" / "paradl_runs_resnet.csv"
    lines = [line for line in table.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    rows = ["predicted,measured,low,high,group,label"]
    for run in csv.DictReader(lines):
        plan = f"data:{run['devices']}"
        found = oracle.estimate("resnet50", "abci", plan, float(run["batch"]), optimizer="adam",
                                software="chainermn")  # fmt: skip
        seconds = [f"{float(v[0]):.5f}" for v in (found.seconds_low, found.seconds_high)]
        rows.append(f"{float(found.seconds[0]):.5f},{run['median']},{','.join(seconds)},"
                    f"data parallel on ABCI,{plan}")  # fmt: skip
    place.write_text("\n".join(rows) + "\n", encoding="utf-8")


def drawn(one: Picture, out: Path) -> list[str]:
    """The picture at each width, and what the page says of it."""
    from oracle.commands.parser import parser_of
    from oracle.commands.plot import figure_of
    from oracle.show.plot import rendered

    said = []
    for name, width in WIDTHS.items():
        place = out / f"{one.name}-{name}.svg"
        words = [*shlex.split(one.command), "--width", str(width), "-o", place.name]
        figure = figure_of(parser_of("plot").parse_args(words))
        place.write_bytes(rendered(figure, "svg", text=True))
        said.append(figure.alt)
    title = one.name.replace("-", " ").capitalize()
    return [f"## {title}", "", one.says, "", f"![{said[0]}](pictures/{one.name}-wide.svg)", "",
            "```console", f"$ oracle plot {one.command} -o {one.name}.svg", "```", "",
            f"[The same for a phone](pictures/{one.name}-phone.svg)", ""]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="NAME", action="append", default=[])
    parser.add_argument("--out", type=Path, metavar="DIR", default=ROOT / "docs" / "pictures")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    measured(asked.out / "measured.csv")
    page = [HEAD]
    for one in PICTURES:
        if not asked.only or one.name in asked.only:
            page += drawn(one, asked.out)
    if not asked.only:
        (asked.out.parent / "pictures.md").write_text("\n".join(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

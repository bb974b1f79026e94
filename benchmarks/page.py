"""How fast the live page is: first paint, from slider to redraw, twenty people at once.

    python -m benchmarks.page [--quick] [--json]

Headless Chromium on a page that `oracle serve` serves here. Wall-clock seconds, so they hold for a
machine with nothing else to do; `load` says how busy this one was. Importing `oracle` is measured
in CPU seconds, in fresh processes, with and without the extra's packages in sight.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks.table import Table, figure, text

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
QUESTIONS = {
    "resnet50": "model=resnet50&system=abci&devices=64&batch=4096",
    "gpt3-175b": "model=gpt3-175b&system=dgx-a100&devices=1024&batch=1536",
    "llama3-8b": "model=llama3-8b&system=dgx-h100&devices=64&batch=512",
}
PEOPLE = 20
MOVE = """
const one = document.querySelector("#what-{name}");
one.value = {value};
one.dispatchEvent(new Event("input", {{bubbles: true}}));
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", dest="as_json")
    asked = parser.parse_args()
    from browser import Browser

    rows: list[dict[str, Any]] = []
    with serving() as address, tempfile.TemporaryDirectory() as folder:
        browser = Browser(folder)
        try:
            questions = list(QUESTIONS)[: 1 if asked.quick else None]
            for name in questions:
                rows.append(opened(browser, address, name, 10 if asked.quick else 30))
        finally:
            browser.close()
        people = crowd(address)
    times = 3 if asked.quick else 9
    figures = {
        "page.first_paint": figure(max(row["first paint, ms"] for row in rows), "ms", "≤ 1000 ms"),
        "page.redraw": figure(max(row["redraw, ms"] for row in rows), "ms", "≤ 200 ms, median"),
        "page.twenty_people": figure(people, "s", "median of 20 answers asked at once"),
        "import.cpu_seconds": figure(statistics.median(imported() for _ in range(times)), "s", ""),
        "load": figure(os.getloadavg()[0], f"of {os.cpu_count()} cores", ""),
    }
    table: Table = {"title": "The live page", "rows": rows, "figures": figures}
    print(json.dumps({"figures": figures, "rows": rows}, indent=1) if asked.as_json
          else text(table))  # fmt: skip
    return 0


@contextmanager
def serving() -> Iterator[str]:
    """A page that listens; its address."""
    line = [sys.executable, "-m", "oracle", "serve", "--port", "0"]
    started = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    try:
        found = re.search(r"http://\S+", started.stderr.readline())
        assert found, "the page does not start"
        yield found[0]
    finally:
        started.terminate()
        started.wait(timeout=60)


def wait(browser: Any, condition: str, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not browser.run(f"return Boolean({condition})"):
        if time.monotonic() > end:
            raise TimeoutError(condition)
        time.sleep(0.05)


def opened(browser: Any, address: str, name: str, moves: int) -> dict[str, Any]:
    """First paint, first answer, and the median from a slider's move to the redrawn page."""
    browser.go("about:blank")
    begin = time.perf_counter()
    browser.go(f"{address}?{QUESTIONS[name]}")
    wait(browser, "document.querySelectorAll('.ranking tbody tr').length")
    answer = time.perf_counter() - begin
    paint = browser.run(
        "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
    )
    spent = []
    for at in range(moves + 2):
        wait(browser, "document.querySelector('#ranking').getAttribute('aria-busy') !== 'true'")
        before = browser.run("return performance.getEntriesByName('redraw').length")
        slider = ("network", "kernels", "memory")[at % 3]
        browser.run(MOVE.format(name=slider, value=(-1) ** at * (0.25 + at % 8 / 4)))
        wait(browser, f"performance.getEntriesByName('redraw').length > {before}")
        spent.append(browser.run("return performance.getEntriesByName('redraw').at(-1).duration"))
        wait(browser, "/worked out|fit/.test(document.querySelector('#status').textContent)")
    spent = spent[2:]  # the first moves meet processes that have not met the model
    return {
        "question": name, "first paint, ms": round(paint), "first answer, s": round(answer, 2),
        "redraw, ms": round(statistics.median(spent)), "slowest, ms": round(max(spent)),
        "moves": len(spent),
    }  # fmt: skip


def crowd(address: str) -> float:
    """The median wait of people who all ask something else at the same time."""

    def person(number: int) -> float:
        begin = time.perf_counter()
        asked = f"{QUESTIONS['resnet50']}&network={1 + number / 8}"
        with urlopen(f"{address}view/again?{asked}", timeout=300) as answer:
            answer.read()
        return time.perf_counter() - begin

    with ThreadPoolExecutor(PEOPLE) as people:
        return statistics.median(people.map(person, range(PEOPLE)))


def imported() -> float:
    """CPU seconds of a process that imports the core, above one that does nothing."""

    def spent(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return spent("import oracle") - spent("pass")


if __name__ == "__main__":
    sys.exit(main())

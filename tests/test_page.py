"""The HTML report: one file, safe with hostile names, and working in a real browser."""

import base64
import json
import re
import shlex
import time
from html.parser import HTMLParser

import pytest
from browser import CHROME, DRIVER, Browser
from command_line import ROOT, told

import oracle
from oracle import api
from oracle.commands.cli import main
from oracle.show.page import page, sources
from oracle.show.page.markup import Html, join, plain, tag

pytest.importorskip("matplotlib", reason="the extra `plot` is not here")

HOSTILE = (
    "</script><script>window.pwned=1</script><img src=x onerror='window.pwned=1'>\"'&]]>\u202e"
)


class Outline(HTMLParser):
    """What a browser would find: elements, whether all are closed, links to elsewhere."""

    VOID = ("meta", "br", "hr", "img", "link", "input")

    def __init__(self) -> None:
        super().__init__()
        self.open, self.seen, self.ids, self.links, self.text = [], [], [], [], []

    def handle_starttag(self, name, attributes):
        self.seen.append((name, dict(attributes)))
        said = dict(attributes)
        if "id" in said:
            self.ids.append(said["id"])
        self.links += [
            v for k, v in attributes if k in ("src", "href", "xlink:href", "action") and v
        ]
        if name not in self.VOID:
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.handle_starttag(name, attributes)
        if name not in self.VOID:
            self.open.pop()

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)


def outline(text):
    found = Outline()
    found.feed(text)
    assert not found.open
    return found


@pytest.fixture(scope="module")
def ranking():
    return api.recommend("resnet50", "abci", 64, batch=2048, top=6)


@pytest.fixture(scope="module")
def text(ranking):
    return page(ranking, "oracle report resnet50 abci", [("model resnet50", "name: resnet50\n")])


def hostile_ranking():
    model = {"name": HOSTILE, "title": HOSTILE, "source": "test", "input": [8, 8, 8],
             "layers": [{"conv": 8, "window": 3, "name": HOSTILE}, {"dense": 10}]}  # fmt: skip
    try:
        found = oracle.model(model)
    except oracle.SpecError:  # the grammar of layers is not this test's business
        found = oracle.model("resnet50")
        found = type(found)(HOSTILE, found.rows, found.feeds, found.segments, HOSTILE, HOSTILE,
                            found.dataset)  # fmt: skip
    return api.recommend(found, "abci", 4, batch=64)


def test_tags_escape_what_is_not_markup():
    assert tag("p", "<b>", class_='"x"') == '<p class="&quot;x&quot;">&lt;b&gt;</p>'
    assert tag("p", Html("<b>x</b>"), None, ["a", 1]) == "<p><b>x</b>a1</p>"
    assert join(["'", '"']) == "&#x27;&quot;"
    assert plain("a\u202eb\x00\n") == "a�b�\n"
    assert tag("td", "x", data_v=1.5, hidden=False) == '<td data-v="1.5">x</td>'


def test_one_file_that_asks_nobody(text):
    found = outline(text)
    elsewhere = [link for link in found.links if not link.startswith(("#", "data:"))]
    assert not elsewhere
    assert "@import" not in text
    assert "url(http" not in text
    assert len(found.ids) == len(set(found.ids))
    names = [name for name, _ in found.seen]
    assert names.count("svg") >= 4
    assert names.count("h1") == 1
    assert len(text.encode()) <= 500_000


def test_no_character_is_lost(text):
    assert "\ufffd" not in text
    assert re.search(r"Bound by .*\d %", text)


def test_every_picture_has_words(text):
    found = outline(text)
    for name, said in found.seen:
        if name == "svg":
            assert said["role"] == "img"
            assert len(said["aria-label"]) > 15


def test_the_answer_stands_first_and_without_scripts(text, ranking):
    words = " ".join(outline(text).text)
    assert words.index(ranking.best.plan) < 700
    first = re.search(r"<h1>(.*?)</h1>", text)[1]
    for wanted in ("DP64 on 64 × NVIDIA Tesla V100", "a step (", "fits with over 99 %"):
        assert wanted in first
    for wanted in (
        "an iteration",
        "free",
        "(90 %)",
        "Bound by",
        "combinations of strategies fit",
        "It rests on: kernels fitted",
        "oracle export slurm resnet50 abci",
        "Sources",
    ):
        assert wanted in words
    body = text[text.index("<body") :]
    assert body.index("<script") > body.rindex("</table>")


def test_the_only_script_is_the_one_the_policy_names(text):
    import hashlib

    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1].replace(
        "&#x27;", "'"
    )
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe-inline'" not in policy.split("script-src")[1]
    assert not re.search(r"<[^>]* on[a-z]+=", text)


def test_the_data_inside_is_the_published_form(text, ranking):
    inside = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(inside[1]) == ranking.to_dict(with_misses=True)


@pytest.mark.slow
def test_hostile_names_stay_text():
    text = page(hostile_ranking(), f"oracle report {HOSTILE}", [(HOSTILE, HOSTILE)])
    found = outline(text)
    assert [name for name, _ in found.seen].count("script") == 2
    assert not any(k.startswith("on") for _, said in found.seen for k in said)
    assert not any(name == "img" for name, _ in found.seen)
    assert "\u202e" not in text
    assert "window.pwned=1</script><img src=x" in "".join(found.text)


def test_the_same_report_is_the_same_bytes(ranking, text):
    again = page(ranking, "oracle report resnet50 abci", [("model resnet50", "name: resnet50\n")])
    assert again == text


def test_nothing_fits_is_said_with_the_shortage(tmp_path, capsys):
    place = tmp_path / "r.html"
    assert main(["report", "gpt3-175b", "abci", "--devices", "4", "--batch", "4",
                 "-o", str(place)]) == 1  # fmt: skip
    words = " ".join(outline(place.read_text()).text)
    assert "None of" in words
    assert "short" in words
    assert "no plan fits" in capsys.readouterr().err


@pytest.mark.slow
def test_command_embeds_specs_and_command(tmp_path, capsys):
    place = tmp_path / "r.html"
    assert main(["report", "resnet50", "abci", "--devices", "8", "--batch", "256",
                 "-o", str(place)]) == 0  # fmt: skip
    words = " ".join(outline(place.read_text()).text)
    for wanted in ("levels:", "samples:", "oracle report"):
        assert wanted in words
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.html"]


def test_without_matplotlib_the_rest_stands(ranking, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = page(ranking, "oracle report")
    assert "Figures are left out" in text
    assert "<svg" not in text
    assert ranking.best.plan in text


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if not (CHROME and DRIVER):
        pytest.skip("chromium and chromium-driver are not installed")
    found = Browser(tmp_path_factory.mktemp("chrome"))
    yield found
    found.close()


def test_in_a_browser(browser, text, tmp_path):
    place = tmp_path / "report.html"
    place.write_text(text)
    browser.size(1200, 900)
    browser.open(place)
    assert browser.console() == []
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    pictures = browser.run(
        "return [...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().height)"
    )
    seen = [height for height in pictures if height]
    assert 4 <= len(seen) == len(pictures) - len(seen), "of each the one for this width"
    assert min(seen) > 100
    column = (
        "[...document.querySelectorAll('table')[0].tBodies[0].rows].map(r => r.cells[6].dataset.v)"
    )
    press = "document.querySelectorAll('table')[0].tHead.rows[0].cells[6].firstChild.click();"
    upwards = [float(v) for v in browser.run(f"{press} return {column}")]
    assert upwards == sorted(upwards)
    downwards = [float(v) for v in browser.run(f"{press} return {column}")]
    assert downwards == upwards[::-1]
    sort = "return document.querySelector('th[aria-sort]').getAttribute('aria-sort')"
    assert browser.run(sort) == "descending"
    assert browser.run("return document.querySelectorAll('button.copy').length") >= 5
    browser.run("document.querySelector('button.copy').click()")
    time.sleep(0.3)
    assert browser.console() == []
    image = base64.b64decode(browser.say("GET", "/screenshot"))
    assert image.startswith(b"\x89PNG")
    assert len(image) > 20_000


def test_narrow_screens_do_not_scroll_sideways(browser, text, tmp_path):
    place = tmp_path / "report.html"
    place.write_text(text)
    browser.size(500, 900)
    browser.open(place)
    wide = browser.run("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert wide[0] <= wide[1]


def test_hostile_names_do_nothing_in_a_browser(browser, tmp_path):
    place = tmp_path / "hostile.html"
    place.write_text(page(hostile_ranking(), f"oracle {HOSTILE}", [(HOSTILE, HOSTILE)]))
    browser.open(place)
    assert browser.run("return window.pwned === undefined") is True
    assert browser.run("return document.images.length") == 0
    assert browser.console() == []


def test_it_prints(browser, text, tmp_path):
    place = tmp_path / "report.html"
    place.write_text(text)
    browser.open(place)
    content = base64.b64decode(browser.say("POST", "/print", {"background": True}))
    assert content.startswith(b"%PDF")
    assert len(content) > 10_000


@pytest.mark.slow
def test_next_commands_ask_the_same_question(tmp_path, capsys):
    """A system of one's own was called by its name, and precision was left out."""
    (tmp_path / "mine.yaml").write_text(
        (ROOT / "specs" / "systems" / "abci.yaml").read_text().replace("name: abci", "name: mine")
    )
    line = ["lenet5", str(tmp_path / "mine.yaml"), "--devices", "2", "--batch", "64",
            "--precision=fp16", "--max-memory", "12 GiB"]  # fmt: skip
    code, out, _ = told(capsys, "recommend", *line)
    assert code == 0
    said = shlex.split(out.partition("\nnext: oracle ")[2].replace("\\\n", ""))
    same = ["--precision=fp16", "--max-memory", "12 GiB"]
    assert said[-len(same) :] == same
    assert told(capsys, *said)[0] == 0
    assert told(capsys, "report", *line, "-o", str(tmp_path / "r.html"))[0] == 0
    told_next = " ".join(outline((tmp_path / "r.html").read_text()).text).split("Next ")[1]
    words = shlex.split(told_next.partition("Alternatives")[0])
    for verb, then in (("export", "slurm"), ("explain", "lenet5")):
        (at,) = (k for k, word in enumerate(words) if word == verb and words[k - 1] == "oracle")
        assert words[at + 1] == then
        asked = words[at : at + 16]
        assert str(tmp_path / "mine.yaml") in asked
        assert {*same} <= {*asked}


@pytest.mark.slow
def test_sources_are_whole_and_the_next_command_writes_a_job():
    folded = (
        'name: x\nsource: >-\n  one line\n  and another\nlevels:\n  - {a: 1, source: "in (b)"}\n'
    )
    found = oracle.recommend("gpt2", "dgx-a100", devices=8, batch=64, software="megatron-core")
    told = outline(sources(found, [("system x", folded)])).text
    assert "one line and another" in told
    assert "in (b)" in told
    words = " ".join(" ".join(outline(page(found, "oracle")).text).split())
    assert "oracle export job gpt2 dgx-a100" in words
    assert "--software megatron-core" in words

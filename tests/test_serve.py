"""The live page: what it answers, who may ask, what is dropped on it, and how it looks."""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from grids import rest_slow

from oracle.commands.cli import main
from oracle.commands.serve import job
from oracle.commands.serve.guard import HEADERS, LARGEST, Guard, loopback
from oracle.commands.serve.question import FieldError, question
from oracle.spec.document import SpecError
from oracle.spec.files import only_within, read_text

pytest.importorskip("matplotlib", reason="the extra `plot` is not here")
pytest.importorskip("starlette", reason="the extra `serve` is not here")
testclient = pytest.importorskip("starlette.testclient", reason="httpx is not here")

from browser import CHROME, DRIVER, Browser  # noqa: E402

from oracle.commands.serve.app import Page  # noqa: E402
from oracle.commands.serve.views import VIEWS  # noqa: E402
from oracle.commands.serve.workers import TooLong, Workers  # noqa: E402

TOKEN = "a-token-of-some-letters"
ASKED = "model=lenet5&system=abci&devices=8&batch=256&only=data"
HOSTILE = "</script><img src=x onerror='window.pwned=1'>\"../../x\u202e.yaml"


class Here:
    """Answers in this process, as a worker does."""

    def __init__(self):
        self.asked = []

    async def ask(self, words, form, kind="", rows=None):
        self.asked.append(shlex.join(words))
        return await asyncio.to_thread(job.answered, words, form, rows)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("dropped"), Path.cwd()
    os.chdir(folder)
    tempfile.tempdir = str(folder)
    yield Page(folder, Here())
    os.chdir(before)
    tempfile.tempdir = None


@pytest.fixture(scope="module")
def client(page):
    app = Guard(page.application(), TOKEN, "127.0.0.1")
    with testclient.TestClient(app, base_url="http://127.0.0.1:8642") as found:
        yield found


def get(client, path, **headers):
    return client.get(f"/{TOKEN}/{path}", headers=headers)


# -- what is asked ---------------------------------------------------------------------------------
def test_a_question_is_its_address_its_command_and_its_python():
    asked = question({"model": "gpt2", "system": "abci", "devices": "8", "batch": "64",
                      "network": "2", "price": "1.5", "memory": "1", "any": "on"}, {})  # fmt: skip
    assert asked.address.endswith("batch=64&any=on&network=2&price=1.5")
    assert asked.words("recommend") == [
        "recommend", "gpt2", "abci,network*=2,price=1.5 USD/h", "--devices", "8", "--batch", "64",
        "--any"]  # fmt: skip
    assert asked.as_it_is().system == "abci"


@pytest.mark.parametrize(("field", "value"), [
    ("model", "/etc/passwd"), ("model", "-"), ("model", "resnet50,dataset=/etc/passwd"),
    ("model", "../lenet5.yaml"), ("system", "abci,price=1 USD/h"), ("software", "x.yaml"),
    ("dataset", "/dev/zero"), ("devices", "0"), ("devices", "many"), ("batch", "max"),
    ("batch", "²"), ("network", "0x2"), ("network", "inf"), ("price", "1 USD"), ("top", "-1"),
    ("precision", "fp7"), ("profile", "/etc/passwd"), ("batch", "9" * 300), ("any", "yes"),
])  # fmt: skip
def test_what_a_field_cannot_be_is_said_beside_it(client, field, value):
    said = {"model": "lenet5", "system": "abci", "devices": "8", "batch": "256", field: value}
    answer = client.get(f"/{TOKEN}/view/ranking", params=said)
    assert answer.status_code == 422
    assert answer.json()["field"] == field
    assert "root:" not in answer.text


def test_a_fault_of_the_answer_names_its_field(client):
    answer = get(client, "view/ranking?model=lenet5&system=abci&devices=999999&batch=999999")
    assert answer.status_code == 422
    assert answer.json()["field"] == "devices"


def ran(command, tmp_path, capsys):
    """What a command that the page shows prints, or the file that it writes."""
    words = shlex.split(command)
    assert words.pop(0) == "oracle"
    place = tmp_path / "out.svg"
    if "-o" in words:
        words[words.index("-o") + 1] = str(place)
        assert main(words) == 0
        return place.read_text()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_a_phone_has_pictures_of_its_own_width(client, tmp_path, capsys):
    found = get(client, f"view/scaling?{ASKED}&width=390").json()
    assert "--width 390" in found["command"]
    assert "width=390" in found["python"]
    narrow = ran(found["command"], tmp_path, capsys)
    assert narrow == get(client, f"download/scaling.svg?{ASKED}&width=390").text
    assert 'width="292.5pt"' in narrow
    refused = get(client, f"view/scaling?{ASKED}&width=39000")
    assert (refused.status_code, refused.json()["field"]) == (422, "width")


@pytest.mark.slow
def test_each_size_is_worked_out_once_and_before_the_picture(client, page):
    asked = ASKED.replace("batch=256", "batch=128")
    assert get(client, f"size/timeline/0?{asked}").status_code == 404
    of = get(client, f"size/scaling/0?{asked}").json()["of"]
    assert get(client, f"size/scaling/{of}?{asked}").status_code == 404
    for at in range(1, of):
        assert get(client, f"size/scaling/{at}?{asked}").json() == {"of": of}
    before = len(page.workers.asked)
    for width in ("", "&width=390"):
        assert get(client, f"view/scaling?{asked}{width}").status_code == 200
    assert len(page.workers.asked) == before + 2, "two drawings, and no search"
    more = asked.replace("devices=8", "devices=16")
    assert get(client, f"view/scaling?{more}").status_code == 200
    assert len(page.workers.asked) <= before + 2 + 3, "what the two questions share is there"


@pytest.mark.parametrize("name", rest_slow([n for n in VIEWS if n != "report"], ["memory"]))
def test_a_view_is_what_its_command_and_its_python_give(client, name, tmp_path, capsys):
    found = get(client, f"view/{name}?{ASKED}&network=0.5").json()
    by_command = ran(found["command"], tmp_path, capsys)
    space, drawn = {"place": tmp_path / "python.svg"}, "data" not in found
    python = re.sub(r'"[\w-]+\.svg"', "place", found["python"].replace("print(", "table = ("))
    exec(python, space)  # what a person would paste
    if drawn:
        saved = get(client, f"download/{name}.svg?{ASKED}&network=0.5")
        assert saved.text == by_command == space["place"].read_text()
        return
    assert found["data"]["plans"] == by_command["plans"]
    table = space["ranking" if name == "ranking" else "found"]
    assert [one["seconds"] for one in table.to_dict()["plans"]] == [
        one["seconds"] for one in by_command["plans"]]  # fmt: skip


def test_slider_and_search_agree_on_the_same_plans(client):
    searched = get(client, f"view/ranking?{ASKED}&network=0.5").json()["data"]["plans"]
    again = get(client, f"view/again?{ASKED}&network=0.5").json()["data"]["plans"]
    seconds = {one["plan"]: one["seconds"]["iteration"] for one in searched}
    both = [one for one in again if one["plan"] in seconds]
    assert both
    for one in both:
        assert one["seconds"]["iteration"] == pytest.approx(seconds[one["plan"]], rel=1e-12)


@pytest.mark.parametrize("name", [n for n, one in VIEWS.items() if "png" in one.forms])
def test_pictures_are_had_as_png_too(client, name):
    answer = get(client, f"download/{name}.png?{ASKED}")
    assert answer.headers["content-type"] == "image/png"
    assert answer.content.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(answer.content[16:20]) >= 1200, "pixels wide"


@pytest.mark.parametrize(("name", "form", "kind"), [
    ("ranking", "csv", "text/csv"), ("ranking", "json", "application/json"),
    ("report", "html", "text/html"),
])  # fmt: skip
def test_downloads(client, name, form, kind):
    answer = get(client, f"download/{name}.{form}?{ASKED}")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(kind)
    assert answer.headers["content-disposition"].endswith(f'lenet5-abci-{name}.{form}"')
    assert len(answer.text) > 500
    assert get(client, f"download/{name}.exe?{ASKED}").status_code == 404


def test_the_same_question_is_worked_out_once(client, page):
    for _ in range(3):
        get(client, f"view/ranking?{ASKED}&batch=384".replace("batch=256&", ""))
    assert sum("--batch 384" in line for line in page.workers.asked) <= 1


# -- who may ask -----------------------------------------------------------------------------------
def test_without_the_token_nothing_is_said(client):
    for path in ("/", "/x/", f"/{TOKEN[:-1]}/", f"/{TOKEN}x/known", "/known", "/page.js",
                 f"/x/../{TOKEN}", f"//{TOKEN}/known", f"/{TOKEN}"):  # fmt: skip
        answer = client.get(path)
        assert answer.status_code in (403, 404)
        assert "lenet5" not in answer.text
        assert TOKEN not in answer.text


def test_another_name_for_this_machine_is_refused(client):
    for host in ("evil.example", "evil.example:8642", "127.0.0.1.evil.example", ""):
        assert get(client, "known", host=host).status_code in (400, 421)
    for host in ("localhost:1", "[::1]:8642", "127.0.0.1"):
        assert get(client, "known", host=host).status_code == 200
    assert not loopback("0.0.0.0")


def test_another_page_cannot_drop_files(client):
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"},
                    {"origin": "null"}):  # fmt: skip
        answer = client.post(f"/{TOKEN}/drop?name=a.yaml", content=b"name: x", headers=headers)
        assert answer.status_code == 403
    assert client.put(f"/{TOKEN}/drop").status_code == 405
    assert client.post(f"/{TOKEN}/known").status_code == 405


def test_sizes_are_limited(client):
    big = client.post(f"/{TOKEN}/drop?name=a.yaml", content=b"#" * (LARGEST + 1))
    assert big.status_code == 413
    streamed = client.post(f"/{TOKEN}/drop?name=a.yaml", content=iter([b"#" * 10]))
    assert streamed.status_code == 411
    assert get(client, f"view/ranking?{ASKED}&{'x' * 9000}=1").status_code == 414


def test_every_answer_carries_the_policy(client):
    for path in ("", "known", "page.js", "look.css", "palette.css", "nothing", f"view/x?{ASKED}"):
        headers = get(client, path).headers
        for name, value in HEADERS.items():
            assert headers[name] == value
        assert "access-control-allow-origin" not in headers
    assert "unsafe" not in HEADERS["content-security-policy"]
    text = get(client, "").text
    assert not re.search(r"\son\w+=|style=|<script>|https?://", text)


# -- what is dropped -------------------------------------------------------------------------------
def drop(client, name, content, system="abci"):
    content = content if isinstance(content, bytes) else content.encode()
    return client.post(f"/{TOKEN}/drop", params={"name": name, "system": system}, content=content)


CONFIG = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 1000,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
          "max_position_embeddings": 128, "tie_word_embeddings": False}  # fmt: skip
SPEC = """name: mine
source: "a test"
input: [8, 8, 8]
layers:
  - conv: {filters: 8, kernel: 3}
  - dense: 10
"""


@pytest.mark.parametrize(("name", "content", "kind"), [
    ("config.json", json.dumps(CONFIG), "models"), ("mine.yaml", SPEC, "models"),
    (HOSTILE, SPEC.replace("mine", "theirs"), "models"),
])  # fmt: skip
def test_a_model_that_is_dropped_can_be_asked_of(client, page, name, content, kind):
    answer = drop(client, name, content)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["kind"] == kind
    assert re.fullmatch(r"[a-z0-9-]+\.yaml", found["name"])
    assert found["name"] in [one["name"] for one in get(client, "known").json()["dropped"]]
    said = get(client, f"view/ranking?model={found['name']}&system=abci&devices=4&batch=64")
    assert said.status_code == 200, said.text
    assert f"oracle recommend {found['name']} abci" in said.json()["command"]
    assert str(page.uploads.folder) not in said.text


def test_a_log_that_is_dropped_becomes_a_system(client, page):
    log = Path(__file__).parents[1] / "notebooks/data/one-server.nccl"
    answer = drop(client, "one.nccl", log.read_bytes())
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["kind"] == "systems"
    said = get(client, f"view/ranking?model=lenet5&system={found['name']}&devices=4&batch=64")
    assert said.status_code == 200, said.text
    assert sorted(p.suffix for p in page.uploads.folder.iterdir() if p.is_file()) == sorted(
        ".yaml" for _ in page.uploads.by_name)  # fmt: skip


@pytest.mark.parametrize(("name", "content", "words"), [
    ("model.py", "import os; os.system('touch /tmp/pwned')", "code is not run"),
    ("weights.pt", b"\x80\x04", "code is not run"),
    ("x.yaml", b"\xff\xfe\x00", "not a text"),
    ("x.yaml", "name: x\nlayers: !!python/object/apply:os.system ['true']\n", "tag|off"),
    ("x.yaml", "a: &a [1]\nb: [*a, *a]\nlayers: []\n", "alias|Anchor|off"),
    ("x.yaml", 'name: x\nsource: "t"\ndevice: /etc/passwd\nlevels: []\n',
     "not read here|no shipped"),
    ("x.yaml", 'name: x\nsource: "t"\ndevice: ../../../etc/passwd.yaml\nlevels: []\n', "not read"),
    ("x.yaml", SPEC + "dataset: /proc/self/environ.yaml\n", "not read here"),
    ("x.json", '{"model_type": "nobody"}', "no family"), ("x.log", "hello\n", "format|log"),
    ("x.yaml", "[" * 5000, "nested|deep|YAML"), ("x.json", "{" * 5000, "."), ("", "", "."),
])  # fmt: skip
def test_what_cannot_be_used_is_refused_in_words(client, page, name, content, words):
    before = sorted(page.uploads.folder.iterdir())
    answer = drop(client, name, content)
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"] == "drop"
    assert re.search(words, answer.json()["words"], re.IGNORECASE)
    assert "root:" not in answer.text
    assert sorted(page.uploads.folder.iterdir()) == before


def test_files_elsewhere_are_not_read_whatever_leads_there(tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out.yaml"
    inside.mkdir()
    outside.write_text("secret: 1")
    (inside / "link.yaml").symlink_to(outside)
    (inside / "own.yaml").write_text("a: 1")
    with only_within(inside):
        assert read_text(inside / "own.yaml") == "a: 1"
        for path in (outside, inside / "link.yaml", inside / ".." / "out.yaml", "-"):
            with pytest.raises(SpecError, match="files of this machine are not read here"):
                read_text(path)
    assert read_text(outside) == "secret: 1"


# -- many, long, and really listening --------------------------------------------------------------
def test_workers_keep_to_their_time_and_serve_twenty_at_once(tmp_path):
    async def all_of_it():
        workers = Workers(1, str(tmp_path), 120)
        try:
            words = ["estimate", "lenet5", "abci", "--plan", "data:4", "--batch"]
            asked = [workers.ask([*words, str(64 * (1 + i % 4))], "json", "search")
                     for i in range(20)]  # fmt: skip
            said = await asyncio.gather(*asked)
            before = [one.process.pid for one in workers.all]
            workers.limit = 0.01
            long = ["recommend", "gpt3-175b", "dgx-a100", "--devices", "4096", "--batch", "4096"]
            with pytest.raises(TooLong):
                await workers.ask(long, "json")
            workers.limit = 120
            after = await workers.ask([*words, "512"], "json")
            return said, after, len({one.process.pid for one in workers.all} - set(before))
        finally:
            workers.end()

    said, after, new = asyncio.run(all_of_it())
    assert len({one["text"] for one in said}) == 4
    assert all(one["code"] == 0 for one in said)
    assert after["code"] == 0
    assert new == 1


def test_twenty_people_ask_at_once(client):
    from concurrent.futures import ThreadPoolExecutor

    def person(number):
        found = get(client, f"view/again?{ASKED}&network={1 + number % 5}.5")
        return (
            number % 5,
            found.status_code,
            found.json()["data"]["plans"][0]["seconds"]["iteration"],
        )

    with ThreadPoolExecutor(20) as people:
        found = list(people.map(person, range(20)))
    assert {status for _, status, _ in found} == {200}
    assert len({(which, seconds) for which, _, seconds in found}) == 5


@pytest.fixture(scope="module")
def address():
    """A page that really listens, as a user starts it."""
    started = subprocess.Popen(
        [sys.executable, "-m", "oracle", "serve", "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    line = started.stderr.readline()
    yield re.fullmatch(r"open (http://127\.0\.0\.1:\d+/[\w-]{20,}/)\n", line)[1]
    started.send_signal(signal.SIGINT)
    assert started.wait(timeout=60) in (0, 130, -2)
    with started.stderr as rest:
        assert "Traceback" not in rest.read()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if not (CHROME and DRIVER):
        pytest.skip("chromium and chromium-driver are not installed")
    found = Browser(tmp_path_factory.mktemp("chrome"))
    yield found
    found.close()


def until(browser, condition, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if browser.run(f"return Boolean({condition})"):
            return
        time.sleep(0.1)
    said = browser.run("return [location.search, document.querySelector('#status')?.textContent]")
    raise AssertionError(f"never: {condition}; {said}, {browser.console()}")


ROWS = "document.querySelectorAll('.ranking tbody tr').length"
ODD = (Path(__file__).parent / "data" / "page_oddities.js").read_text()


def emulate(browser, width, height, dark=False):
    told = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.say("POST", "/goog/cdp/execute",
                {"cmd": "Emulation.setDeviceMetricsOverride", "params": told})  # fmt: skip
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.say("POST", "/goog/cdp/execute",
                {"cmd": "Emulation.setEmulatedMedia",
                 "params": {"features": [scheme]}})  # fmt: skip


@pytest.mark.flaky(reruns=1)  # the browser, its driver and the server share the machine
def test_in_a_browser(browser, address):
    emulate(browser, 1440, 900)
    browser.go(f"{address}?{ASKED}")
    until(browser, f"{ROWS} >= 1")
    assert browser.run("return performance.getEntriesByType('resource').every("
                       "one => one.name.startsWith(location.origin))")  # fmt: skip
    first = browser.run("return document.querySelector('.ranking tbody').textContent")
    # a slider redraws, and is in the address
    browser.run("const one = document.querySelector('#what-kernels'); one.value = 1;"
                "one.dispatchEvent(new Event('input', {bubbles: true}))")  # fmt: skip
    other = f"document.querySelector('.ranking tbody').textContent !== {json.dumps(first)}"
    until(browser, other)  # priced again, or by a search that was faster
    assert "kernels=2" in browser.run("return location.search")
    # a field makes an address of its own, and back leads back
    browser.run("const one = document.querySelector('#devices'); one.value = 16;"
                "one.dispatchEvent(new Event('change', {bubbles: true}))")  # fmt: skip
    until(browser, "document.title.includes('16 devices')")
    browser.run("history.back()")
    until(browser, "document.title.includes('8 devices') && "
          "document.querySelector('#devices').value === '8'")  # fmt: skip
    # what is wrong stands beside its field
    browser.run("const one = document.querySelector('#batch'); one.value = 'many';"
                "one.dispatchEvent(new Event('change', {bubbles: true}))")  # fmt: skip
    until(browser, "document.querySelector('#batch[aria-invalid=true]')")
    assert "not a whole number" in browser.run(
        "return document.querySelector('#wrong').textContent"
    )
    errors = [line for line in browser.console() if "422" not in line]
    assert errors == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1440, 390])
def test_everybody_can_read_it(browser, address, width, dark):
    emulate(browser, width, 900, dark)
    browser.go(f"{address}?{ASKED}&view=timeline")
    until(browser, "document.querySelector('#timeline svg')")
    browser.run("document.querySelector('#ranking details').open = true")
    until(browser, "document.querySelectorAll('#ranking pre').length === 2")
    assert browser.run(ODD) == []
    wide = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1]
    assert browser.console() == []


TAB, ENTER, RIGHT, HOME = "\ue004", "\ue007", "\ue014", "\ue011"
STOP = """const one = document.activeElement, look = getComputedStyle(one);
return [one.id || one.name || one.textContent.trim().slice(0, 30),
  look.outlineStyle !== 'none' && parseFloat(look.outlineWidth) >= 1]"""


def test_keys_alone_are_enough(browser, address):
    emulate(browser, 1440, 900)
    browser.go(f"{address}?{ASKED.removesuffix('&only=data')}")
    until(browser, f"{ROWS} >= 1")
    stops = []
    for _ in range(30):
        browser.press(TAB)
        stops.append(browser.run(STOP))
    names = [name for name, _ in stops]
    assert names[:4] == ["To the answer", "model", "batch", "precision"]
    wanted = ["system", "devices", "what-network", "what-price", "reset", "file", "Ranking"]
    assert [name for name in names if name in wanted] == wanted
    assert all(seen for _, seen in stops), [name for name, seen in stops if not seen]
    # a slider by its arrows
    browser.run("document.querySelector('#what-network').focus()")
    browser.press(RIGHT, 4)
    until(browser, "location.search.includes('network=2')")
    assert browser.run("return document.activeElement.getAttribute('aria-valuetext')") == "× 2"
    # a plan by Enter, which keeps the focus where it was
    until(
        browser,
        f"{ROWS} >= 2 && document.querySelector('#ranking').getAttribute('aria-busy') === 'false'",
    )
    browser.run("document.querySelectorAll('.pick')[1].focus()")
    browser.press(ENTER)
    until(browser, "location.search.includes('plan=')")
    assert browser.run("return document.activeElement.getAttribute('aria-pressed')") == "true"
    # the skip link leads past the form
    browser.run("document.querySelector('.skip').focus()")
    browser.press(ENTER)
    assert browser.run("return document.activeElement.id") == "answer"


def test_on_a_phone_pictures_are_drawn_for_it(browser, address):
    emulate(browser, 390, 844)
    browser.go(f"{address}?{ASKED}")
    until(browser, f"{ROWS} >= 1")
    for view in ("timeline", "network", "scaling", "pareto"):
        browser.run(f"document.querySelector('#{view}').scrollIntoView()")
        until(browser, f"document.querySelector('#{view} svg')")
        box, drawn = browser.run(f"const one = document.querySelector('#{view} svg');"
                                 "return [one.getBoundingClientRect().width,"
                                 "one.viewBox.baseVal.width * 96 / 72]")  # fmt: skip
        assert 0.85 * drawn < box <= 390, "as large as it was drawn: its words can be read"
    small = browser.run("return [...document.querySelectorAll('button, select, summary, main a')]"
                        ".filter(one => one.offsetParent && one.offsetHeight < 24)"
                        ".map(one => one.textContent)")  # fmt: skip
    assert small == []
    assert browser.console() == []


def test_hostile_names_do_nothing_in_a_browser(browser, address):
    from urllib.request import Request, urlopen

    name = f"</script><img src=x onerror={'window.pwned=1'}>"
    body = SPEC.replace("name: mine", f'name: "{name}"\ntitle: "{name}"').encode()
    asked = Request(f"{address}drop?name=x.yaml&system=abci", body, method="POST")
    with urlopen(asked, timeout=60) as answer:
        dropped = json.load(answer)["name"]
    emulate(browser, 1440, 900)
    browser.go(f"{address}?model={dropped}&system=abci&devices=4&batch=64")
    until(browser, f"{ROWS} >= 1")
    assert name in browser.run("return document.title")
    assert browser.run("return window.pwned === undefined && document.images.length === 0")
    assert browser.console() == []


def test_a_field_error_says_its_field():
    with pytest.raises(FieldError) as caught:
        question({"model": "lenet5"}, {})
    assert caught.value.field == "system"

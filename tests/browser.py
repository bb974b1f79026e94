"""A real browser for tests: Chromium, told by its driver what to do."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

CHROME = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


class Browser:
    """Just enough WebDriver: open, run a script, look, read the console."""

    FLAGS = ("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run",
             "disable-background-networking", "disable-component-update", "disable-sync",
             "hide-scrollbars")  # fmt: skip

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.process = subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)  # fmt: skip
        self.base = f"http://127.0.0.1:{port}"
        flags = [f"--{flag}" for flag in self.FLAGS] + [f"--user-data-dir={folder}"]
        wanted = {"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
                  "goog:chromeOptions": {"args": flags, "binary": CHROME}}  # fmt: skip
        for _ in range(600):
            try:
                self.base += "/session/" + self.say("POST", "/session", {
                    "capabilities": {"alwaysMatch": wanted}})["sessionId"]  # fmt: skip
                return
            except ConnectionError:
                time.sleep(0.1)
            except urllib.error.URLError:
                time.sleep(0.1)
        raise RuntimeError("chromedriver does not answer")

    def say(self, method, path, data=None):
        content = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(self.base + path, content, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, place):
        self.go(f"file://{place}")

    def go(self, address):
        self.say("POST", "/url", {"url": address})

    def run(self, script):
        return self.say("POST", "/execute/sync", {"script": script, "args": []})

    def size(self, width, height):
        self.say("POST", "/window/rect", {"width": width, "height": height})

    def press(self, key, times=1):
        """A key, by its code point of WebDriver or its letter."""
        acts = [{"type": act, "value": key} for _ in range(times) for act in ("keyDown", "keyUp")]
        self.say("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": acts}]})

    def console(self):
        return [entry["message"] for entry in self.say("POST", "/se/log", {"type": "browser"})]

    def close(self):
        try:
            self.say("DELETE", "")
        finally:
            self.process.terminate()
            self.process.wait(timeout=60)

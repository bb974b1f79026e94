from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile

import pytest
from hypothesis import settings

import oracle
from oracle.commands.settings import SETTINGS, variable
from oracle.models.model import Model
from oracle.predict.defaults import USUAL
from oracle.spec.system import System

os.environ["ORACLE_COUNTS"] = "off"  # what is counted is counted here
# how long an example takes is the machine's matter, which others use too
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

CONVOLUTIONS = {
    "name": "unequal",
    "source": "made up: no two sums agree by accident",
    "input": [3, 120, 96],
    "layers": [
        {"conv": {"filters": 48, "kernel": 5, "padding": 2}},
        "relu",
        {"conv": {"filters": 96, "kernel": 3, "padding": 1}},
        {"norm": "batch"},
        "relu",
        {"pool": {"kernel": 2}},
        {"conv": {"filters": 64, "kernel": 1}},
        {"conv": {"filters": 160, "kernel": 3, "padding": 1}},
        {"pool": {"kernel": 2}},
        {"conv": {"filters": 80, "kernel": 3, "padding": 1}},
        "flatten",
        {"dense": 640},
        {"dense": 96},
    ],
}
SYSTEM = {
    "name": "small",
    "source": "made up",
    "device": {
        "name": "toy",
        "source": "made up",
        "memory": "64 GiB",
        "memory_bandwidth": "900 GB/s",
        "peak": {"fp32": "15 TFLOP/s", "fp16": "120 TFLOP/s", "bf16": "120 TFLOP/s"},
    },
    "levels": [
        {"name": "node", "devices": 4, "ports": 2, "bandwidth": "50 GB/s", "latency": "3 us",
         "source": "made up"},
        {"name": "rack", "devices": 64, "ports": 2, "bandwidth": "12 GB/s", "latency": "7 us",
         "source": "made up"},
        {"name": "all", "devices": 1024, "bandwidth": "12 GB/s", "latency": "9 us",
         "oversubscription": 3, "source": "made up"},
    ],
}  # fmt: skip
TRANSFORMER = {
    "name": "small-transformer",
    "source": "made up",
    "transformer": {
        "layers": 8, "hidden": 512, "heads": 8, "vocab": 4096, "sequence": 256,
        "dropout": True, "flash": False,
    },
}  # fmt: skip


settings.register_profile("same", derandomize=True)  # examples that every run draws alike
settings.register_profile("soak", derandomize=False, database=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", type=int, default=0, metavar="N",
                     help="search at random, with N times the examples of each law; "
                     "--hypothesis-seed repeats a search")  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """The same examples in every run, or others by a seed that the last lines name."""
    settings.load_profile("soak" if config.option.soak else "same")
    if config.option.soak and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))
    many = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if many and sys.dont_write_bytecode:
        # hundreds of processes that tests start would each compile all that they import
        folder = tempfile.mkdtemp(prefix="oracle-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # unless it was said by `-B`


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if times := config.option.soak:
        again = f"--soak {times} --hypothesis-seed {config.option.hypothesis_seed}"
        terminalreporter.write_line(f"this search again: {again}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for function in {getattr(item, "obj", None) for item in items} if config.option.soak else ():
        if known := getattr(function, "_hypothesis_internal_use_settings", None):
            more = settings(known, max_examples=known.max_examples * config.option.soak)
            function._hypothesis_internal_use_settings = more  # no public way to change it


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory):
    """What whoever runs the tests has set for themselves must not reach them.

    Models of tokens are run by no framework, unless a test names one: the laws of the engine are
    not those of a framework.
    """
    monkeypatch.setitem(USUAL, "tokens", "plain")
    nowhere = tmp_path_factory.getbasetemp() / "nowhere"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(nowhere))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(nowhere))
    for key in SETTINGS:
        monkeypatch.delenv(variable(key), raising=False)


@pytest.fixture(scope="session")
def model() -> Model:
    return oracle.model(CONVOLUTIONS)


@pytest.fixture(scope="session")
def transformer() -> Model:
    return oracle.model(TRANSFORMER)


@pytest.fixture(scope="session")
def system() -> System:
    return oracle.system(SYSTEM)

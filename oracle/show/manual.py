"""What a strategy does, and what a fault means, from the very texts of the code."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import Any

from oracle.plan.strategies import Strategy, strategies
from oracle.show.bibliography import cited
from oracle.show.layout import within
from oracle.show.terminal import fit, width
from oracle.spec.document import CODES, SpecError, refusal, suggest

LETTERS = {
    "D": "samples of the data set", "B": "samples per iteration", "p": "devices",
    "S": "micro-batches", "G": "layers", "FW": "forward s/sample", "BW": "backward s/sample",
    "WU": "update s/iteration", "|x|": "input elements", "|y|": "output elements",
    "|w|": "weights", "C": "input channels", "K": "window", "s": "tokens", "h": "hidden width",
    "α": "start-up s", "β": "s/byte", "γ": "memory reuse", "δ": "bytes/element",
}  # fmt: skip


def strategy(name: str) -> dict[str, Any]:
    """A strategy's equations, limit, knobs and source, as data."""
    cls = strategies()[name]
    lines = inspect.getdoc(cls)
    first, _, rest = (lines or "").partition("\n\n")
    return {
        "strategy": name,
        "is": first,
        "equations": [e for e in re.findall(r"^    (\S.*)$", rest, re.MULTILINE) if "=" in e],
        "text": rest,
        "limit": cls.bound,
        "limited_by": list(cls.limited_by),
        "knobs": knobs(cls),
        "source": cited(cls.source),
    }


def knobs(cls: type[Strategy]) -> list[dict[str, Any]]:
    """The knobs that a plan may turn, with what they take and what they are if not said."""
    found = []
    for field in fields(cls):
        choices = field.metadata.get("words")
        if field.name == "degree" or field.name in ("height", "width"):
            continue
        given: Any = field.default
        default = choices[int(given)] if choices else given
        found.append({"knob": field.name, "takes": list(choices or ["1, 2, …"]), "is": default})
    return found


def strategy_text(name: str) -> str:
    """The same for people."""
    told = strategy(name)
    cls = strategies()[name]
    choices = [knob.metadata["words"] for knob in cls.knobs().values() if "words" in knob.metadata]
    degree = "4" if cls.degrees or not choices else choices[0][:2][-1]
    said = [f"{k['knob']}={'|'.join(k['takes'])} ({k['is']} if not said)" for k in told["knobs"]]
    if cls.as_grid:
        said = ["a grid instead of a degree, spatial:2x2", *said]
    letters = [f"{letter} {meaning}" for letter, meaning in LETTERS.items()
               if any(_stands(letter, e) for e in told["equations"])]  # fmt: skip
    rows = [
        ("written", f"{name}:{degree}"),
        ("degree", f"at most the {told['limit']}" if told["limit"] else "none: no devices"),
        ("limited by", "; ".join(told["limited_by"])),
        ("knobs", "; ".join(said) or "none"),
        ("source", "; ".join(told["source"])),
    ]
    # equations stand as they are written, sentences are as wide as the screen
    text = [part if part.startswith(" ") else fit(" ".join(part.split()), 0)
            for part in told["text"].split("\n\n")]  # fmt: skip
    return within("\n".join(
        [fit(f"{name}: {told['is']}"), "", "\n\n".join(text), "",
         _wrapped("where", ", ".join(letters)), "", *(_wrapped(head, body) for head, body in rows)]
    ))  # fmt: skip


def _stands(letter: str, equation: str) -> bool:
    """Whether an equation has this letter; Greek ones are written side by side, δβ."""
    if letter in "αβγδ":
        return letter in equation
    return bool(
        re.search(rf"(?<![\w|]){re.escape(letter)}(?![\w|])", re.sub("[α-ω]", " ", equation))
    )


def code_text(code: str) -> str:
    """What an error code means."""
    if code not in CODES:
        raise _unknown(code)
    return _wrapped(code, CODES[code], 4)


def overview() -> str:
    """Everything that can be explained."""
    known = strategies()
    lines = [_wrapped(f"  {name}", (inspect.getdoc(cls) or "").splitlines()[0], 11)
             for name, cls in known.items()]  # fmt: skip
    codes = [_wrapped(f"  {code}", text, 6) for code, text in CODES.items()]
    return "\n".join(
        ["Strategies:", *lines, "", "Error codes:", *codes, "",
         'A plan: oracle explain --plan "data:16 filter:4" MODEL SYSTEM --batch B']
    )  # fmt: skip


def subject(word: str) -> str:
    """The strategy or code that is meant; a SpecError that suggests the nearest otherwise."""
    known = {**strategies(), **CODES}
    for name in known:
        if name.lower() == word.lower():
            return name
    raise _unknown(word)


def _unknown(word: str) -> SpecError:
    known = [*strategies(), *CODES]
    hint = suggest(word, known, "write one of")
    return refusal("what to explain", f"`{word}` is neither a strategy nor an "
                                               "error code", hint, "E110")  # fmt: skip


def _wrapped(head: str, body: str, column: int = 10) -> str:
    import textwrap

    return textwrap.fill(f"{head:<{column}}  {body}", width(), break_on_hyphens=False,
                         subsequent_indent=" " * (column + 2), break_long_words=False)  # fmt: skip

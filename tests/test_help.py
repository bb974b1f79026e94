"""What `--help` says of every option: its default, and the group it belongs to."""

from __future__ import annotations

import argparse

import pytest

from oracle.commands.parser import VERBS, default_text, parser_of, parsers

FEW = 12  # options that one title may stand over without a group of their own
MOST = 24  # options that one title may stand over


@pytest.mark.parametrize("verb", VERBS)
def test_every_default_is_said(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")  # one line an option
    for parser in parsers(parser_of(verb)):
        lines = parser.format_help().splitlines()
        for action in parser._actions:
            if not action.option_strings or action.default is argparse.SUPPRESS:
                continue
            at = [k for k, line in enumerate(lines)
                  if line.startswith(f"  {action.option_strings[0]}")]  # fmt: skip
            assert at, action.option_strings
            told = " ".join(lines[at[0] : at[0] + 2])  # the words of a long option are below it
            if action.required:
                assert "(needed)" in told
            elif usual := default_text(action.default):
                assert f"default: {usual}" in told


@pytest.mark.parametrize("verb", VERBS)
def test_options_are_in_groups_with_titles(verb: str) -> None:
    for parser in parsers(parser_of(verb)):
        sizes = {
            one.title: len([each for each in one._group_actions if each.option_strings])
            for one in parser._action_groups
        }
        told = {title: size for title, size in sizes.items() if size}
        assert None not in told
        assert max(told.values()) <= MOST, told
        assert sum(told.values()) <= FEW or len(told) > 2, told


def test_a_default_is_said_as_one_would_write_it() -> None:
    said = {0.05: "0.05", (1, 1): "1/1", "time": "time", 8: "8", "": "", None: "", False: ""}
    assert {value: default_text(value) for value in said} == said

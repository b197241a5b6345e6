"""Regular expressions of strangers: the same answers as Python's engine, in bounded time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.tasks.inventory.position_sets import RegexRefused
from day0.tasks.inventory.safe_regex import SafeRegex

_ATOMS = st.sampled_from(
    [
        "a",
        "b",
        ".",
        "[ab]",
        "[^a]",
        r"\d",
        "a*",
        "b+",
        "(a|b)",
        "(?:ab)*",
        "a?",
        "(?!b)",
        "(?=a)",
        "(?<=a)",
        "(?<!a)",
        "^",
        "$",
        r"\b",
        "a{1,2}",
        r"\.",
        "(a*)*",
        "(a|ab)+",
        "a*?",
    ]
)


@settings(max_examples=400, deadline=None)
@given(atoms=st.lists(_ATOMS, min_size=1, max_size=6), text=st.text("ab1.", max_size=8))
def test_answers_are_those_of_python(atoms: list[str], text: str) -> None:
    pattern = "".join(atoms)
    try:
        found = SafeRegex(pattern)
    except RegexRefused:
        return
    assert found.matches(text) is (re.match(pattern, text) is not None)
    assert bool(found.ends(text)) is found.matches(text)
    assert found.matches_whole(text) is (re.fullmatch(pattern, text) is not None)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*b",
        "(.*)*x",
        ".*a.*a.*a.*a.*b",
        "((a*)*)*b",
        "(a{1,200}){1,200}b",
        "(a?){200}" + "a" * 200,
    ],
)
def test_catastrophic_patterns_end(pattern: str) -> None:
    found = SafeRegex(pattern)
    assert isinstance(found.matches("a" * 150 + "!"), bool)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a)\1",
        "(",
        ")",
        "[",
        "a**",
        "a{1000}",
        "a{2,1}",
        "(?P=x)",
        "(?i)a",
        "(?>a)",
        "a++",
        "x" * 3000,
        "(" * 50,
        "*a",
        r"\q",
        "a{",
        "{1}",
        "[\\",
    ],
)
def test_what_is_no_safe_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(RegexRefused):
        SafeRegex(pattern)


def test_endless_names_are_refused() -> None:
    with pytest.raises(RegexRefused, match="characters"):
        SafeRegex("(a+)+").matches("a" * 5000)

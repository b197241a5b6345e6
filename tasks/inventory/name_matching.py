"""Patterns of module names, each read as the engine of its dialect reads it, in bounded time."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from .declaration import NamePattern
from .position_sets import RegexRefused
from .safe_regex import SafeRegex

# Pattern by name evaluations for one release; 3,500 modules by 500 patterns that need one are 1.75 million.
MAX_EVALUATIONS = 3_000_000
_SLOW = 300  # evaluations that one of a pattern with nested repeats counts for: it takes as long
_REGEX_MARKS = re.compile(r"[\\*+?^$|(\[{]")
_GLOB_MARKS = re.compile(r"[*?\[]")
# Some text of the pattern stands for one expert, so that an example does not speak for all of them.
_NAMES_EXPERT = re.compile(r"experts?\\?[./]\W*[\d\[(\\]")


class NameMatcher:
    """Which of the patterns match a name.

    Plain names are looked up, so that a list of thousands costs no more than one of ten.

    Args:
        patterns: in their order.
    """

    def __init__(self, patterns: Sequence[NamePattern]) -> None:
        self.patterns = patterns
        self.refused: dict[int, str] = {}
        self.by_expert = any(_NAMES_EXPERT.search(item.pattern) for item in patterns)
        self._left = MAX_EVALUATIONS
        self._starts: dict[str, list[int]] = {}
        self._ends: dict[str, list[int]] = {}
        self._whole: dict[str, list[int]] = {}
        self._tests: dict[str, list[tuple[int, Callable[[str], bool], int]]] = {}
        for number, item in enumerate(patterns):
            self._take(number, item)
        self._longest = max((len(end) for end in self._ends), default=0)

    def matched(self, name: str) -> set[int]:
        """The numbers of the patterns that match."""
        found = set(self._whole.get(name, ()))
        for start in _dotted_starts(name):
            found.update(self._starts.get(start, ()))
            found.update(self._tested(start, name))
        found.update(self._tested("", name))
        if self._ends:
            for at in range(max(0, len(name) - self._longest), len(name)):
                found.update(self._ends.get(name[at:], ()))
        return found

    def _tested(self, start: str, name: str) -> Iterable[int]:
        for number, test, cost in self._tests.get(start, ()):
            if number in self.refused:
                continue
            self._left -= cost
            if self._left < 0:
                self.refused[number] = f"is one of more than {MAX_EVALUATIONS:,} evaluations"
                continue
            try:
                if test(name):
                    yield number
            except RegexRefused as error:
                self.refused[number] = str(error)

    def _take(self, number: int, item: NamePattern) -> None:
        text = item.pattern
        if item.kind in ("exact", "prefix"):
            (self._whole if item.kind == "exact" else self._starts).setdefault(text, []).append(number)
        elif item.kind == "glob":
            self._take_glob(number, text)
        elif item.kind == "substring":
            self._add(number, "", lambda name: text in name)
        elif item.kind == "regex":
            self._add_regex(number, text)
        elif item.kind == "transformers":
            self._take_transformers(number, text)

    def _take_glob(self, number: int, text: str) -> None:
        """modelopt: `fnmatch` over the whole name; a plain name leaves out what lies below it as well."""
        mark = _GLOB_MARKS.search(text)
        if mark is None:
            self._starts.setdefault(text, []).append(number)
            return
        # `fnmatch` makes atomic groups of its stars: it never tries a star twice.
        whole = re.compile(fnmatch.translate(text))
        self._add(number, text[: mark.start()].rpartition(".")[0], lambda name: whole.match(name) is not None)

    def _take_transformers(self, number: int, text: str) -> None:
        """`should_convert_module`: the start up to a dot, by name or by regular expression, or the end."""
        self._ends.setdefault(text, []).append(number)
        if _REGEX_MARKS.search(text):
            self._add_regex(number, rf"(?:{text})(?:(?<=\.)|(?=\.|$))")
        else:
            self._starts.setdefault(text.removesuffix("."), []).append(number)

    def _add_regex(self, number: int, text: str) -> None:
        try:
            found = SafeRegex(text)
            self._add(number, "", found.matches, 1 if found.is_plain else _SLOW)
        except RegexRefused as error:
            self.refused[number] = str(error)

    def _add(self, number: int, start: str, test: Callable[[str], bool], cost: int = 1) -> None:
        self._tests.setdefault(start, []).append((number, test, cost))


def _dotted_starts(name: str) -> Iterable[str]:
    """The name up to each of its dots, and whole."""
    at = name.find(".")
    while at >= 0:
        if at:
            yield name[:at]
        at = name.find(".", at + 1)
    if name:
        yield name


def fill(text: str, layer: int | None, layer_slot: int, others: Sequence[str]) -> str:
    """The name that a pattern's text stands for with these indices."""
    indices = list(others)
    if layer is not None and layer_slot >= 0:
        indices.insert(layer_slot, str(layer))
    parts = re.split(r"\{[lei]\}", text)
    if len(parts) - 1 != len(indices):
        return text
    return "".join(part + index for part, index in zip(parts, [*indices, ""], strict=True))


def lookup(named: Mapping[str, object], name: str) -> str | None:
    """The key of a module or of the nearest one around it; None where there is none."""
    while name:
        if name in named:
            return name
        name = name.rpartition(".")[0]
    return None

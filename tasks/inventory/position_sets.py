"""Matching on all positions of a text at once: a set of positions is the bits of one integer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

MAX_STEPS = 20_000  # for one text; published patterns take some 50
Test = Callable[[str], bool]


class RegexRefused(ValueError):
    """The pattern is not one that can be evaluated in bounded time; the message says why."""


@dataclass
class Text:
    """A text with its positions by character.

    Attributes:
        text: itself.
        places: character -> positions, as bits.
        steps: taken so far.
    """

    text: str
    places: dict[str, int] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        for position, character in enumerate(self.text):
            self.places[character] = self.places.get(character, 0) | 1 << position
        self.everywhere = (1 << len(self.text) + 1) - 1

    def step(self) -> None:
        """Counts one step.

        Raises:
            RegexRefused: it is one too many.
        """
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise RegexRefused(f"takes more than {MAX_STEPS} steps for one name")

    def where(self, test: Test) -> int:
        """The positions of all characters that pass a test."""
        found = 0
        for character, places in self.places.items():
            if test(character):
                found |= places
        return found


Node = Callable[[Text, int], int]
"""Positions before -> positions after."""


def one(test: Test) -> Node:
    """One character that passes a test."""

    def node(text: Text, at: int) -> int:
        text.step()
        return (at & text.where(test)) << 1

    return node


def in_sequence(nodes: Sequence[Node]) -> Node:
    """One after another."""

    def node(text: Text, at: int) -> int:
        for part in nodes:
            if not at:
                return 0
            at = part(text, at)
        return at

    return node


def either(nodes: Sequence[Node]) -> Node:
    """Any of them."""

    def node(text: Text, at: int) -> int:
        found = 0
        for part in nodes:
            found |= part(text, at)
        return found

    return node


def repeated(inner: Node, least: int, most: int | None) -> Node:
    """The same, so many times; None for any number."""

    def node(text: Text, at: int) -> int:
        for _ in range(least):
            at = inner(text, at)
        found, fresh, left = at, at, most - least if most is not None else -1
        while fresh and left:
            text.step()
            fresh = inner(text, fresh) & ~found
            found |= fresh
            left -= 1
        return found

    return node


def look(inner: Node, *, ahead: bool, wanted: bool) -> Node:
    """Positions before or after which it matches, or does not."""

    def node(text: Text, at: int) -> int:
        if not ahead:
            behind = inner(text, text.everywhere)
            return at & behind if wanted else at & ~behind
        found, left = 0, at
        while left:
            text.step()
            lowest = left & -left
            if bool(inner(text, lowest)) is wanted:
                found |= lowest
            left ^= lowest
        return found

    return node


def begin(text: Text, at: int) -> int:
    """The start."""
    return at & 1


def end(text: Text, at: int) -> int:
    """The end."""
    return at & (1 << len(text.text))


def boundary(text: Text, at: int) -> int:
    """Between a letter of a word and something else."""
    words = text.where(is_word)
    return at & (words ^ (words << 1))


def is_word(character: str) -> bool:
    """Whether a character belongs to words."""
    return character.isalnum() or character == "_"


CLASSES: dict[str, Test] = {"d": str.isdecimal, "w": is_word, "s": str.isspace}


def class_test(letter: str) -> Test:
    """The test of a class of characters by its letter, and of its opposite by the capital."""
    test = CLASSES[letter.lower()]
    return (lambda found: not test(found)) if letter.isupper() else test


def range_test(low: str, high: str) -> Test:
    """The test of a range within a class."""
    return lambda found: low <= found <= high

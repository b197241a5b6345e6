"""JSON of a stranger: duplicate keys, NaN literals and absurd nesting are refused instead of guessed at."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any


class JsonError(ValueError):
    """The text is not acceptable JSON; the message says why and, where known, at which byte."""


Pairs = list[tuple[str, Any]]
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_strict(data: bytes, hook: Callable[[Pairs], Any] | None = None) -> Any:
    """The value that `data` holds.

    Args:
        data: UTF-8.
        hook: makes a value out of each object's pairs, innermost first; a dictionary without duplicates where
            left out.

    Raises:
        JsonError: not UTF-8, not JSON, a key twice in one object, a literal that JSON does not know, or
            nested deeper than the parser goes.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonError(f"not UTF-8 at byte {error.start}") from None
    try:
        if has_lone_surrogate(text):
            raise JsonError("half a surrogate pair in a string, which is no text")
        return json.loads(text, object_pairs_hook=hook or unique, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        place = len(text[: error.pos].encode("utf-8"))
        raise JsonError(f"not JSON: {error.msg} at byte {place}") from None
    except RecursionError:
        raise JsonError("nested too deeply") from None
    except JsonError:
        raise
    except ValueError as error:  # an integer with more digits than Python converts
        raise JsonError(str(error)) from None


def has_lone_surrogate(text: str) -> bool:
    """Whether a string of this JSON text escapes half a surrogate pair: it could never be written again.

    Raises:
        ValueError: the text is not JSON.
    """
    if _SURROGATE.search(text) is None:
        return False
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def unique(pairs: Pairs) -> dict[str, Any]:
    """The pairs as a dictionary.

    Raises:
        JsonError: a key comes twice.
    """
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise JsonError(f"key {shorten(key)} twice in one object")
        seen.add(key)
    return found


def _refuse(literal: str) -> Any:
    raise JsonError(f"{literal} is not JSON")


def shorten(text: str, limit: int = 120) -> str:
    """A stranger's name as one printable, quoted, bounded piece of a sentence."""
    return ascii(text if len(text) <= limit else text[:limit] + "...")

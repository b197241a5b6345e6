"""JSON pointers (RFC 6901) into records: values, leaves, and where a value came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def escape(token: str) -> str:
    """One reference token as it stands in a pointer."""
    return token.replace("~", "~0").replace("/", "~1")


def pointer_to(*tokens: str | int) -> str:
    """The pointer made of these reference tokens."""
    return "".join("/" + escape(str(token)) for token in tokens)


def resolve(document: Any, pointer: str) -> Any:
    """The value at that place.

    Raises:
        KeyError: there is none.
    """
    value = document
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        try:
            value = value[name] if isinstance(value, Mapping) else value[int(name)]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise KeyError(pointer) from error
    return value


def leaves(document: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    """Every scalar (and every empty container) with its pointer, in document order."""
    if isinstance(document, Mapping) and document:
        for key, value in document.items():
            yield from leaves(value, f"{pointer}/{escape(str(key))}")
    elif isinstance(document, Sequence) and not isinstance(document, str) and document:
        for position, value in enumerate(document):
            yield from leaves(value, f"{pointer}/{position}")
    else:
        yield pointer, document


def source_of(sources: Mapping[str, str], pointer: str) -> str | None:
    """Where a value came from: the entry of its pointer or of the nearest ancestor; None without one."""
    place = pointer
    while True:
        if place in sources:
            return sources[place]
        if not place:
            return None
        place = place.rsplit("/", 1)[0]


def unsourced_numbers(facts: Mapping[str, Any], sources: Mapping[str, str]) -> Sequence[str]:
    """Pointers of all numbers in `facts` that no entry of `sources` covers."""
    return [
        pointer
        for pointer, value in leaves(facts)
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and source_of(sources, pointer) is None
    ]

"""What differs between two trees of facts, by JSON pointer; entries of a list are matched by their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .pointers import escape

# Fields that name an entry of a list in the records, the most telling first; the ones present are its name.
_NAMING = (
    ("name", "phase"),
    ("name",),
    ("op", "dtypes"),
    ("path",),
    (
        "chip",
        "devices",
        "tensor_parallel",
        "expert_parallel",
        "pipeline_parallel",
        "weight_dtype",
        "kv_dtype",
    ),
    ("rule",),
    ("number",),
)


class Difference(NamedTuple):
    """One value that differs.

    Attributes:
        pointer: into the later tree, or into the earlier one where the value is gone.
        subject: names of the list entries on the way, e.g. `model.layers.3`; empty without any.
        before: the earlier value; None where there was none.
        after: the later value; None where it is gone.
    """

    pointer: str
    subject: str
    before: Any
    after: Any


def differences(before: Any, after: Any, pointer: str = "", subject: str = "") -> Iterator[Difference]:
    """Every scalar that differs, and every entry that was added or removed, in document order."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            place = f"{pointer}/{escape(str(key))}"
            if key not in after:
                yield Difference(place, subject, before[key], None)
            elif key not in before:
                yield Difference(place, subject, None, after[key])
            else:
                yield from differences(before[key], after[key], place, subject)
    elif _is_list(before) and _is_list(after):
        yield from _list_differences(before, after, pointer, subject)
    elif before != after:
        yield Difference(pointer, subject, before, after)


def _list_differences(
    before: Sequence[Any], after: Sequence[Any], pointer: str, subject: str
) -> Iterator[Difference]:
    fields = _naming_fields(before, after)
    if fields is None:
        if before != after:
            yield from _by_position(before, after, pointer, subject)
        return
    earlier = {_name(entry, fields): (place, entry) for place, entry in enumerate(before)}
    later = {_name(entry, fields): (place, entry) for place, entry in enumerate(after)}
    for name in dict.fromkeys([*earlier, *later]):
        if name not in later:
            yield Difference(f"{pointer}/{earlier[name][0]}", name, earlier[name][1], None)
        elif name not in earlier:
            yield Difference(f"{pointer}/{later[name][0]}", name, None, later[name][1])
        else:
            place = f"{pointer}/{later[name][0]}"
            yield from differences(earlier[name][1], later[name][1], place, name)


def _by_position(
    before: Sequence[Any], after: Sequence[Any], pointer: str, subject: str
) -> Iterator[Difference]:
    for place in range(max(len(before), len(after))):
        here = f"{pointer}/{place}"
        if place >= len(after):
            yield Difference(here, subject, before[place], None)
        elif place >= len(before):
            yield Difference(here, subject, None, after[place])
        else:
            yield from differences(before[place], after[place], here, subject)


def _naming_fields(before: Sequence[Any], after: Sequence[Any]) -> tuple[str, ...] | None:
    """The fields that tell the entries of both lists apart; None where nothing does."""
    for fields in _NAMING:
        if all(_distinct(entries, fields) for entries in (before, after)):
            return fields
    return None


def _distinct(entries: Sequence[Any], fields: tuple[str, ...]) -> bool:
    if not all(isinstance(entry, Mapping) and all(field in entry for field in fields) for entry in entries):
        return False
    return len({_name(entry, fields) for entry in entries}) == len(entries)


def _name(entry: Mapping[str, Any], fields: tuple[str, ...]) -> str:
    return " ".join(_word(entry[field]) for field in fields)


def _word(value: Any) -> str:
    return ",".join(map(str, value)) if _is_list(value) else str(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)

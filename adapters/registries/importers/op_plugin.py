"""op-plugin's list of operators: YAML with one schema and its version gates an entry.

The form (Ascend/op-plugin, op_plugin/config/op_plugin_functions.yaml): sections `official`, `symint`,
`custom`, ..., each a list of mappings with `func` (a torch schema) and, for each of two kernel libraries
(`acl_op`, `op_api`), `all_version`, one version, a list of versions, or a range `[v2.1, newest]`. It knows no
dtypes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...base.values import digest
from ..registry import Registry
from .listed import Entry, as_registry, unreadable, version_number

FORM = "op-plugin"
NEWEST = "newest"

_LIBRARIES = ("op_api", "acl_op")
_SCHEMA = re.compile(r"(?:(?P<space>\w+)::)?(?P<name>\w+)(?:\.(?P<overload>\w+))?\s*\(")
_VERSION = r"(?:v\d{1,4}(?:\.\d{1,4}){0,3}|newest)"
_LISTED = rf"{_VERSION}(?:\s?,\s?{_VERSION}){{0,99}}"
_GATE = re.compile(rf"all_version|{_LISTED}|\[\s?{_LISTED}\s?\]")
_COMMENT = re.compile(r"\s#.*$")
_MAX_SCHEMA = 8192
_HEAD = 50
_ALL = re.compile(r"all_version:(.{1,400})$")
_HEADING = re.compile(r"(\w{1,64}):\s*$")
_FIELD = re.compile(r"\s{1,16}(?P<dash>- )?\s{0,8}(?P<key>func|acl_op|op_api):(?P<value>.*)$")

Item = dict[str, str]
"""The fields of an entry that matter: `func`, `acl_op`, `op_api`."""


def read_op_plugin(name: str, text: str, version: str = NEWEST) -> Registry:
    """The declared rows of a list for one version of torch.

    Args:
        name: `STACK@DEVICE` that the rows are for.
        text: the list.
        version: e.g. `v2.7`; `newest` for the last one that the list knows.

    Raises:
        InputError: E173, it is no such list.
    """
    lines = text.splitlines()
    heads = [_ALL.match(line) for line in lines[:_HEAD]]
    versions = [one for head in heads if head for one in _listed(head[1])]
    asked = version if version != NEWEST else max(versions, key=version_number, default=NEWEST)
    found = list(_sections(lines))
    sound = [(section, item) for section, item in found if _is_sound(item)]
    if not sound:
        raise unreadable(
            FORM, "no section holds an entry with a schema as `func` and gates that are versions"
        )
    entries = [_entry(section, item, versions, asked) for section, item in sound]
    malformed = [
        ", ".join(f"{key}: {text}" for key, text in item.items()) for _, item in found if not _is_sound(item)
    ]
    return as_registry(name, FORM, asked, entries, malformed)


def _sections(lines: Sequence[str]) -> Iterator[tuple[str, Item]]:
    """Section and fields of each entry.

    The form is regular, so a line says all, and hostile text costs no more than its length: a YAML parser is
    quadratic in nesting, and aliases multiply.
    """
    section = ""
    item: Item = {}
    for line in lines:
        heading = _HEADING.match(line)
        if heading is not None:
            section = heading[1]
        field = _FIELD.match(line)
        if field is None:
            continue
        if field["dash"]:
            item = {}
        item[field["key"]] = _COMMENT.sub("", field["value"]).strip().strip("'\"")
        if field["key"] == "func":
            yield section, item


def _is_sound(item: Item) -> bool:
    """Whether it has a schema, and every gate is a list of versions: what a gate may mean is not guessed."""
    if len(item["func"]) > _MAX_SCHEMA or _SCHEMA.match(item["func"]) is None:
        return False
    return all(_GATE.fullmatch(item[library]) for library in _LIBRARIES if library in item)


def _entry(section: str, item: Item, versions: Sequence[str], asked: str) -> Entry:
    found = _SCHEMA.match(item["func"])
    assert found is not None, "entries without a schema were left out"
    space = found["space"] or ("npu" if section == "custom" else "aten")
    gates = {library: item[library] for library in _LIBRARIES if library in item}
    # An entry without a gate is one for every version: sections of composite operators have none.
    supported = not gates or any(_open(gate, versions, asked) for gate in gates.values())
    said = ", ".join(f"{library}: {gate[:80]}" for library, gate in gates.items())
    return Entry(
        op=f"{space}.{found['name']}.{found['overload'] or 'default'}",
        supported=supported,
        reason="" if supported else f"declared for other versions than {asked} ({said})",
        schema_hash=digest(" ".join(item["func"].split()))[:16],
    )


def _open(gate: str, versions: Sequence[str], asked: str) -> bool:
    if gate == "all_version":
        return True
    named = _listed(gate)
    if gate.startswith("[") and len(named) == 2:
        low, high = named
        above = version_number(asked) >= version_number(low)
        return above and (high == NEWEST or version_number(asked) <= version_number(high))
    return asked in named or (NEWEST in named and bool(versions) and asked == versions[-1])


def _listed(text: str) -> list[str]:
    """`[v2.1, newest]` or `v2.1, v2.2`."""
    return [one.strip() for one in text.strip().strip("[]").split(",") if one.strip()]

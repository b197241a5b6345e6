"""Which stacks there are: entry points of the group `day0.targets`, found without importing any of them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from day0.adapters.base.errors import InputError

GROUP = "day0.targets"
_REFERENCE = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)")


def stacks() -> Mapping[str, str]:
    """Stack name -> `module:Class`, of every installed package.

    Raises:
        InputError: E112, two packages claim one name, or an entry is not of the form `module:Class`.
    """
    found: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        other = found.get(entry.name)
        if other is not None and other.value != entry.value:
            raise InputError(
                f"the stack name {entry.name!r} is claimed twice: by {_owner(other)} with {other.value} and "
                f"by {_owner(entry)} with {entry.value}",
                code="E112",
                remedy="Uninstall one of the two packages, or rename its entry point.",
            )
        if not _REFERENCE.fullmatch(entry.value):
            raise InputError(
                f"the entry point {entry.name!r} of {_owner(entry)} is {entry.value!r}, not module:Class",
                code="E112",
                remedy="Correct the entry point in that package's pyproject.toml.",
            )
        found[entry.name] = entry
    return {name: entry.value for name, entry in found.items()}


def find_stack(name: str) -> str:
    """The `module:Class` of a stack.

    Raises:
        InputError: E111, no installed package offers it; says near names and what there is. E112, see
            `stacks`.
    """
    known = stacks()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=3)
    guess = f" Did you mean {' or '.join(near)}?" if near else ""
    raise InputError(
        f"no installed package offers the stack {name!r}; there are {', '.join(sorted(known)) or 'none'}",
        code="E111",
        remedy=f"Install the package that offers it (entry point group {GROUP}).{guess}",
    )


def _owner(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unnamed package"

"""What installed packages offer under a group of entry points, found without importing any of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from .errors import InputError

_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def references(group: str, what: str, code: str) -> Mapping[str, str]:
    """Name -> `module:Class`, of every installed package.

    Args:
        group: of entry points, e.g. `day0.targets`.
        what: the names are called in an error, e.g. `stack name`.
        code: of the error.

    Raises:
        InputError: two packages claim one name, or an entry is not of the form `module:Class`.
    """
    found: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value)):
        other = found.get(entry.name)
        if other is not None and other.value != entry.value:
            raise InputError(
                f"the {what} {entry.name!r} is claimed twice: by {_owner(other)} with {other.value} and "
                f"by {_owner(entry)} with {entry.value}",
                code=code,
                remedy="Uninstall one of the two packages, or rename its entry point.",
            )
        if not _REFERENCE.fullmatch(entry.value):
            raise InputError(
                f"the entry point {entry.name!r} of {_owner(entry)} is {entry.value!r}, not module:Class, "
                f"in the group {group}",
                code=code,
                remedy="Correct the entry point in that package's pyproject.toml.",
            )
        found[entry.name] = entry
    return {name: entry.value for name, entry in found.items()}


def _owner(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unnamed package"

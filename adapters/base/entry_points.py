"""What installed packages offer under a group of entry points, found without importing any of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import EntryPoint, PackageMetadata, entry_points

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
    found, troubles = sound_references(group, what)
    if troubles:
        message, remedy = next(iter(troubles.values()))
        raise InputError(message, code=code, remedy=remedy)
    return found


def sound_references(group: str, what: str) -> tuple[Mapping[str, str], Mapping[str, tuple[str, str]]]:
    """Entries as `references` has them, and what is wrong with others, by name: a sentence and a remedy.

    Of a name that is claimed twice Day0's own entry stays; where neither is, none does.
    """
    found: dict[str, EntryPoint] = {}
    troubles: dict[str, tuple[str, str]] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value)):
        other = found.get(entry.name)
        if not _REFERENCE.fullmatch(entry.value):
            troubles[entry.name] = (
                f"the entry point {entry.name!r} of {_owner(entry)} is {entry.value!r}, not module:Class, "
                f"in the group {group}",
                "Correct the entry point in that package's pyproject.toml.",
            )
        elif other is None or other.value == entry.value:
            found[entry.name] = entry
        else:
            troubles[entry.name] = (
                f"the {what} {entry.name!r} is claimed twice: by {_owner(other)} with {other.value} and "
                f"by {_owner(entry)} with {entry.value}",
                "Uninstall one of the two packages, or rename its entry point.",
            )
            if entry.value.startswith("day0."):
                found[entry.name] = entry
    sound = {
        name: entry.value
        for name, entry in found.items()
        if name not in troubles or entry.value.startswith("day0.")
    }
    return sound, troubles


def keeper(group: str, name: str) -> str:
    """Who keeps what an installed package offers, by its metadata: the package's name and project address.

    Args:
        group: of entry points.
        name: within it.

    Returns:
        `acme-npu-day0 (https://acme.example/npu)`; empty where no package offers it, or Day0 itself does.
    """
    for entry in entry_points(group=group, name=name):
        if entry.dist is None or entry.value.startswith("day0."):
            continue
        address = _address(entry.dist.metadata)
        return f"{entry.dist.name} ({address})" if address else entry.dist.name
    return ""


def _address(metadata: PackageMetadata) -> str:
    """Where a package takes issues, else its source, else its first address."""
    listed = [one.partition(",") for one in metadata.get_all("Project-URL") or []]
    named = {re.sub(r"\W", "", label).lower(): url.strip() for label, _, url in listed}
    first = next(iter(named.values()), "")
    known = next((named[word] for word in _ADDRESSES if word in named), "")
    pages = [page for page in metadata.get_all("Home-page") or [] if page != "UNKNOWN"]
    return known or next(iter(pages), first)


_ADDRESSES = ("issues", "bugtracker", "issuetracker", "tracker", "bugs", "source", "repository", "homepage")


def _owner(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unnamed package"

"""Registries that other packages bring: entry points of the group `day0.registries`.

An entry names a package whose files are `STACK-DEVICE.json`, e.g. `acme = "acme_day0.registries"`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from importlib.metadata import entry_points

from ..base.errors import InputError

GROUP = "day0.registries"


def plugin_texts(file: str) -> Iterator[tuple[str, str]]:
    """Each installed package's file of that name: where it comes from, and its text.

    Raises:
        InputError: E172, an entry's package cannot be read.
    """
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        try:
            found = resources.files(entry.value).joinpath(file)
            if found.is_file():
                yield entry.value, found.read_text()
        except (ImportError, OSError, TypeError, UnicodeDecodeError) as error:
            raise InputError(
                f"the registries of the package {entry.value} cannot be read: {error}",
                code="E172",
                remedy=f"Uninstall it, or correct its entry point {entry.name!r} of the group {GROUP}.",
            ) from error

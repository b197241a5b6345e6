"""Registries that other packages bring: entry points of the group `day0.registries`.

An entry names a package whose files are `STACK-DEVICE.json`, e.g. `acme = "acme_day0.registries"`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import EntryPoint, entry_points

GROUP = "day0.registries"


@dataclass(frozen=True)
class PluginFile:
    """What an installed package brings.

    Attributes:
        package: that the entry names.
        data: of the file; empty where the package has none of that name.
        trouble: why the package could not be read, or empty.
    """

    package: str
    data: bytes = b""
    trouble: str = ""


def plugin_files(file: str) -> Iterator[PluginFile]:
    """Each installed package's file of that name; one that cannot be read says so and hides no other."""
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        yield _file(entry, file)


def _file(entry: EntryPoint, file: str) -> PluginFile:
    try:
        found = resources.files(entry.value).joinpath(file)
        return PluginFile(entry.value, found.read_bytes() if found.is_file() else b"")
    except Exception as error:  # finding a package imports it, and it is somebody else's
        said = f"the registries of the package {entry.value} (entry point {entry.name!r}) cannot be read"
        return PluginFile(entry.value, trouble=f"{said}: {error}")

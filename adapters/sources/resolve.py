"""From what a person types to a source: an existing folder, a plugin's name or URL, else a hub id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import entry_points

from day0.adapters.base.errors import InputError
from day0.adapters.base.source import Source

from .hub_address import hub_address
from .local import existing_path
from .local import open_source as open_folder

GROUP = "day0.sources"
_FIRST, _LAST = "local", "hub"

Opener = Callable[[str, str | None], Source | None]
"""What an entry point of the group names: opens the model, or returns None where it is another source's."""


def open_source(model: str, revision: str | None = None) -> Source:
    """The release's files, pinned to one revision.

    Args:
        model: an existing folder, a hub id, or whatever a plugin knows. `NAME@REV` pins.
        revision: commit, tag or branch.

    Raises:
        InputError: the model as named cannot be used, or no source knows it.
    """
    name, pinned = split_revision(model, revision)
    for opener in _openers():
        source = opener(name, pinned)
        if source is not None:
            return source
    raise InputError(
        f"no source knows the model {model!r}",
        code="E132",
        remedy=f"Install a package that registers one under the entry point group {GROUP}.",
    )


def split_revision(model: str, revision: str | None = None) -> tuple[str, str | None]:
    """`NAME@REV` as name and revision; an existing path stays whole.

    Raises:
        InputError: E135, two different revisions are given; E104, the name is empty.
    """
    model, revision = hub_address(model, revision)
    is_url = "://" in model  # there an @ before the last slash belongs to the address
    if existing_path(model) is None and "@" in (model.rpartition("/")[2] if is_url else model):
        name, _, named = model.rpartition("@") if is_url else model.partition("@")
        if revision is not None and named != revision:
            raise InputError(
                f"model {model!r} names one revision and {revision!r} is another",
                code="E135",
                remedy="Give one.",
            )
        model, revision = name, named or None
    if not model:
        raise InputError("the model's name is empty", code="E104", remedy="Give a folder or a hub id.")
    return model, revision


def _openers() -> Iterator[Opener]:
    """Folders first, then plugins by name, then the hub, which takes every name that could be an id.

    The installed packages are asked only where no folder is meant: reading what they register takes a while.
    """
    yield open_folder
    points = {point.name: point for point in entry_points(group=GROUP)}
    between = sorted(points.keys() - {_FIRST, _LAST})
    for name in (*between, _LAST):
        if name in points:
            yield points[name].load()

"""Which ways around there are: entry points of the group `day0.workarounds`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

from day0_worker.workarounds import Workaround as WorkerSide

from ..base.entry_points import references as entries
from ..base.errors import InputError
from ..base.target_spec import TargetSpec
from ..base.workaround import Workaround

GROUP = "day0.workarounds"


def references() -> Mapping[str, str]:
    """Name -> `module:Class`, of every installed package.

    Raises:
        InputError: E176, two packages claim one name, or an entry is not of the form `module:Class`.
    """
    return entries(GROUP, "way around", "E176")


def named_in(spec: TargetSpec) -> Mapping[str, str]:
    """Name -> `module:Class` of the ways around that a target's `?with=` names.

    Raises:
        InputError: E176, see `references`; E177, no installed package offers one.
    """
    wanted = [way.partition(":")[0] for way in spec.options.get("with", "").split(",") if way]
    if not wanted:
        return {}
    known = references()
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            raise InputError(
                f"no installed package offers the way around {name!r}; there are "
                f"{', '.join(sorted(known)) or 'none'}",
                code="E177",
                remedy=f"Install the package that offers it (entry point group {GROUP})."
                + (f" Did you mean {' or '.join(near)}?" if near else ""),
            )
    return {name: known[name] for name in wanted}


def load(way: str) -> Workaround:
    """The way around of an id, `NAME` or `NAME:ARGUMENT`; imports its module.

    Raises:
        InputError: E177, there is none of that name, or it cannot be imported.
    """
    name, _, argument = way.partition(":")
    reference = references().get(name)
    if reference is None:
        raise InputError(f"no installed package offers the way around {name!r}", code="E177")
    return _class(name, reference)(argument)


def plugins(without: Sequence[str]) -> Iterator[Workaround]:
    """Those ways around that need no argument, by name, all but these.

    Raises:
        InputError: see `load`.
    """
    for name, reference in sorted(references().items()):
        if name not in without:
            yield _class(name, reference)("")


def _class(name: str, reference: str) -> type[WorkerSide]:
    module, _, attribute = reference.partition(":")
    try:
        found = getattr(import_module(module), attribute, None)
    except Exception as error:  # a package of somebody else's; the person is told which
        raise InputError(
            f"the way around {name!r} ({reference}) cannot be imported: {error}", code="E177"
        ) from error
    if not (isinstance(found, type) and issubclass(found, WorkerSide)):
        raise InputError(
            f"{reference} is not a class derived from day0_worker.workarounds.Workaround", code="E177"
        )
    return found

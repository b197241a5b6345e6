"""Which ways around there are: entry points of the group `day0.workarounds`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from day0_worker.workarounds import BUILT_IN
from day0_worker.workarounds import Workaround as WorkerSide

from ..base.entry_points import sound_references
from ..base.errors import InputError
from ..base.target_spec import TargetSpec
from ..base.workaround import Workaround

GROUP = "day0.workarounds"
_WHAT = "way around"


def installed() -> list[list[str]]:
    """Name, `module:Class` and version of every way around that a package offers, sound or not; sorted."""
    return sorted(
        [entry.name, entry.value, entry.dist.version if entry.dist else ""]
        for entry in entry_points(group=GROUP)
    )


def references() -> Mapping[str, str]:
    """Name -> `module:Class`, of every installed package whose entry can be used; see `unusable`."""
    return sound_references(GROUP, _WHAT)[0]


def named_in(spec: TargetSpec) -> Mapping[str, str]:
    """Name -> `module:Class` of the ways around that a target's `?with=` names.

    Raises:
        InputError: E176, two packages claim one of them, or its entry is not of the form `module:Class`;
            E177, no installed package offers it.
    """
    wanted = [way.partition(":")[0] for way in spec.options.get("with", "").split(",") if way]
    if not wanted:
        return {}
    installed, troubles = sound_references(GROUP, _WHAT)
    known = {**installed, **BUILT_IN}
    for name in wanted:
        if name in troubles and name not in known:
            raise InputError(troubles[name][0], code="E176", remedy=troubles[name][1])
        if name not in known:
            near = difflib.get_close_matches(name, installed, n=3)
            raise InputError(
                f"no installed package offers the way around {name!r}; there are "
                f"{', '.join(sorted(installed)) or 'none'}",
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
    reference = {**references(), **BUILT_IN}.get(name)
    if reference is None:
        raise InputError(f"no installed package offers the way around {name!r}", code="E177")
    return _class(name, reference)(argument)


def plugins(without: Sequence[str]) -> Iterator[Workaround]:
    """Those ways around that need no argument, by name, all but these and those that are `unusable`."""
    for name, reference in sorted(references().items()):
        if name not in without:
            way, _ = _tried(name, reference)
            if way is not None:
                yield way


def fits(way: Workaround, call: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether a way around applies to a call; not where it cannot say, of which `unusable` tells."""
    try:
        return way.applies(call, config)
    except Exception:  # a package of somebody else's, see above
        return False


def unusable(calls: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> Mapping[str, str]:
    """What is wrong with installed ways around, by name: they are passed over, and hide no others.

    Args:
        calls: that need a way around, as JSON.
        config: of the model.
    """
    known, troubles = sound_references(GROUP, _WHAT)
    found = {name: message for name, (message, _) in troubles.items()}
    for name, reference in known.items():
        if not reference.startswith("day0."):
            way, trouble = _tried(name, reference)
            said = trouble if way is None else _refusal(way, calls, config)
            found |= {name: said} if said else {}
    return found


def _tried(name: str, reference: str) -> tuple[Workaround | None, str]:
    """The way around, or what keeps it from being one."""
    try:
        way = _class(name, reference)("")
        way.operators()
    except InputError as error:
        return None, error.message
    except Exception as error:  # a package of somebody else's; the person is told what it raised
        return None, f"the way around {name!r} ({reference}) raises {type(error).__name__}: {error}"
    return way, ""


def _refusal(way: Workaround, calls: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> str:
    try:
        for call in calls:
            way.applies(call, config)
    except Exception as error:  # as above
        return f"the way around {way.id!r} cannot say whether it applies: {type(error).__name__}: {error}"
    return ""


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

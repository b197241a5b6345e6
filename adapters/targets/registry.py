"""Which stacks there are: entry points of the group `day0.targets`, found without importing any of them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from day0.adapters.base.entry_points import references
from day0.adapters.base.errors import InputError

GROUP = "day0.targets"


def stacks() -> Mapping[str, str]:
    """Stack name -> `module:Class`, of every installed package.

    Raises:
        InputError: E112, two packages claim one name, or an entry is not of the form `module:Class`.
    """
    return references(GROUP, "stack name", "E112")


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

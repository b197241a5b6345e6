"""Which stacks there are: entry points of the group `day0.targets`, found without importing any of them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from day0.adapters.base.entry_points import references
from day0.adapters.base.errors import InputError
from day0.adapters.base.target_spec import TargetSpec

GROUP = "day0.targets"
_OPTIONS: Mapping[str, Sequence[str]] = {
    "day0.adapters.targets.eager:EagerStack": ("attn", "experts", "with"),
    "day0.adapters.targets.inductor:InductorStack": ("attn", "experts", "with"),
    "day0.adapters.targets.onnxruntime:OnnxRuntimeStack": ("attn", "experts", "with", "provider"),
    "day0.adapters.targets.openvino:OpenVinoStack": ("attn", "experts", "with"),
}
"""Options of Day0's own stacks; others may have any, which they alone know."""


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


def stack_of(spec: TargetSpec) -> str:
    """The `module:Class` of a target's stack, for which its options mean something.

    Raises:
        InputError: see `find_stack`; E188, one of Day0's own stacks knows no such option.
    """
    reference = find_stack(spec.stack)
    known = _OPTIONS.get(reference, tuple(spec.options))
    unknown = next((option for option in spec.options if option not in known), None)
    if unknown is not None:
        near = difflib.get_close_matches(unknown, known, n=1)
        raise InputError(
            f"the target {spec} has the option {unknown!r}, and {spec.stack} knows {', '.join(known)}",
            code="E188",
            remedy=f"Did you mean {near[0]}?" if near else "Leave it out.",
        )
    return reference

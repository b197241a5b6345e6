"""What shows a gap again: the very call, with the inputs that the probe gave it, as a script."""

from __future__ import annotations

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target_spec import TargetSpec
from day0_worker import operator_inputs
from day0_worker.operator_inputs import make_inputs
from day0_worker.operators import call_dtype, with_strides

from ..operator_reference import Reference
from ..operator_runners import bare
from ..operator_script import Shows, Way, inlined, operator_script
from .comparison import compare
from .shown import Shown
from .shrink import elements, shrink

INLINED_ELEMENTS = 2048
"""Elements of all inputs up to which their very values stand in the script, some kilobytes of text; for
larger calls the script draws them as the probe did, by the probe's own code."""


def script(shown: Shown, spec: TargetSpec, status: str, way: Way) -> str:
    """The script for one call; empty for what is no torch operator or has inputs that cannot be made.

    Args:
        shown: the call that showed it. Only where the fault is one of operator and dtypes it is made smaller:
            other faults need not be there in another size.
        spec: the target that it is about.
        status: what the target was seen to make of it.
        way: to the stack.
    """
    call = shown.call
    if call.op.count(".") != 2:
        return ""
    if shown.any_size:
        call = shrink(call, INLINED_ELEMENTS) or call
    try:
        tensors = make_inputs(call.model_dump(mode="json"), shown.seed, shown.spread)
    except (RuntimeError, ValueError, IndexError, KeyError):  # a call whose inputs follow no known rule
        return ""
    small = elements(call.shapes) <= INLINED_ELEMENTS
    drawn = f"{shown.spread} inputs, seed {shown.seed}"
    shows = Shows(
        call=call,
        inputs=inlined(tensors) if small else _drawn(shown, call),
        title=f"{call.op} for {', '.join(call.dtypes) or 'no tensors'} ({drawn}): "
        f"{status} on {spec.stack}@{spec.device}.",
        status=status,
        compared=not compare(call.op, (), Reference((), (), "own")).reason,
    )
    return operator_script(shows, spec, way)


def _drawn(shown: Shown, call: OperatorCall) -> str:
    dtypes = ", ".join(f"{name!r}: {call_dtype(name)}" for name in dict.fromkeys(call.dtypes))
    encoded = {"op": call.op, "args": list(call.args), "kwargs": dict(call.kwargs)}
    names = ", ".join(f"T{place}" for place in range(len(call.shapes)))
    return "\n\n\n".join(
        [
            "# The inputs are drawn as the probe drew them: equal seeds give equal values.",
            f"def call_dtype(name):\n    return {{{dtypes}}}[name]",
            "def resolve(op):\n    return FUNCTION",
            bare(with_strides, operator_inputs),
            f"{names}, = make_inputs({encoded!r}, {shown.seed}, {shown.spread!r})",
        ]
    )

"""Whether a missing operator can be rebuilt from others that the target has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch._decomp import decomposition_table

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.models.recorder import Recorder
from day0_worker.operators import call_dtype, decode_call, resolve

MAX_DEPTH = 4
"""Decompositions inside decompositions that are followed; torch's own tables end within three."""


def decompose(call: OperatorCall, is_native: Callable[[OperatorCall], bool]) -> Sequence[str] | None:
    """The operators that stand for a call, all of which the target has; None where there is no such set.

    torch's decomposition is run on the meta device and what it dispatches is recorded; a leaf that the target
    lacks is decomposed in turn. A decomposition that comes back to the operator itself proves nothing and is
    refused.

    Args:
        call: that the target lacks.
        is_native: whether the target has a leaf, by its registry or by trying it.

    Returns:
        Names of the leaves, sorted.
    """
    leaves = _solve(call, is_native, (call.op,))
    return None if leaves is None else sorted(leaves)


def _solve(
    call: OperatorCall, is_native: Callable[[OperatorCall], bool], above: tuple[str, ...]
) -> set[str] | None:
    parts = _parts(call)
    if not parts or any(part.op in above for part in parts):
        return None
    leaves: set[str] = set()
    for part in parts:
        if is_native(part):
            leaves.add(part.op)
            continue
        below = _solve(part, is_native, (*above, part.op)) if len(above) < MAX_DEPTH else None
        if below is None:
            return None
        leaves |= below
    return leaves


def _parts(call: OperatorCall) -> Sequence[OperatorCall]:
    """What torch's decomposition of the call dispatches; nothing where there is none or it does not run."""
    function = decomposition_table.get(resolve(call.op))
    if function is None:
        return ()
    tensors = [
        torch.empty(shape, dtype=call_dtype(dtype), device="meta")
        for shape, dtype in zip(call.shapes, call.dtypes, strict=True)
    ]
    args, kwargs = decode_call(call.model_dump(mode="json"), tensors)
    kwargs = {name: torch.device("meta") if name == "device" else value for name, value in kwargs.items()}
    recorder = Recorder(call.phase)
    try:
        with torch.no_grad(), recorder:
            function(*args, **kwargs)
    except Exception:  # torch's own table, on arguments it may not foresee: then there is no decomposition
        return ()
    return recorder.calls()

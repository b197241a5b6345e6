"""Whether missing operators can be rebuilt from others that the target has: a fixpoint, not a guess."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import torch

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.models.recorder import Recorder
from day0.adapters.workarounds.decompositions import decomposition_of
from day0_worker.operators import call_dtype, decode_call

from .rebuilt import Rebuilt

MAX_PARTS = 400
"""Distinct calls that are looked at in all; the tables end within three levels, so this is never met by
decompositions that end."""

_PRIMITIVE = "prims."
"""Torch's primitives have no kernels: each calls an ATen operator, often the very one that is missing."""

Look = Callable[[Sequence[OperatorCall]], AbstractSet[str]]
"""Takes calls, tries those that nobody has tried, and gives the row keys of those that are native."""


def rebuild(missing: Sequence[OperatorCall], look: Look) -> Mapping[str, Rebuilt]:
    """Row key -> how it can be rebuilt, for those of the calls that can.

    What torch's decompositions dispatch is looked up or tried on the target; what it lacks is decomposed in
    turn, until nothing new comes up. Then the least fixpoint is taken: a call can be rebuilt if every part is
    native or can itself be rebuilt. So the order of the calls does not matter, and a decomposition that comes
    back to itself proves nothing.

    Args:
        missing: calls that the target lacks.
        look: finds out what is native.
    """
    parts, native = _graph(missing, look)
    solved: dict[str, Counter[str]] = {key: Counter({key.split("|")[0]: 1}) for key in native}
    while True:
        found = {
            key: _sum(needed, solved)
            for key, needed in parts.items()
            if key not in solved and needed and all(part in solved for part in needed)
        }
        if not found:
            break
        solved |= found
    wanted = {call.row_key for call in missing}
    return {key: Rebuilt(dict(sorted(solved[key].items()))) for key in sorted(wanted) if key in solved}


def _graph(missing: Sequence[OperatorCall], look: Look) -> tuple[dict[str, Counter[str]], set[str]]:
    """Row key -> row keys of its parts, and the keys that are native, as far as decompositions lead."""
    parts: dict[str, Counter[str]] = {}
    native: set[str] = set()
    front = {call.row_key: call for call in missing}
    seen = set(front)
    while front and len(seen) < MAX_PARTS:
        fresh: dict[str, OperatorCall] = {}
        for key, call in front.items():
            inside = parts_of(call)
            parts[key] = Counter()
            for part in inside:
                parts[key][part.row_key] += part.count
                if part.row_key not in seen:
                    seen.add(part.row_key)
                    fresh[part.row_key] = part
        native |= look([fresh[key] for key in sorted(fresh) if not key.startswith(_PRIMITIVE)])
        front = {key: call for key, call in fresh.items() if key not in native}
    return parts, native


def _sum(needed: Mapping[str, int], solved: Mapping[str, Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for part, count in needed.items():
        for op, times in solved[part].items():
            total[op] += times * count
    return total


def parts_of(call: OperatorCall) -> Sequence[OperatorCall]:
    """What torch's decomposition of the call dispatches; nothing where there is none or it does not run."""
    function = decomposition_of(call.op)
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

"""The very call that shows a gap: as it was replayed, with the inputs that it was given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from day0.adapters.base.operator_call import OperatorCall

from ..thresholds import PROBE_ELEMENTS, PROBE_LARGEST
from .shrink import shrink
from .statuses import State


@dataclass(frozen=True)
class Shown:
    """One replayed call.

    Attributes:
        call: in the size in which it was replayed.
        seed: of its inputs.
        spread: of its inputs, out of `day0_worker.operator_inputs.SPREADS`.
        any_size: whether the fault is one of operator and dtypes, whatever the shapes and values.
    """

    call: OperatorCall
    seed: int
    spread: str = "unit"
    any_size: bool = False


_WHATEVER_THE_SIZE = ("missing_operator:", "dtype:")


def shown(state: State) -> Shown:
    """What shows a state: the call that a row refuses, the one that failed, else the one replayed first."""
    row = state.known.row if state.known else None
    seed = row.seed if row else 0
    if row is None:
        return Shown(_replayed(state.need.example), seed)
    refused = state.refused
    if refused is not None:
        return Shown(_refused(state, [list(shape) for shape in refused.shapes]), seed)
    alike = row.status == "fallback" or row.reason.startswith(_WHATEVER_THE_SIZE)
    if row.failing is not None:
        return Shown(row.failing, row.seed, row.spread, alike)
    # A row of an earlier probe names its call by a digest only.
    known = (call for call in _sizes(state) if call.signature == row.probe)
    return Shown(next(known, None) or _replayed(state.need.example), seed, any_size=alike)


def _refused(state: State, shapes: list[list[int]]) -> OperatorCall:
    refused = state.refused
    marked = [call for call in state.need.calls if refused and call.signature.startswith(refused.mark)]
    call = marked[0] if marked else state.need.example
    sizes = (shrink(call, limit) for limit in (PROBE_ELEMENTS, PROBE_LARGEST))
    return next((one for one in sizes if one and [list(s) for s in one.shapes] == shapes), _replayed(call))


def _sizes(state: State) -> Iterator[OperatorCall]:
    for call in (state.need.example, *state.need.calls):
        for limit in (PROBE_ELEMENTS, PROBE_LARGEST):
            small = shrink(call, limit)
            if small is not None:
                yield small


def _replayed(call: OperatorCall) -> OperatorCall:
    return shrink(call, PROBE_ELEMENTS) or call

"""What a model needs of a target: its captured calls in the target's dtype, one entry a registry row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.operator_capture import Capture, CaptureRequest
from day0.adapters.base.target_spec import TargetSpec

from .impact import share_key, shares, work_of
from .inside_nodes import between_nodes

GRAPH_STACKS = ("inductor", "onnxruntime", "openvino")
"""Stacks that take nodes as graphs of tensors: caches are lifted out of them, and what happens between nodes
runs on the host."""

NODE_STACKS = ("onnxruntime", "openvino")
"""Those of them that are given nodes and nothing else, having no loader of models."""

_PHASE_ORDER = ("prefill", "long_prefill", "decode", "sampling")


@dataclass(frozen=True)
class Need:
    """All calls that fall into one registry row.

    Attributes:
        key: of the row.
        calls: distinct signatures, phase by phase.
        impact: share of the model's work in [0, 1].
    """

    key: str
    calls: Sequence[OperatorCall]
    impact: float

    @property
    def example(self) -> OperatorCall:
        """The call to replay: the one with the most work in the first phase that makes it."""
        return min(
            self.calls,
            key=lambda call: (_PHASE_ORDER.index(call.phase), -work_of(call).flops, call.signature),
        )

    @property
    def phases(self) -> Sequence[str]:
        """In which it is called."""
        present = {call.phase for call in self.calls}
        return [phase for phase in _PHASE_ORDER if phase in present]


def request_of(spec: TargetSpec) -> CaptureRequest:
    """How a model is captured for a target: its device's name, its dtype, the implementations it asks for."""
    return CaptureRequest(
        device=spec.device,
        dtype=spec.dtype or "",
        attn=spec.options.get("attn", ""),
        experts=spec.options.get("experts", ""),
        ways=spec.options.get("with", ""),
    )


def needs_of(capture: Capture, spec: TargetSpec) -> list[Need]:
    """The rows a model needs of a target, the one with the largest share of the work first."""
    return group(on_target(capture.calls, capture.captured_dtype, spec))


def on_target(calls: Sequence[OperatorCall], captured: str, spec: TargetSpec) -> list[OperatorCall]:
    """The calls as a model makes them on a target: those of its kind of device, in its dtype.

    Args:
        calls: of all branches.
        captured: dtype in which they were captured.
        spec: the target.
    """
    other = "accelerator" if spec.device == "cpu" else "cpu"
    kept = [call for call in calls if call.branch != other]
    if spec.stack in NODE_STACKS:
        outside = between_nodes(kept)
        kept = [call for call in kept if call.signature not in outside]
    if spec.stack in GRAPH_STACKS:
        kept = [call for call in kept if not (_fills_cache(call) or _reads_outside(call))]
    return retyped(kept, captured, spec.dtype)


def _fills_cache(call: OperatorCall) -> bool:
    """The first filling of transformers' cache, which starts as a tensor without elements and dimensions."""
    return call.op == "aten.cat.default" and [0] in [list(shape) for shape in call.shapes]


def _reads_outside(call: OperatorCall) -> bool:
    """A value that the model's own forward reads on the host, outside of every numbered layer."""
    paths = call.modules or [call.module]
    inside = any(part.isdigit() for path in paths for part in path.split("."))
    return call.op == "aten._local_scalar_dense.default" and not inside


def group(calls: Iterable[OperatorCall]) -> list[Need]:
    """One entry a registry row, by falling share of the work."""
    listed = list(calls)
    impact = shares(listed)
    rows: dict[str, list[OperatorCall]] = {}
    for call in listed:
        rows.setdefault(call.row_key, []).append(call)
    needs = [Need(key, found, sum(impact[share_key(call)] for call in found)) for key, found in rows.items()]
    return sorted(needs, key=lambda need: (-need.impact, need.key))


def retyped(calls: Sequence[OperatorCall], captured: str, wanted: str | None) -> list[OperatorCall]:
    """The calls as a model in another dtype makes them: casts that change nothing fall away.

    Args:
        calls: captured in one dtype.
        captured: that dtype.
        wanted: the dtype to translate to; None or the same: nothing changes.
    """
    if wanted is None or wanted == captured:
        return list(calls)
    merged: dict[tuple[str, str], OperatorCall] = {}
    for call in calls:
        changed = _retype(call, captured, wanted)
        if _changes_nothing(changed):
            continue
        place = (changed.phase, changed.signature)
        known = merged.get(place)
        merged[place] = (
            changed if known is None else known.model_copy(update={"count": known.count + changed.count})
        )
    return list(merged.values())


def _retype(call: OperatorCall, captured: str, wanted: str) -> OperatorCall:
    return call.model_copy(
        update={
            "args": [_replaced(arg, captured, wanted) for arg in call.args],
            "kwargs": {name: _replaced(value, captured, wanted) for name, value in call.kwargs.items()},
            "dtypes": [wanted if dtype == captured else dtype for dtype in call.dtypes],
            "attributes": {
                name: _replaced(value, captured, wanted) for name, value in call.attributes.items()
            },
        }
    )


def _replaced(value: Any, captured: str, wanted: str) -> Any:
    if isinstance(value, (list, tuple)):
        return [_replaced(item, captured, wanted) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("dtype") == captured:
        return {**value, "dtype": wanted}
    return {key: _replaced(item, captured, wanted) for key, item in value.items()}


def _changes_nothing(call: OperatorCall) -> bool:
    """A cast to the dtype that the tensor already has, which torch does not dispatch."""
    only_dtype = set(call.kwargs) == {"dtype"}
    return call.op == "aten._to_copy.default" and only_dtype and list(call.dtypes) == [call.result_dtype]

"""What is tried of a row beyond its first call: other shapes, other ranges of values, other attributes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from day0.adapters.base.operator_call import OperatorCall
from day0_worker.operators import resolve

from ..thresholds import PROBE_ELEMENTS, PROBE_LARGEST
from .needs import Need
from .reference_worker import Asked
from .variation import varied

SEED = 20
OTHER_SIGNATURES = 2
"""Calls of a row that are tried beside its example: the one with the most elements, and the one that differs
most."""

_RANGED = frozenset(["_softmax", "_log_softmax", "_safe_softmax", "logsumexp"])
_ATTENTION = "scaled_dot_product_attention"
_HALVES_AND_MORE = ("fp16", "bf16", "fp32", "fp64", "complex64")


@dataclass(frozen=True)
class Trial:
    """One call to try.

    Attributes:
        key: of the row that it is evidence for.
        check: out of `registries.row.CHECKS`.
        asked: the call with seed and spread of its inputs.
        attribute: that was changed, or empty.
        value: that it has.
    """

    key: str
    check: str
    asked: Asked
    attribute: str = ""
    value: object = None


def example_of(need: Need) -> Trial:
    """The first thing that is tried of a row."""
    return Trial(need.key, "example", Asked(need.example, SEED, "unit"))


def composite(call: OperatorCall) -> bool:
    """Whether torch itself makes the operator of others on any device: then a trial says least.

    The dispatcher only orders trials: what it claims of a device is no evidence (it answers yes for most
    operators of a device without a single kernel).
    """
    name = resolve(call.op)._schema.name
    overload = resolve(call.op)._schema.overload_name
    full = f"{name}.{overload}" if overload else name
    key = "CompositeImplicitAutograd"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(full, key))


def further(need: Need, example: OperatorCall) -> list[Trial]:
    """What is tried of a row whose example is right.

    Args:
        need: the row with the model's calls.
        example: in the size in which it was replayed.
    """
    largest = max(need.calls, key=lambda call: (_size(call), call.signature))
    shapes = [Asked(call, SEED, "unit") for call in others(need)]
    if _size(largest) > PROBE_ELEMENTS:
        shapes = [asked for asked in shapes if asked.call.signature != largest.signature]
        shapes.insert(0, Asked(largest, SEED, "unit", PROBE_LARGEST))
    trials = [Trial(need.key, "signatures", asked) for asked in shapes]
    trials += [Trial(need.key, "ranges", Asked(example, SEED, spread)) for spread in spreads(example)]
    # Other values in the same shapes: a result that is kept of the first call shows.
    trials.append(Trial(need.key, "ranges", Asked(example, SEED + 1, "unit")))
    for one in varied(example):
        trials.append(Trial(need.key, "attributes", Asked(one.call, SEED, "unit"), one.attribute, one.value))
    return trials


def others(need: Need) -> list[OperatorCall]:
    """The largest of the row's calls and the one that differs most from the example."""
    example = need.example
    rest = {call.signature: call for call in need.calls if call.signature != example.signature}
    chosen: list[OperatorCall] = []
    for measure in (_size, lambda call: _distance(call, example)):
        left = [call for call in rest.values() if call not in chosen]
        if left:
            chosen.append(max(left, key=lambda call: (measure(call), call.signature)))
    return chosen[:OTHER_SIGNATURES]


def spreads(call: OperatorCall) -> Sequence[str]:
    """The ranges beyond the ordinary one, where a function of single values is at work.

    Moving and adding values knows no range, and attention over huge scores is decided by their last bit.
    """
    if not any(dtype in _HALVES_AND_MORE for dtype in call.dtypes):
        return ()
    name = call.op.split(".")[1]
    if name == _ATTENTION:
        return ("wide",)
    if torch.Tag.pointwise not in resolve(call.op).tags and name not in _RANGED:
        return ()
    # Beyond what an integer or fp8 holds, a cast has no defined value.
    narrow = any(dtype.startswith("fp8") for dtype in call.dtypes)
    narrow |= bool(call.result_dtype) and call.result_dtype not in _HALVES_AND_MORE
    if narrow:
        return ("wide",)
    return ("wide", "large", "odd", "masked") if name in _RANGED else ("wide", "large", "odd")


def _size(call: OperatorCall) -> float:
    return float(sum(math.prod(shape) for shape in call.shapes))


def _distance(call: OperatorCall, other: OperatorCall) -> float:
    """How differently two calls of one row are laid out: ones, zeros, odd sizes, strides and attributes."""
    differences = sum(
        (size == 1) != (old == 1) or (size == 0) != (old == 0) or size % 8 != old % 8
        for shape, before in zip(call.shapes, other.shapes, strict=True)
        for size, old in zip(shape, before, strict=True)
    )
    differences += sum(
        call.attributes.get(name) != other.attributes.get(name)
        for name in {*call.attributes, *other.attributes}
    )
    return float(differences + 2 * (_transposed(call) != _transposed(other)))


def _transposed(call: OperatorCall) -> bool:
    """Whether any tensor of the call is laid out otherwise than row by row."""
    for value in [*call.args, *call.kwargs.values()]:
        facts = value.get("tensor") if isinstance(value, dict) else None
        if facts is None:
            continue
        step = 1
        for size, stride in zip(reversed(facts["shape"]), reversed(facts["stride"]), strict=True):
            if size > 1 and stride != step:
                return True
            step *= size
    return False

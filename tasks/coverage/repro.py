"""One operator as a script that runs alone: torch, the stack at hand, and inputs inside the text."""

from __future__ import annotations

import base64
import textwrap
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target_spec import TargetSpec
from day0_worker import operator_inputs
from day0_worker.operator_inputs import make_inputs
from day0_worker.operators import call_dtype, with_strides

from ..thresholds import (
    OPERATOR_CONDITION,
    OPERATOR_TOLERANCE,
    OPERATOR_TOLERANCE_DEFAULT,
    PROBE_SECONDS,
)
from .comparison import compare
from .reference import Reference, formula_of
from .repro_runners import bare, runner
from .repro_script import SCRIPT
from .shown import Shown
from .shrink import elements, shrink

INLINED_ELEMENTS = 2048
"""Elements of all inputs up to which their very values stand in the script, some kilobytes of text; for
larger calls the script draws them as the probe did, by the probe's own code."""


@dataclass(frozen=True)
class Way:
    """How a script reaches the stack.

    Attributes:
        modules: to import beside torch, so that it knows the device.
        reference: `module:Class` of the stack where it runs operators in a way of its own; else empty.
    """

    modules: Sequence[str] = ()
    reference: str = ""


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
    run, more = runner(spec, call.op, status, way.reference)
    small = elements(call.shapes) <= INLINED_ELEMENTS
    inputs = f"{shown.spread} inputs, seed {shown.seed}"
    parts = {
        "TITLE": f"{call.op} for {', '.join(call.dtypes) or 'no tensors'} ({inputs}): "
        f"{status} on {spec.stack}@{spec.device}.",
        "DEVICE": spec.device,
        "SECONDS": f"{PROBE_SECONDS:g}",
        "TOLERANCES": repr({str(call_dtype(name)): limit for name, limit in OPERATOR_TOLERANCE.items()}),
        "OTHERWISE": repr(OPERATOR_TOLERANCE_DEFAULT),
        "CONDITION": repr(OPERATOR_CONDITION),
        "LOOP": _formula(call.op),
        "RUNNER": run,
        "MORE": more,
        "MODULES": repr(list(way.modules)),
        "OP": call.op,
        "UNSORTED": repr(call.attributes.get("dim", -1) if call.attributes.get("sorted") is False else None),
        "COMPARED": repr(not compare(call.op, (), Reference((), (), "own")).reason),
        "ARGS": _source(call.args),
        "KWARGS": f"{{{', '.join(f'{name!r}: {_source(value)}' for name, value in call.kwargs.items())}}}",
        "INPUTS": "\n".join(_inlined(tensors)) if small else _drawn(shown, call),
    }
    text = SCRIPT
    for mark, part in parts.items():
        text = text.replace(f"@{mark}@", part)
    return text


def _formula(op: str) -> str:
    """Source of `by_formula`, for operators that the CPU has in no wide precision."""
    parts = formula_of(op)
    if not parts:
        return "def by_formula():\n    return None"
    return "\n\n\n".join(
        [
            "import itertools",
            "def decode_call(call, tensors):\n    return widened([ARGS, KWARGS], None)",
            bare(*parts),
            f"def by_formula():\n    with torch.no_grad():\n        return {parts[-1].__name__}(None, None)",
        ]
    )


def _inlined(tensors: Sequence[torch.Tensor]) -> list[str]:
    return [f"T{place} = {_tensor(tensor)}" for place, tensor in enumerate(tensors)]


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


def _tensor(tensor: torch.Tensor) -> str:
    dtype, shape, stride = str(tensor.dtype), list(tensor.shape), list(tensor.stride())
    plain = tensor.contiguous().reshape(-1)  # without elements, last strides other than 1 cannot be bytes
    content = plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    data = base64.b85encode(zlib.compress(content, 9)).decode()
    pieces = textwrap.wrap(data, 96) or [""]
    text = "\n".join(f'    b"{piece}"' for piece in pieces)
    return f"values({dtype}, {shape}, {stride}, (\n{text}\n))"


def _source(value: Any) -> str:
    """An encoded argument as Python."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(_source(item) for item in value)}]"
    if not isinstance(value, dict):
        return repr(value)
    mark, content = next(iter(value.items()))
    return _SOURCES[mark](content)


def _memory_format(name: str) -> str:
    return f"torch.{name}_format" if name in ("contiguous", "preserve") else f"torch.{name}"


_SOURCES: Mapping[str, Callable[[Any], str]] = {
    "tensor": lambda facts: f"T{facts['alias']}",
    "dtype": lambda name: str(call_dtype(name)),
    "device": lambda name: "torch.device(DEVICE)" if name == "target" else f"torch.device({name!r})",
    "memory_format": _memory_format,
    "layout": lambda name: f"torch.{name}",
    "float": lambda text: f'float("{text}")',
    "complex": lambda parts: f"complex({float(parts[0])!r}, {float(parts[1])!r})",
}

"""One operator as a script that runs alone: torch, the stack at hand, and inputs inside the text."""

from __future__ import annotations

import base64
import textwrap
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from day0.adapters.base.errors import InputError
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import TargetDescription
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.registry import find_stack
from day0_worker.operators import call_dtype

from .operator_reference import formula_of
from .operator_runners import bare, runner
from .operator_script_text import BY_ELEMENT, SCRIPT
from .thresholds import OPERATOR_CONDITION, OPERATOR_TOLERANCE, OPERATOR_TOLERANCE_DEFAULT, PROBE_SECONDS

_OWN = "day0.adapters.targets."


@dataclass(frozen=True)
class Way:
    """How a script reaches the stack.

    Attributes:
        modules: to import beside torch, so that it knows the device.
        reference: `module:Class` of the stack where it runs operators in a way of its own; else empty.
    """

    modules: Sequence[str] = ()
    reference: str = ""


def way_of(spec: TargetSpec, description: TargetDescription) -> Way:
    """How a script reaches a target's stack.

    Day0's own stacks it knows; a vendor's says what torch needs, or else is asked itself.
    """
    try:
        reference = find_stack(spec.stack)
    except InputError:  # not installed as a package: nothing is known of it
        reference = ""
    modules = tuple(description.torch_modules)
    if modules or not reference or reference.startswith(_OWN):
        return Way(modules)
    return Way(reference=reference)


@dataclass(frozen=True)
class Shows:
    """What a script is to show.

    Attributes:
        call: the operator with its arguments.
        inputs: Python that names its tensors `T0`, `T1`, ... by alias.
        title: its first line.
        status: what the target was seen to make of it, out of the design's vocabulary.
        compared: whether its values are decided: not those of random operators and of unwritten memory.
        judge: source of `disagreement(outputs, right, own)`, which says what is wrong or nothing.
    """

    call: OperatorCall
    inputs: str
    title: str
    status: str
    compared: bool = True
    judge: str = BY_ELEMENT


def operator_script(shows: Shows, spec: TargetSpec, way: Way) -> str:
    """The script for one call of a torch operator.

    Args:
        shows: the call and its inputs.
        spec: the target that it is about.
        way: to the stack.
    """
    call = shows.call
    run, more = runner(spec, call.op, shows.status, way.reference)
    parts = {
        "JUDGE": shows.judge,
        "TITLE": shows.title,
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
        "COMPARED": repr(shows.compared),
        "ARGS": source_of(call.args),
        "KWARGS": f"{{{', '.join(f'{name!r}: {source_of(value)}' for name, value in call.kwargs.items())}}}",
        "INPUTS": shows.inputs,
    }
    text = SCRIPT
    for mark, part in parts.items():
        text = text.replace(f"@{mark}@", part)
    return text


def inlined(tensors: Sequence[torch.Tensor]) -> str:
    """The very values of a call's tensors as Python."""
    return "\n".join(f"T{place} = {tensor_source(tensor)}" for place, tensor in enumerate(tensors))


def tensor_source(tensor: torch.Tensor) -> str:
    """One tensor, its values packed into the text, in its own strides."""
    dtype, shape, stride = str(tensor.dtype), list(tensor.shape), list(tensor.stride())
    plain = tensor.contiguous().reshape(-1)  # without elements, last strides other than 1 cannot be bytes
    content = plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    data = base64.b85encode(zlib.compress(content, 9)).decode()
    pieces = textwrap.wrap(data, 96) or [""]
    text = "\n".join(f'    b"{piece}"' for piece in pieces)
    return f"values({dtype}, {shape}, {stride}, (\n{text}\n))"


def source_of(value: Any) -> str:
    """An encoded argument as Python."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(source_of(item) for item in value)}]"
    if not isinstance(value, dict):
        return repr(value)
    mark, content = next(iter(value.items()))
    return _SOURCES[mark](content)


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

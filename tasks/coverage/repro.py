"""One operator as a script that runs alone: torch, the stack at hand, and inputs inside the text."""

from __future__ import annotations

import base64
import textwrap
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target_spec import TargetSpec
from day0_worker.operator_inputs import make_inputs
from day0_worker.operators import call_dtype

from ..thresholds import OPERATOR_TOLERANCE, OPERATOR_TOLERANCE_DEFAULT
from .shrink import elements, shrink

INLINED_ELEMENTS = 2048
"""Elements of all inputs up to which their very values stand in the script, some kilobytes of text; of larger
calls that cannot be made smaller, floating inputs are drawn by the script itself."""

_RUNNERS: Mapping[str, str] = {
    "inductor": """
        def run(function, args, kwargs):
            one = torch.compile(lambda: function(*args, **kwargs), dynamic=False)
            return one()
        """,
    "onnxruntime": """
        def run(function, args, kwargs):
            import onnxruntime

            module, inputs = as_module(function, args, kwargs)
            program = torch.onnx.export(module, tuple(inputs), dynamo=True, verbose=False)
            model = program.model_proto.SerializeToString()
            session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
            known = [entry.name for entry in session.get_inputs()]
            names = [entry.name for entry in program.model.graph.inputs]
            feeds = {name: inputs[place].numpy() for place, name in enumerate(names) if name in known}
            return [torch.from_numpy(value) for value in session.run(None, feeds)]
        """,
    "openvino": """
        def run(function, args, kwargs):
            import openvino

            module, inputs = as_module(function, args, kwargs)
            exported = torch.export.export(module, tuple(inputs))
            graph = openvino.convert_model(exported)
            exact = {"INFERENCE_PRECISION_HINT": "f32", "EXECUTION_MODE_HINT": "ACCURACY"}
            compiled = openvino.Core().compile_model(graph, DEVICE.upper(), exact)
            known = {name for port in compiled.inputs for name in port.get_names()}
            names = exported.graph_signature.user_inputs
            feeds = {name: inputs[place].numpy() for place, name in enumerate(names) if name in known}
            results = compiled(feeds)
            return [torch.from_numpy(results[port].copy()) for port in compiled.outputs]
        """,
}
_EAGER = """
        def run(function, args, kwargs):
            with torch.no_grad():
                return function(*moved(args, DEVICE), **moved(kwargs, DEVICE))
        """

_SCRIPT = '''\
"""{title}

Run it as `python THIS_FILE [DEVICE]`. It exits with 0 where the result is right, with 1 where it is not.
"""

import base64
import sys
import zlib

import torch

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "{device}"
TOLERANCE = {tolerance}


def values(dtype, shape, stride, data):
    raw = bytearray(zlib.decompress(base64.b85decode(data)))
    flat = torch.frombuffer(raw, dtype=torch.uint8).view(dtype) if raw else torch.empty(0, dtype=dtype)
    return strided(flat.reshape(shape), stride)


def drawn(dtype, shape, stride):
    return strided(torch.randn(shape, generator=DRAW).to(dtype), stride)


def strided(value, stride):
    if list(value.stride()) == list(stride) or not value.numel():
        return value
    extent = 1 + sum((size - 1) * step for size, step in zip(value.shape, stride))
    laid = torch.zeros(extent, dtype=value.dtype).as_strided(value.shape, stride)
    for place, step in enumerate(stride):
        if step == 0 and value.shape[place] > 1:
            return value
    return laid.copy_(value)


def moved(value, device):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {{key: moved(item, device) for key, item in value.items()}}
    if isinstance(value, (list, tuple)):
        return type(value)(moved(item, device) for item in value)
    return torch.device(device) if isinstance(value, torch.device) else value


def widened(value):
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value.clone()
    if isinstance(value, dict):
        return {{key: widened(item) for key, item in value.items()}}
    if isinstance(value, (list, tuple)):
        return type(value)(widened(item) for item in value)
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def flat(value):
    if isinstance(value, torch.Tensor):
        return [value.detach().cpu()]
    return [tensor for item in value for tensor in flat(item)] if isinstance(value, (list, tuple)) else []


def as_module(function, args, kwargs):
    inputs = []

    def lifted(value):
        if isinstance(value, torch.Tensor):
            for place, known in enumerate(inputs):
                if known is value:
                    return ("input", place)
            inputs.append(value)
            return ("input", len(inputs) - 1)
        if isinstance(value, (list, tuple)):
            return [lifted(item) for item in value]
        return value

    shapes = [lifted(value) for value in args], {{key: lifted(value) for key, value in kwargs.items()}}

    def lowered(value, given):
        if isinstance(value, tuple) and value[:1] == ("input",):
            return given[value[1]]
        return [lowered(item, given) for item in value] if isinstance(value, list) else value

    class One(torch.nn.Module):
        def forward(self, *given):
            given = [tensor.clone() for tensor in given]
            result = function(
                *[lowered(value, given) for value in shapes[0]],
                **{{key: lowered(value, given) for key, value in shapes[1].items()}},
            )
            return (result,) if isinstance(result, torch.Tensor) else tuple(result)

    return One(), inputs

{runner}

DRAW = torch.Generator().manual_seed({seed})
{tensors}
ARGS = {args}
KWARGS = {kwargs}
FUNCTION = torch.ops.{op}

print("torch", torch.__version__, "on", DEVICE)
try:
    reference = flat(FUNCTION(*widened(ARGS), **widened(KWARGS)))
except (RuntimeError, NotImplementedError):  # no kernel for fp64
    reference = flat(FUNCTION(*moved(ARGS, "cpu"), **moved(KWARGS, "cpu")))
try:
    outputs = flat(run(FUNCTION, ARGS, KWARGS))
except Exception as error:  # whatever the stack raises is the answer
    print("FAILS:", type(error).__name__, str(error)[:2000])
    sys.exit(1)
worst = 0.0
for got, right in zip(outputs, reference):
    if not right.is_floating_point():
        worst = max(worst, float((got != right).any()))
        continue
    right = right.double()
    scale = right.abs() + right.square().mean().sqrt() if right.numel() else right
    error = ((got.double() - right).abs() / scale.clamp_min(1e-30)).nan_to_num(0.0 if torch.equal(
        got.isnan(), right.isnan()) else float("inf"))
    worst = max(worst, float(error.max()) if error.numel() else 0.0)
print("largest error", worst, "of", TOLERANCE, "allowed")
sys.exit(0 if worst <= TOLERANCE else 1)
'''


def script(call: OperatorCall, spec: TargetSpec, seed: int, status: str) -> str:
    """The script for one call; empty for what is no torch operator or has inputs that cannot be made.

    Args:
        call: as captured; made smaller where that leaves a valid call.
        spec: the target that it is about.
        seed: of the inputs.
        status: what the target was seen to make of it.
    """
    if call.op.count(".") != 2:
        return ""
    small = shrink(call, INLINED_ELEMENTS) or call
    inlined = elements(small.shapes) <= INLINED_ELEMENTS
    try:
        tensors = make_inputs(small.model_dump(mode="json"), seed)
    except (RuntimeError, ValueError, IndexError, KeyError):  # a call whose inputs follow no known rule
        return ""
    lines = [f"T{place} = {_tensor(tensor, inlined)}" for place, tensor in enumerate(tensors)]
    dtypes = ", ".join(call.dtypes) or "no tensors"
    return _SCRIPT.format(
        title=f"{call.op} for {dtypes}: {status} on {spec.stack}@{spec.device}.",
        device=spec.device,
        tolerance=max([OPERATOR_TOLERANCE.get(name, 0.0) for name in call.dtypes] + [_least(call)]),
        runner=textwrap.dedent(_RUNNERS.get(spec.stack, _EAGER)).strip("\n"),
        seed=seed,
        tensors="\n".join(lines),
        args=_source(small.args),
        kwargs=f"{{{', '.join(f'{name!r}: {_source(value)}' for name, value in small.kwargs.items())}}}",
        op=small.op,
    )


def _least(call: OperatorCall) -> float:
    return 0.0 if any(name in OPERATOR_TOLERANCE for name in call.dtypes) else OPERATOR_TOLERANCE_DEFAULT


def _tensor(tensor: torch.Tensor, inlined: bool) -> str:
    dtype, shape, stride = str(tensor.dtype), list(tensor.shape), list(tensor.stride())
    if not inlined and tensor.is_floating_point():
        return f"drawn({dtype}, {shape}, {stride})"
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

"""Where in a graph an error happened, read out of the texts of torch, compilers, exporters and runtimes."""

from __future__ import annotations

import re
from typing import Dict, List, Sequence, Tuple

_FIELD_TEXT = 300
_SHAPES = 4

# The first rule that matches decides. Names of torch's own operators go before those of a runtime's graph: a
# person looks for the former in the model.
_OPERATORS: Sequence[Tuple[str, str]] = (
    # ONNX exporter: which function it lacks; torch.fx: which node it was at; inductor: what it cannot lower.
    (r"OpOverload\(op='([\w.]+)', overload='(\w+)'\)", "{0}.{1}"),
    (r"call_function\[target=torch\.ops\.([\w.]+)\]", "{0}"),
    (r"\btarget: (\w+\.\w+\.\w+)", "{0}"),
    (r"missing lowering[^\w]+(\w+\.\w+\.\w+)", "{0}"),
    (r"call_function (\w+\.\w+\.\w+)\(", "{0}"),
    # OpenVINO's converter, then its plugin's names for nodes, which keep the operator's.
    (r"No conversion rule found for operations: ([\w.:]+)", "{0}"),
    (r"\b((?:aten|prims)\.\w+\.\w+)\b", "{0}"),
    (r"\b((?:aten|prims|torchvision|quantized)::\w+(?:\.\w+)?)", "{0}"),
    # ONNX Runtime: operator with its opset, or without.
    (r"implementation for (\w+)\((\d+)\) node", "onnx.{0}@{1}"),
    (r"of operator \((\w+)\) in node", "onnx.{0}"),
    (r"running (\w+) node", "onnx.{0}"),
    # OpenVINO while it checks a graph.
    (r"While validating node '?(\w+)::(\w+)", "{0}.{1}"),
    # torch: a kernel's own name.
    (r'"(\w+)" not implemented for', "{0}"),
)

_NODES: Sequence[str] = (
    r"translating node %?(\w+)",
    r"node with name '([^']+)'",
    r"\bName: ?'([^']+)'",
    r"in node \(([^)]+)\)",
    r"friendly_name '([^']+)'",
    r"conversion of operation (\S+)",
)

_TYPES = {
    "half": "fp16", "float16": "fp16", "bfloat16": "bf16", "float": "fp32", "float32": "fp32",
    "double": "fp64", "float64": "fp64", "long": "int64", "int64": "int64", "int": "int32", "int32": "int32",
    "short": "int16", "int16": "int16", "char": "int8", "int8": "int8", "byte": "uint8", "uint8": "uint8",
    "bool": "bool", "complexfloat": "complex64", "complex64": "complex64", "complexdouble": "complex128",
    "complex128": "complex128", "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2",
}  # fmt: skip
_DTYPES: Sequence[str] = (
    r"not implemented for '(\w+)'",
    r"no kernel for torch\.(\w+)",
    r"'tensor\((\w+)\)' of input",
    r"takes no (\w+) tensors",
    r"unsupported (?:scalar |data |element )?(?:d?type|precision):? ?(?:torch\.)?(\w+)",
)

_SIZES: Sequence[Tuple[str, str]] = (
    (r"\((\d+(?:x\d+)+) and (\d+(?:x\d+)+)\)", "{0}, {1}"),
    (r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)[^.]*?dimension (\d+)",
     "{0} against {1} in dimension {2}"),
    (r"merge dim (\d+) with dim (\d+) at index=(\d+)", "{0} against {1} in dimension {2}"),
    (r"LeftShape: ?\{([\d,]+)\},? ?RightShape: ?\{([\d,]+)\}", "{0} and {1}"),
)  # fmt: skip
_LISTED = r"(?:\[|size\(\[|size=\()(\d+(?:, ?\d+)*)[\])]"


def locate(text: str) -> Dict[str, str]:
    """What an error's text says of its place.

    Args:
        text: messages of the error and its causes.

    Returns:
        Those of `op` (`aten.mm.default`, `onnx.MatMul@13`), `dtype` (short name), `shape` (sizes at odds, or
        the shapes named) and `node` (of the graph, by the stack's name) that it says.
    """
    found = {"op": _operator(text), "dtype": _dtype(text), "shape": _shape(text), "node": _node(text)}
    return {field: value[:_FIELD_TEXT] for field, value in found.items() if value}


def _operator(text: str) -> str:
    for pattern, form in _OPERATORS:
        match = re.search(pattern, text)
        if match:
            return form.format(*match.groups()).replace("::", ".")
    return ""


def _node(text: str) -> str:
    for pattern in _NODES:
        match = re.search(pattern, text)
        if match:
            return match.group(1)
    return ""


def _dtype(text: str) -> str:
    for pattern in _DTYPES:
        match = re.search(pattern, text, re.IGNORECASE)
        if match:
            name = match.group(1).lower()
            return _TYPES.get(name, name if name in _TYPES.values() else "")
    return ""


def _shape(text: str) -> str:
    for pattern, form in _SIZES:
        match = re.search(pattern, text)
        if match:
            return form.format(*match.groups())
    listed: List[str] = re.findall(_LISTED, text)
    return ", ".join(f"[{', '.join(re.split(', ?', entry))}]" for entry in listed[:_SHAPES])

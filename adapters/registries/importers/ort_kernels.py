"""ONNX Runtime's list of kernels: docs/OperatorKernels.md, a Markdown table an execution provider.

Columns: operator, parameters (`*in* X:**T**<br> *out* Y:**T**`), opset (`13+`, `[6, 12]`, `10`), types
(`**T** = tensor(float), tensor(int64)<br/> **T1** = ...`). A row without a name belongs to the operator above
it; a row `**Operator Domain:** *ai.onnx*` starts a domain.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from ..registry import Registry
from .listed import Entry, as_registry, unreadable

FORM = "onnxruntime kernels"

_SECTION = re.compile(r"^## Operators implemented by (\w{1,64})\s*$")
_DOMAIN = re.compile(r"\*\*Operator Domain:\*\* \*([\w.]{1,64})\*")
_NAME = re.compile(r"\w{1,128}")
_INPUT = re.compile(r"\*in\* ?\w{1,64}:\*\*([\w()]{1,64})\*\*")
_TYPES = re.compile(r"\*\*(\w{1,32})\*\* = ((?:\w+\(\w+\)(?:, )?){1,64})")
_RANGE = re.compile(r"\[(\d{1,4}), ?(\d{1,4})\]|(\d{1,4})(\+?)")
_TENSOR = re.compile(r"tensor\((\w{1,32})\)")

_DTYPES = {
    "float": "fp32", "double": "fp64", "float16": "fp16", "bfloat16": "bf16", "float8e4m3fn": "fp8_e4m3",
    "float8e5m2": "fp8_e5m2", "float4e2m1": "fp4_e2m1", "int4": "int4", "int8": "int8", "int16": "int16",
    "int32": "int32", "int64": "int64", "uint8": "uint8", "uint16": "uint16", "uint32": "uint32",
    "uint64": "uint64", "bool": "bool", "complex64": "complex64", "complex128": "complex128",
}  # fmt: skip
_MAX_COMBINATIONS = 256
"""Dtype tuples of one operator that are written out: three parameters of six types."""

_NEWEST = 10**6
_COLUMNS = 4


def read_ort_kernels(name: str, text: str, opset: int = 0, device: str = "cpu") -> Registry:
    """The declared rows of one execution provider under one opset.

    Args:
        name: `STACK@DEVICE` that the rows are for.
        text: the list.
        opset: version of the operator set; 0: the newest kernel of each operator.
        device: whose provider's table is read.

    Raises:
        InputError: E173, it is no such list, or has no table of that provider.
    """
    provider = f"{device}ExecutionProvider"
    lines = list(_table(text, provider))
    if not lines:
        raise unreadable(FORM, f"it has no table of {provider}")
    wanted = opset or _NEWEST
    named = list(_named([cells for cells in lines if len(cells) == _COLUMNS]))
    entries = [entry for line in named for entry in _entries(line, wanted)]
    malformed = ["|".join(cells) for cells in lines if len(cells) != _COLUMNS]
    malformed += [" | ".join(line) for line in named if not _RANGE.search(line[2])]
    return as_registry(name, FORM, f"{provider}, opset {opset or 'newest'}", entries, malformed)


def _table(text: str, provider: str) -> Iterator[Sequence[str]]:
    inside = False
    for line in text.splitlines():
        section = _SECTION.match(line)
        if section is not None:
            inside = section[1].lower() == provider.lower()
        elif inside and line.startswith("|"):
            yield line.strip().strip("\n").split("|")[1:-1]


Line = tuple[str, str, str, str]
"""Operator with its domain, parameters, opset, types."""


def _named(rows: Sequence[Sequence[str]]) -> Iterator[Line]:
    domain, op, parameters = "ai.onnx", "", ""
    for first, second, opset, types in rows:
        heading = _DOMAIN.search(first)
        if heading is not None:
            domain, op = heading[1], ""
            continue
        if _NAME.fullmatch(first.strip()):
            op, parameters = first.strip(), second
        if op:
            yield op if domain == "ai.onnx" else f"{domain}.{op}", parameters, opset, types


def _entries(line: Line, opset: int) -> Iterator[Entry]:
    op, parameters, gate, types = line
    found = _RANGE.search(gate)
    if found is None:
        return
    low = int(found[1] or found[3])
    high = _NEWEST if found[4] else int(found[2] or found[3])
    if not low <= opset <= high:
        return
    choices = {variable: _dtypes(listed) for variable, listed in _TYPES.findall(types)}
    for dtypes in _tuples(parameters, choices):
        yield Entry(op=f"onnx.{op}@{low}", dtypes=dtypes)


def _dtypes(listed: str) -> tuple[str, ...]:
    return tuple(_DTYPES[one] for one in _TENSOR.findall(listed) if one in _DTYPES)


def _tuples(parameters: str, choices: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Dtype tuples of the inputs in the first form of the call; of the type variables alone where many."""
    inputs = _INPUT.findall(re.split(r"<br><br>or<br><br>", parameters)[0])
    variables = list(dict.fromkeys(one for one in inputs if choices.get(one)))
    total = 1
    for variable in variables:
        total *= len(choices[variable])
    if not variables or total > _MAX_COMBINATIONS:
        yield ()
        return
    for chosen in itertools.product(*(choices[variable] for variable in variables)):
        of = dict(zip(variables, chosen, strict=True))
        yield tuple(of.get(one) or next(iter(_dtypes(one)), "") for one in inputs)

"""One call of one operator, as captured on meta and replayed on a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .values import Value, digest

Encoded = Any
"""An argument as JSON.

A tensor is `{"tensor": {"dtype": "bf16", "shape": [1, 64], "stride": [64, 1], "alias": 0}}` (`alias` numbers
the distinct tensors of the call, so that in-place and repeated arguments stay one tensor); a dtype is
`{"dtype": "bf16"}`, a device `{"device": "target"}`, a memory format `{"memory_format": "contiguous"}`, a
non-finite float `{"float": "NaN"}`; a list or tuple is a list; numbers, strings, booleans and null stand for
themselves.
"""


class OperatorCall(Value):
    """An operator with its arguments' dtypes, shapes and attributes.

    Attributes:
        op: `aten.mm.default`, `onnx.MatMul@21`, `triton:NAME` or `hub:REPO`.
        args: positional arguments, encoded.
        kwargs: keyword arguments, encoded.
        dtypes: dtype of each tensor argument, in order of appearance.
        shapes: shape of each tensor argument, in order of appearance.
        module: transformers' module path that calls it, first seen.
        phase: `prefill`, `decode`, `long_prefill` or `sampling`.
        count: calls of this very signature within the phase, over the whole model.
    """

    op: str
    args: Sequence[Encoded] = ()
    kwargs: dict[str, Encoded] = {}
    dtypes: Sequence[str] = ()
    shapes: Sequence[Sequence[int]] = ()
    module: str = ""
    phase: str = "prefill"
    count: int = 1

    @property
    def signature(self) -> str:
        """Digest of operator, dtypes, shapes, strides and attributes."""
        return digest({"op": self.op, "args": list(self.args), "kwargs": self.kwargs})

    @property
    def row_key(self) -> str:
        """The registry row this call falls into: operator, dtype tuple and ranks."""
        ranks = ",".join(str(len(shape)) for shape in self.shapes)
        return f"{self.op}|{','.join(self.dtypes)}|{ranks}"

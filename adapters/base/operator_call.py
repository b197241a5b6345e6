"""One call of one operator, as captured on meta and replayed on a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .values import Value, digest

Encoded = Any
"""An argument as JSON.

A tensor is `{"tensor": {"dtype": "bf16", "shape": [1, 64], "stride": [64, 1], "alias": 0}}` (`alias` numbers
the distinct tensors of the call, so that in-place and repeated arguments stay one tensor; a tensor that lies
on the host also has `"device": "cpu"`); a dtype is `{"dtype": "bf16"}`, a device `{"device": "target"}`, a
memory format `{"memory_format": "contiguous"}`, a layout `{"layout": "strided"}`, a non-finite float
`{"float": "NaN"}`, a complex number `{"complex": [0, 1]}`; a list or tuple is a list; numbers, strings,
booleans and null stand for themselves.
"""


class OperatorCall(Value):
    """An operator with its arguments' dtypes, shapes and attributes.

    Attributes:
        op: `aten.mm.default`, `onnx.MatMul@21`, `triton:NAME` or `hub:REPO`.
        args: positional arguments, encoded.
        kwargs: keyword arguments, encoded.
        dtypes: dtype of each distinct tensor, in order of its `alias`.
        shapes: shape of each distinct tensor, in order of its `alias`.
        attributes: arguments that are no tensors, by the schema's names, without device, layout and pinning.
        variant: the attributes that choose another implementation, as text (`enable_gqa,is_causal`): switches
            and words that are not the default, optional numbers that are given. Empty for none.
        module: transformers' module path that calls it, first seen.
        modules: all of them, the first one first, where more than one does.
        phase: `prefill`, `decode`, `long_prefill` or `sampling`.
        count: calls of this very signature within the phase, over the whole model.
        tokens: that the phase feeds; 0 where that is not known.
        branch: empty: called always; `padded`: only where the batch is ragged, so that a mask is given;
            `image`: only where the prompt holds an image; `cpu` or `accelerator`: only where model code that
            asks for the device's type is told that one.
    """

    op: str
    args: Sequence[Encoded] = ()
    kwargs: Mapping[str, Encoded] = {}
    dtypes: Sequence[str] = ()
    shapes: Sequence[Sequence[int]] = ()
    attributes: Mapping[str, Encoded] = {}
    variant: str = ""
    module: str = ""
    modules: Sequence[str] = ()
    phase: str = "prefill"
    count: int = 1
    tokens: int = 0
    branch: str = ""

    @property
    def signature(self) -> str:
        """Digest of operator, dtypes, shapes, strides and attributes."""
        return digest({"op": self.op, "args": list(self.args), "kwargs": dict(self.kwargs)})

    @property
    def per_token(self) -> float:
        """Calls for each token that the phase feeds; 0 where that number is not known."""
        return self.count / self.tokens if self.tokens else 0.0

    @property
    def result_dtype(self) -> str:
        """The dtype that the call asks for by an argument, as casts and factories do; empty where none."""
        asked = self.kwargs.get("dtype")
        return str(asked["dtype"]) if isinstance(asked, dict) else ""

    @property
    def row_key(self) -> str:
        """The registry row that this call falls into, see `row_key`."""
        ranks = [len(shape) for shape in self.shapes]
        return row_key(self.op, self.dtypes, ranks, self.result_dtype, self.variant)


def row_key(
    op: str, dtypes: Sequence[str], ranks: Sequence[int], result_dtype: str, variant: str = ""
) -> str:
    """The name of a registry row, the same for a call and for the row itself.

    Operator, dtype tuple, ranks, the dtype asked for, and the attributes that choose an implementation:
    attention with grouped heads is another row than attention without.
    """
    ranked = ",".join(str(rank) for rank in ranks)
    end = [result_dtype, variant] if variant else [result_dtype] if result_dtype else []
    return "|".join([op, ",".join(dtypes), ranked, *end])

"""One row of a registry: what a target makes of one operator with one dtype tuple and one set of ranks."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.operator_call import row_key
from ..base.values import Number, Value

LAYERS = ("", "adapter", "library", "compiler", "runtime", "driver", "worker")
"""Which layer of a stack is at fault: what plugs it into the framework, its kernel library, its compiler or
exporter, the runtime that executes compiled graphs, the driver, or the process itself; empty where none."""


class RegistryRow(Value):
    """What is known of one operator, with what shows it.

    Attributes:
        op: `aten.mm.default`.
        dtypes: of the distinct tensor arguments.
        ranks: of the same.
        result_dtype: dtype asked for by an argument, or empty.
        variant: attributes that choose an implementation, as `OperatorCall.variant` has them.
        status: out of the design's vocabulary; `unknown` where a probe could not decide.
        reason: why it is not `native`, or what a probe could not compare; one line.
        layer: out of `LAYERS`.
        via: operators of the decomposition, for `decomposed`.
        workaround: id of the smallest way around, or empty.
        error: largest deviation from the fp64 reference, relative as tasks/coverage/comparison.py says; None
            where nothing could be compared.
        tolerance: what the error was held against.
        shapes: of the probe's tensors.
        probe: digest of the call that was replayed.
        seed: of its inputs.
        fingerprint: digest of the fingerprint it was measured under.
        method: `replay`, or `declared` for imported support lists.
    """

    op: str
    dtypes: Sequence[str] = ()
    ranks: Sequence[int] = ()
    result_dtype: str = ""
    variant: str = ""
    status: str
    reason: str = ""
    layer: str = ""
    via: Sequence[str] = ()
    workaround: str = ""
    error: Number | None = None
    tolerance: float | None = None
    shapes: Sequence[Sequence[int]] = ()
    probe: str = ""
    seed: int = 0
    fingerprint: str = ""
    method: str = "replay"

    @property
    def key(self) -> str:
        """The same as `OperatorCall.row_key` of the calls that fall into it."""
        return row_key(self.op, self.dtypes, self.ranks, self.result_dtype, self.variant)

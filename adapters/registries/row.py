"""One row of a registry: what a target makes of one operator with one dtype tuple and one set of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.operator_call import OperatorCall, row_key
from ..base.values import Number, Value

LAYERS = ("", "adapter", "library", "compiler", "runtime", "driver", "worker")
"""Which layer of a stack is at fault: what plugs it into the framework, its kernel library, its compiler or
exporter, the runtime that executes compiled graphs, the driver, or the process itself; empty where none."""

DECLARED = "declared"
"""Method of rows that come from a support list and that nobody has tried."""

CHECKS = ("example", "signatures", "ranges", "attributes")
"""What is tried of a row, in this order: one call; others of the model's; other ranges of values, and other
values; each attribute changed in turn."""

MARK = 12
"""Hexadecimal digits that name a call among those of one row."""


class Constraint(Value):
    """Something that a row's operator refuses while it runs otherwise.

    Attributes:
        shapes: of the tensors that were refused; empty where an attribute is what is refused.
        attributes: that were refused, by the schema's names.
        reason: the stack's words, one line.
        mark: of the call as captured; empty for a call that no model makes.
    """

    shapes: Sequence[Sequence[int]] = ()
    attributes: Mapping[str, Any] = {}
    reason: str
    mark: str = ""


class WorkaroundCost(Value):
    """What a way around costs, measured by running it.

    Attributes:
        error: largest deviation from the fp64 reference, as for a row.
        launches: operators that run instead of the one.
        seconds: of one call, where it was timed.
    """

    error: Number | None = None
    launches: int = 0
    seconds: float | None = None


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
        owner: who keeps that layer, as far as the stack is known.
        via: operators of the decomposition, for `decomposed`.
        workaround: id of the smallest way around, or empty.
        cost: of the workaround, where it was run.
        constraints: shapes and attributes that are refused while the operator runs otherwise.
        error: largest deviation from the fp64 reference, relative as tasks/coverage/comparison.py says; None
            where nothing could be compared.
        tolerance: what the error was held against.
        shapes: of the probe's tensors.
        probe: digest of the call that was replayed.
        seed: of its inputs.
        spread: of its inputs, out of `day0_worker.operator_inputs.SPREADS`.
        failing: of a row that is not sound, the call that showed it, in the size in which it was replayed.
        tried: marks of the captured calls that ran, see `mark_of`; sorted.
        checks: what was done, out of `CHECKS`.
        schema_hash: of the operator's schema, which changes between versions of torch.
        generator: of the calls and inputs: `captured`, `opinfo` or `sweep` (a model's call in another dtype
            or rank); of a declared row: the list's form.
        date: day of the probe (UTC, `2026-01-31`), where the run gave one.
        log: the last lines of a worker that died.
        issue: address of an issue that tells of it; this and the next two come from notes (see `notes`).
        waiver: why it is accepted, or empty.
        until: last day on which it is, or empty.
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
    owner: str = ""
    via: Sequence[str] = ()
    workaround: str = ""
    cost: WorkaroundCost | None = None
    constraints: Sequence[Constraint] = ()
    error: Number | None = None
    tolerance: float | None = None
    shapes: Sequence[Sequence[int]] = ()
    probe: str = ""
    seed: int = 0
    spread: str = "unit"
    failing: OperatorCall | None = None
    tried: Sequence[str] = ()
    checks: Sequence[str] = ()
    schema_hash: str = ""
    generator: str = "captured"
    date: str = ""
    log: str = ""
    issue: str = ""
    waiver: str = ""
    until: str = ""
    fingerprint: str = ""
    method: str = "replay"

    @property
    def key(self) -> str:
        """The same as `OperatorCall.row_key` of the calls that fall into it."""
        return row_key(self.op, self.dtypes, self.ranks, self.result_dtype, self.variant)

    def refusal(self, signatures: Iterable[str]) -> Constraint | None:
        """What this row says against one of these calls, although the operator runs otherwise."""
        marks = {mark_of(signature) for signature in signatures}
        return next((one for one in self.constraints if one.mark in marks), None)


def mark_of(signature: str) -> str:
    """The short name of a call's signature, as `RegistryRow.tried` and `Constraint.mark` hold it."""
    return signature[:MARK]

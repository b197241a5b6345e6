"""What `day0 ops` lists: every operator call of a model, from its config, without weights or a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.values import Anomaly, Value
from day0.tasks.coverage.impact import work_of
from day0.tasks.coverage.kernels import kernels_of


class ListedOp(Value):
    """One distinct call.

    Attributes:
        op: operator name.
        dtypes: of its distinct tensors.
        shapes: of its distinct tensors.
        attributes: arguments that are no tensors, by position or name.
        phase: `prefill`, `decode`, `long_prefill` or `sampling`.
        module: first module path that calls it.
        count: calls in that phase, over the whole model.
        flops: of one call, estimated.
        bytes: moved by one call, estimated.
    """

    op: str
    dtypes: Sequence[str]
    shapes: Sequence[Sequence[int]]
    attributes: dict[str, Any]
    phase: str
    module: str
    count: int
    flops: float
    bytes: float


class OperatorsList(Value):
    """All calls of a model.

    Attributes:
        model: as named.
        revision: pinned.
        overloads: number of distinct operators.
        signatures: number of distinct calls.
        ops: each of them, in the order of first use.
        kernels: kernels outside the dispatcher that the config asks for.
        unresolved: what could not be mapped or captured, and why.
    """

    model: str
    revision: str
    overloads: int
    signatures: int
    ops: Sequence[ListedOp]
    kernels: Sequence[str]
    unresolved: Sequence[Anomaly]


def list_operators(model: str, revision: str | None, store: RunStore) -> OperatorsList:
    """Captures the operators of a model, or reads them from the run store.

    Raises:
        Day0Error: the model cannot be used, or its structure cannot be built.
    """
    from day0.adapters.checkpoints.release import open_release
    from day0.adapters.models.skeleton_store import load_or_build_skeleton

    release = open_release(model, revision)
    skeleton = load_or_build_skeleton(release, store)
    ops = []
    for call in skeleton.operators:
        work = work_of(call)
        ops.append(
            ListedOp(
                op=call.op,
                dtypes=call.dtypes,
                shapes=call.shapes,
                attributes=_attributes(call.args, call.kwargs),
                phase=call.phase,
                module=call.module,
                count=call.count,
                flops=work.flops,
                bytes=work.bytes,
            )
        )
    return OperatorsList(
        model=model,
        revision=release.revision,
        overloads=len({call.op for call in skeleton.operators}),
        signatures=len({call.signature for call in skeleton.operators}),
        ops=ops,
        kernels=kernels_of(release.config),
        unresolved=skeleton.anomalies,
    )


def operator_lines(found: OperatorsList) -> list[str]:
    """The list for a terminal: one line for each operator with its dtypes, most called first."""
    counts: dict[tuple[str, str], int] = {}
    for call in found.ops:
        key = (call.op, ", ".join(call.dtypes))
        counts[key] = counts.get(key, 0) + call.count
    lines = [f"{found.overloads} operators, {found.signatures} distinct calls"]
    lines += [
        f"{name} was not resolved: {why}" for name, why in ((a.subject, a.message) for a in found.unresolved)
    ]
    lines += [f"needs the kernel {kernel}" for kernel in found.kernels]
    lines += [
        f"{count:>8} x {op} ({dtypes})"
        for (op, dtypes), count in sorted(counts.items(), key=lambda item: -item[1])
    ]
    return lines


def _attributes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    named = {**{str(position): value for position, value in enumerate(args)}, **kwargs}
    return {name: value for name, value in named.items() if not _has_tensor(value)}


def _has_tensor(value: Any) -> bool:
    if isinstance(value, dict):
        return "tensor" in value
    return isinstance(value, list | tuple) and any(_has_tensor(item) for item in value)

"""What `day0 ops` lists: every operator call of a model, from its config, without weights or a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.operator_capture import UNDECIDED, Capture, CaptureRequest, FunctionCall, Kernel
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.values import Anomaly, Value
from day0.tasks.coverage.impact import work_of
from day0.tasks.verdict import Verdict


class ListedOp(Value):
    """One distinct call.

    Attributes:
        op: operator name.
        dtypes: of its distinct tensors.
        shapes: of its distinct tensors.
        attributes: arguments that are no tensors, by the names of the operator's schema.
        phase: `prefill`, `decode`, `long_prefill` or `sampling`.
        module: first module path that calls it.
        modules: all of them, where more than one does.
        count: calls in that phase, over the whole model.
        per_token: calls for each token that the phase feeds; 0 where that number is not known.
        flops: of one call, estimated.
        bytes: moved by one call, estimated.
        branch: `padded` where only a ragged batch calls it, `image` where only a prompt with an image does,
            else empty.
    """

    op: str
    dtypes: Sequence[str]
    shapes: Sequence[Sequence[int]]
    attributes: dict[str, Any]
    phase: str
    module: str
    modules: Sequence[str]
    count: int
    per_token: float
    flops: float
    bytes: float
    branch: str


class OperatorsList(Value):
    """All calls of a model.

    Attributes:
        model: as named.
        revision: pinned.
        request: how the model was captured.
        dtype: in which it was captured.
        overloads: number of distinct operators.
        signatures: number of distinct calls.
        ops: each of them, in the order of first use.
        functions: calls at the points where implementations switch.
        kernels: that no dispatcher sees.
        unresolved: what could not be captured or was captured otherwise than asked, and why.
    """

    model: str
    revision: str
    request: CaptureRequest
    dtype: str
    overloads: int
    signatures: int
    ops: Sequence[ListedOp]
    functions: Sequence[FunctionCall]
    kernels: Sequence[Kernel]
    unresolved: Sequence[Anomaly]

    @property
    def verdict(self) -> Verdict:
        """`unverified` where something could not be captured, so that its absence says nothing."""
        undecided = any(anomaly.code in UNDECIDED for anomaly in self.unresolved)
        return Verdict.UNVERIFIED if undecided else Verdict.PASS


def list_operators(
    model: str,
    revision: str | None,
    store: RunStore,
    request: CaptureRequest,
    *,
    progress: Progress = silent,
) -> OperatorsList:
    """Captures the operators of a model, or reads them from the run store.

    Args:
        model: hub id, folder, or path of a config.json.
        revision: of it.
        store: keeps captures.
        request: how to capture.
        progress: told while the model is captured.

    Raises:
        Day0Error: the model cannot be opened.
    """
    from day0.adapters.checkpoints.release import open_release
    from day0.adapters.models.captures import load_or_capture

    release = open_release(model, revision)
    return listed(model, release.revision, load_or_capture(release, store, request, progress=progress))


def listed(model: str, revision: str, capture: Capture) -> OperatorsList:
    """The capture as a list."""
    return OperatorsList(
        model=model,
        revision=revision,
        request=capture.request,
        dtype=capture.captured_dtype,
        overloads=len({call.op for call in capture.calls}),
        signatures=len({call.signature for call in capture.calls}),
        ops=[_listed(call) for call in capture.calls],
        functions=capture.functions,
        kernels=capture.kernels,
        unresolved=capture.anomalies,
    )


def _listed(call: OperatorCall) -> ListedOp:
    work = work_of(call)
    return ListedOp(
        op=call.op,
        dtypes=call.dtypes,
        shapes=call.shapes,
        attributes=dict(call.attributes),
        phase=call.phase,
        module=call.module,
        modules=call.modules,
        count=call.count,
        per_token=call.per_token,
        flops=work.flops,
        bytes=work.bytes,
        branch=call.branch,
    )


def operator_lines(found: OperatorsList) -> list[str]:
    """The list for a terminal: what is missing first, then one line for each operator with its dtypes."""
    counts: dict[tuple[str, str], int] = {}
    for call in found.ops:
        key = (call.op, ", ".join(call.dtypes))
        counts[key] = counts.get(key, 0) + call.count
    lines = [
        f"{found.overloads} operators, {found.signatures} distinct calls, as on {found.request.device} "
        f"in {found.dtype}"
    ]
    lines += [f"not resolved: {anomaly.message}" for anomaly in found.unresolved]
    lines += [_kernel_line(kernel) for kernel in found.kernels]
    lines += ["functions at which implementations switch, with their calls in one prefill:"]
    lines += [
        f"{call.count:>8} x {call.name} {call.implementation} ({call.phase})".replace("  (", " (")
        for call in found.functions
        if call.phase == "prefill"
    ]
    phases = ", ".join(dict.fromkeys(call.phase for call in found.ops))
    lines += [f"operators, with their calls in all layers, one of each phase together ({phases}):"]
    lines += [
        f"{count:>8} x {op} ({dtypes})"
        for (op, dtypes), count in sorted(counts.items(), key=lambda item: -item[1])
    ]
    lines += ["`day0 coverage MODEL --target T` says which of them a target has, weighed by their work"]
    return lines


def _kernel_line(kernel: Kernel) -> str:
    where = f" on {', '.join(kernel.architectures)}" if kernel.architectures else ""
    without = f"; without it {kernel.fallback}" if kernel.fallback else "; nothing stands in for it"
    asked = f"{kernel.required_by[0]}" if kernel.required_by else "the model"
    more = f" and {len(kernel.required_by) - 1} more" if len(kernel.required_by) > 1 else ""
    return f"kernel {kernel.name}{where}, asked for by {asked}{more}{without}"

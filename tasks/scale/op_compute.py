"""Known answers operator by operator, for stacks that run operators and start no ranks of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from day0.adapters.base.dtypes import TO_TORCH
from day0.adapters.base.errors import RemoteError
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Target

from .model_shapes import Case

if TYPE_CHECKING:
    from torch import Tensor

# Relative L2 error against fp64 that a right attention kernel stays far below: measured on CPUs 3e-3 in bf16,
# 4e-4 in fp16, 3e-7 in fp32; a wrong mask or scale is off by more than 1e-1.
_ATTENTION_TOLERANCE = {"fp64": 1e-12, "fp32": 1e-5, "fp16": 4e-3, "bf16": 3e-2}
_REPEATS = 2


def compute_by_operators(cases: Sequence[Case], target: Target) -> Sequence[Mapping[str, Any]]:
    """Each case through `run_op`, twice; the answers look like those of a `compute` job's rank.

    Raises:
        WorkerError: the worker was lost.
    """
    return [_check(case, target) for case in cases]


def _check(case: Case, target: Target) -> Mapping[str, Any]:
    call, tensors, exact, tolerance, flops = _MAKERS[case.operation](case)
    check: dict[str, Any] = {
        "name": f"{case.operation} {case.dtype} {'x'.join(map(str, case.shape))}",
        "operation": case.operation,
        "passed": False,
        "detail": "",
        "seconds": [],
        "flops": flops,
        "repeatable": True,
    }
    outputs = []
    try:
        for _ in range(_REPEATS):
            answer = target.run_op(call, tensors)
            check["seconds"].append(answer.seconds)
            outputs.append([answer.outputs.tensors[name] for name in _leaves(answer.outputs.tree)])
    except RemoteError as error:
        check["detail"] = f"{error.kind}: {error.message}"
        return check
    check["repeatable"] = all(bool((a == b).all()) for a, b in zip(*outputs, strict=True))
    # top-k answers values and indices; the indices come last.
    difference = outputs[0][-1].double() - exact.double()
    error_size = float(difference.norm() / exact.double().norm().clamp_min(1e-300))
    check["passed"] = error_size <= tolerance
    if not check["passed"]:
        check["detail"] = f"relative error {error_size:.3g}, allowed {tolerance:.3g}"
    return check


def _leaves(tree: Any) -> list[str]:
    """Names of the tensors of an answer, in the order in which the operator returns them."""
    if isinstance(tree, Mapping):
        name = tree.get("$tensor")
        return [str(name)] if name is not None else [leaf for part in tree.values() for leaf in _leaves(part)]
    return [leaf for part in tree for leaf in _leaves(part)] if isinstance(tree, list) else []


Made = tuple[OperatorCall, Sequence["Tensor"], "Tensor", float, int]


def _gemm(case: Case) -> Made:
    """A product of small whole numbers, exact in fp32 however it is summed."""
    import torch

    rows, inner, columns = case.shape
    kind = getattr(torch, TO_TORCH[case.dtype])
    left = (torch.arange(rows)[:, None] * 5 + torch.arange(inner)[None, :] * 3) % 7 - 3
    right = (torch.arange(inner)[:, None] * 2 + torch.arange(columns)[None, :] * 3) % 5 - 2
    tensors = [left.to(kind), right.to(kind)]
    exact = (left.double() @ right.double()).to(kind)
    return _call("aten.mm.default", case.dtype, tensors), tensors, exact, 0.0, 2 * rows * inner * columns


def _attention(case: Case) -> Made:
    import torch

    batch, heads, length, width = case.shape
    kind = getattr(torch, TO_TORCH[case.dtype])
    generator = torch.Generator().manual_seed(0)
    shape = (batch, heads, length, width)
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64).to(kind) for _ in range(3)]
    query, key, value = (tensor.double() for tensor in tensors)
    exact = torch.softmax(query @ key.transpose(-1, -2) * width**-0.5, -1) @ value
    call = _call("aten.scaled_dot_product_attention.default", case.dtype, tensors)
    return (
        call,
        tensors,
        exact,
        _ATTENTION_TOLERANCE.get(case.dtype, 0.1),
        4 * batch * heads * length**2 * width,
    )


def _topk(case: Case) -> Made:
    """Rows in which k elements are known to stand out, each by another value."""
    import torch

    rows, columns, k = case.shape
    step = max(1, columns // k)
    places = (torch.arange(rows)[:, None] * 97 + torch.arange(k)[None, :] * step) % columns
    scores = torch.zeros(rows, columns).scatter_(
        1, places, (torch.arange(k, 0, -1).float() + 1).expand(rows, k)
    )
    tensors = [scores.to(getattr(torch, TO_TORCH[case.dtype]))]
    return _call("aten.topk.default", case.dtype, tensors, k), tensors, places, 0.0, 0


_MAKERS: dict[str, Callable[[Case], Made]] = {"gemm": _gemm, "attention": _attention, "topk": _topk}


def _call(op: str, dtype: str, tensors: Sequence[Tensor], *scalars: int) -> OperatorCall:
    arguments = [
        {"tensor": {"dtype": dtype, "shape": list(t.shape), "stride": list(t.stride()), "alias": position}}
        for position, t in enumerate(tensors)
    ]
    return OperatorCall(
        op=op,
        args=(*arguments, *scalars),
        dtypes=[dtype] * len(tensors),
        shapes=[list(tensor.shape) for tensor in tensors],
        module="health check",
    )

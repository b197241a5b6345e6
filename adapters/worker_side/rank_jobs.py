"""What ranks do: collectives checked against rank numbers, computations with known answers."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Sequence, Tuple

from day0_worker.dtypes import torch_dtype

if TYPE_CHECKING:
    import torch

    Prepared = Tuple[Callable[[], List[torch.Tensor]], List[torch.Tensor]]

COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_uneven", "broadcast", "send_recv",
)  # fmt: skip
DTYPES = ("fp32", "bf16", "fp16", "fp64", "int64")
COMPUTE = ("gemm", "attention", "topk")

# Relative L2 error against fp64 that a right attention kernel stays far below: measured on CPUs 3e-3 in
# bf16, 4e-4 in fp16, 3e-7 in fp32. A wrong mask or scale is off by more than 1e-1.
_ATTENTION_TOLERANCE = {"fp64": 1e-12, "fp32": 1e-5, "fp16": 4e-3, "bf16": 3e-2}


class Rank:
    """One rank at work.

    Attributes:
        rank: its number.
        world_size: number of ranks.
        device: torch device it computes on.
        mark: told the name of each step before the rank enters it.
    """

    def __init__(self, rank: int, world_size: int, device: str, mark: Callable[[str], None]) -> None:
        self.rank, self.world_size, self.device, self.mark = rank, world_size, device, mark

    def synchronize(self) -> None:
        """Waits until the device has done all its work."""
        if not self.device.startswith("cpu"):
            import torch

            torch.accelerator.synchronize()


def run_job(job: Mapping[str, Any], rank: Rank) -> List[Dict[str, Any]]:
    """All checks of a job on this rank.

    Args:
        job: `{"job": "collectives", "operations": [...], "dtypes": [...], "elements": [...], "samples":
            5}` or `{"job": "compute", "cases": [{"operation": "gemm", "shape": [m, k, n], "dtype": "bf16"},
            {"operation": "attention", "shape": [batch, heads, length, head_dim], "dtype": ...},
            {"operation": "topk", "shape": [rows, columns, k], "dtype": ...}], "samples": 3}`.
        rank: who runs it.

    Returns:
        A check each: `name`, `operation`, `dtype`, `passed`, `detail`, `seconds` (a list of samples);
        collectives also `elements` and `bytes` per rank; computations also `shape`, `flops`,
        `relative_error`, `repeatable`.
    """
    samples = int(job.get("samples", 3))
    if job["job"] == "compute":
        return [_compute(case, rank, samples) for case in job["cases"]]
    return [
        _collective(operation, dtype, int(elements), rank, samples)
        for operation in job.get("operations", COLLECTIVES)
        for dtype in job.get("dtypes", ("fp32", "bf16"))
        for elements in job.get("elements", (1024, 2**20))
        if rank.world_size > 1 or operation != "send_recv"
    ]


def _collective(operation: str, dtype: str, elements: int, rank: Rank, samples: int) -> Dict[str, Any]:
    import torch.distributed as dist

    name = f"{operation} {dtype} {elements}"
    rank.mark(name)
    check: Dict[str, Any] = {
        "name": name, "operation": operation, "dtype": dtype, "elements": elements,
        "bytes": elements * torch_dtype(dtype).itemsize, "passed": False, "detail": "", "seconds": [],
    }  # fmt: skip
    try:
        work, expected = _PREPARE[operation](rank, torch_dtype(dtype), elements)
        rank.mark(f"{name}, data ready")
        for _ in range(samples):
            dist.barrier()
            rank.synchronize()
            began = time.perf_counter()
            outputs = work()
            rank.synchronize()
            check["seconds"].append(time.perf_counter() - began)
            check["detail"] = check["detail"] or _difference(outputs, expected)
        check["passed"] = not check["detail"]
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        check["detail"] = f"{type(error).__name__}: {error}"[:500]
    return check


def _values(rank: int, count: int, rank_world: int, dtype: "torch.dtype", device: str) -> "torch.Tensor":
    """What a rank holds: small whole numbers, so that their sum over all ranks is exact even in bf16."""
    import torch

    modulus = max(2, 256 // rank_world)
    return ((torch.arange(count) * 7 + rank * 3) % modulus).to(dtype).to(device)


def _all(rank: Rank, count: int, dtype: "torch.dtype") -> List["torch.Tensor"]:
    return [_values(other, count, rank.world_size, dtype, "cpu") for other in range(rank.world_size)]


def _own(rank: Rank, count: int, dtype: "torch.dtype") -> "torch.Tensor":
    return _values(rank.rank, count, rank.world_size, dtype, rank.device)


def _all_reduce(rank: Rank, dtype: "torch.dtype", count: int) -> "Prepared":
    import torch
    import torch.distributed as dist

    own = _own(rank, count, dtype)
    into = own.clone()

    def work() -> List["torch.Tensor"]:
        into.copy_(own)
        dist.all_reduce(into)
        return [into]

    return work, [torch.stack([part.double() for part in _all(rank, count, dtype)]).sum(0).to(dtype)]


def _all_gather(rank: Rank, dtype: "torch.dtype", count: int) -> "Prepared":
    import torch
    import torch.distributed as dist

    own = _own(rank, count, dtype)

    def work() -> List["torch.Tensor"]:
        into = [torch.zeros_like(own) for _ in range(rank.world_size)]
        dist.all_gather(into, own)
        return into

    return work, _all(rank, count, dtype)


def _reduce_scatter(rank: Rank, dtype: "torch.dtype", count: int) -> "Prepared":
    import torch
    import torch.distributed as dist

    part = max(1, count // rank.world_size)
    own = _own(rank, part * rank.world_size, dtype)

    def work() -> List["torch.Tensor"]:
        into = torch.zeros(part, dtype=dtype, device=rank.device)
        dist.reduce_scatter(into, list(own.clone().chunk(rank.world_size)))
        return [into]

    total = torch.stack([each.double() for each in _all(rank, part * rank.world_size, dtype)]).sum(0)
    return work, [total.to(dtype).chunk(rank.world_size)[rank.rank]]


def _all_to_all(rank: Rank, dtype: "torch.dtype", count: int) -> "Prepared":
    part = max(1, count // rank.world_size)
    return _exchange(rank, dtype, [[part] * rank.world_size for _ in range(rank.world_size)])


def _all_to_all_uneven(rank: Rank, dtype: "torch.dtype", count: int) -> "Prepared":
    unit = max(1, count // rank.world_size**2)
    world = rank.world_size
    # Row: sender, column: receiver. Some pairs exchange nothing, as tokens routed to experts do.
    return _exchange(
        rank,
        dtype,
        [[unit * ((row + 2 * column) % world) for column in range(world)] for row in range(world)],
    )


def _exchange(rank: Rank, dtype: "torch.dtype", counts: Sequence[Sequence[int]]) -> "Prepared":
    import torch
    import torch.distributed as dist

    me, world = rank.rank, rank.world_size
    sends, receives = list(counts[me]), [counts[other][me] for other in range(world)]
    own = _values(me, sum(sends), world, dtype, rank.device)

    def work() -> List["torch.Tensor"]:
        into = torch.zeros(sum(receives), dtype=dtype, device=rank.device)
        dist.all_to_all_single(into, own, receives, sends)
        return [into]

    pieces = [
        torch.split(_values(other, sum(counts[other]), world, dtype, "cpu"), list(counts[other]))[me]
        for other in range(world)
    ]
    return work, [torch.cat(pieces)]


def _broadcast(rank: Rank, dtype: "torch.dtype", count: int) -> "Prepared":
    import torch.distributed as dist

    source = rank.world_size - 1
    own = _own(rank, count, dtype)
    into = own.clone()

    def work() -> List["torch.Tensor"]:
        into.copy_(own)
        dist.broadcast(into, src=source)
        return [into]

    return work, [_values(source, count, rank.world_size, dtype, "cpu")]


def _send_recv(rank: Rank, dtype: "torch.dtype", count: int) -> "Prepared":
    import torch
    import torch.distributed as dist

    after, before = (rank.rank + 1) % rank.world_size, (rank.rank - 1) % rank.world_size
    own = _own(rank, count, dtype)

    def work() -> List["torch.Tensor"]:
        outputs = []
        for target, source in ((after, before), (before, after)):
            into = torch.zeros_like(own)
            operations = [dist.P2POp(dist.isend, own, target), dist.P2POp(dist.irecv, into, source)]
            for request in dist.batch_isend_irecv(operations):
                request.wait()
            outputs.append(into)
        return outputs

    everyone = _all(rank, count, dtype)
    return work, [everyone[before], everyone[after]]


_PREPARE: Dict[str, Callable[[Rank, "torch.dtype", int], "Prepared"]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "all_to_all_uneven": _all_to_all_uneven,
    "broadcast": _broadcast,
    "send_recv": _send_recv,
}


def _difference(outputs: Sequence["torch.Tensor"], expected: Sequence["torch.Tensor"]) -> str:
    """What differs, or nothing."""
    for index, wanted in enumerate(expected):
        got = outputs[index].cpu()
        wrong = (got != wanted).nonzero()
        if len(wrong):
            place = int(wrong[0])
            return (
                f"{len(wrong)} of {wanted.numel()} values of part {index} are wrong: element {place} is "
                f"{got[place].item()}, expected {wanted[place].item()}"
            )
    return ""


def _compute(case: Mapping[str, Any], rank: Rank, samples: int) -> Dict[str, Any]:
    operation, dtype, shape = case["operation"], case["dtype"], [int(size) for size in case["shape"]]
    name = f"{operation} {dtype} {'x'.join(str(size) for size in shape)}"
    rank.mark(name)
    check: Dict[str, Any] = {
        "name": name, "operation": operation, "dtype": dtype, "shape": shape, "passed": False, "detail": "",
        "seconds": [], "flops": 0, "relative_error": 0.0, "repeatable": True,
    }  # fmt: skip
    try:
        work, expected, tolerance, check["flops"] = _CASES[operation](shape, dtype, rank.device)
        first = None
        for _ in range(max(2, samples)):
            rank.synchronize()
            began = time.perf_counter()
            output = work()
            rank.synchronize()
            check["seconds"].append(time.perf_counter() - began)
            first = output.cpu() if first is None else first
            check["repeatable"] = check["repeatable"] and bool((output.cpu() == first).all())
        error = _relative(first, expected)
        check["relative_error"] = error if math.isfinite(error) else "Infinity"
        check["passed"] = error <= tolerance
        if not check["passed"]:
            check["detail"] = f"relative error {error:.3g}, allowed {tolerance:.3g}"
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as failure:
        check["detail"] = f"{type(failure).__name__}: {failure}"[:500]
    return check


def _relative(output: Any, expected: "torch.Tensor") -> float:
    """L2 norm of the difference over that of the expected values; infinite where the output is not finite."""
    difference = float(
        (output.double() - expected.double()).norm() / expected.double().norm().clamp_min(1e-300)
    )
    return difference if math.isfinite(difference) else math.inf


def _gemm(shape: Sequence[int], dtype: str, device: str) -> Any:
    """A product of small whole numbers: partial sums are exact in fp32, so the answer is known to the bit.

    Rows repeat after 217, columns after 185 (least common multiples of the moduli), so the exact product
    of any size comes from a small one.
    """
    import torch

    rows, inner, columns = shape
    kind = torch_dtype(dtype)

    def left(count: int) -> "torch.Tensor":
        i, k = torch.arange(count)[:, None], torch.arange(inner)[None, :]
        return (i * 31 + k * 17 + (i % 31) * (k % 13)) % 7 - 3

    def right(count: int) -> "torch.Tensor":
        k, n = torch.arange(inner)[:, None], torch.arange(count)[None, :]
        return (k * 13 + n * 29 + (n % 37) * (k % 11)) % 5 - 2

    small = left(min(rows, 217)).double() @ right(min(columns, 185)).double()
    exact = small[torch.arange(rows) % 217][:, torch.arange(columns) % 185].to(kind)
    a, b = left(rows).to(kind).to(device), right(columns).to(kind).to(device)
    return lambda: a @ b, exact, 0.0, 2 * rows * inner * columns


def _attention(shape: Sequence[int], dtype: str, device: str) -> Any:
    """Causal attention of fixed random inputs against fp64 on the CPU, by its definition."""
    import torch

    batch, heads, length, width = shape
    kind = torch_dtype(dtype)
    generator = torch.Generator().manual_seed(0)
    made = [
        torch.randn(batch, heads, length, width, generator=generator, dtype=torch.float64) for _ in range(3)
    ]
    query, key, value = (part.to(kind) for part in made)
    weights = query.double() @ key.double().transpose(-1, -2) * width**-0.5
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    exact = weights.masked_fill(hidden, float("-inf")).softmax(-1) @ value.double()
    placed = [part.to(device) for part in (query, key, value)]
    flops = 2 * batch * heads * length * length * width

    def work() -> "torch.Tensor":
        return torch.nn.functional.scaled_dot_product_attention(
            placed[0], placed[1], placed[2], is_causal=True
        )

    return work, exact, _ATTENTION_TOLERANCE.get(dtype, 0.1), flops


def _topk(shape: Sequence[int], dtype: str, device: str) -> Any:
    """Indices of the k largest of a row in which k elements are known to stand out, each by another value."""
    import torch

    rows, columns, k = shape
    step = max(1, columns // k)
    places = (torch.arange(rows)[:, None] * 97 + torch.arange(k)[None, :] * step) % columns
    scores = torch.zeros(rows, columns)
    scores.scatter_(1, places, (torch.arange(k, 0, -1).float() + 1).expand(rows, k))
    placed = scores.to(torch_dtype(dtype)).to(device)
    return lambda: torch.topk(placed, k, dim=-1, sorted=True).indices, places, 0.0, 0


_CASES: Dict[str, Callable[[Sequence[int], str, str], Any]] = {
    "gemm": _gemm,
    "attention": _attention,
    "topk": _topk,
}

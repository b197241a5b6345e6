"""Real inputs for an encoded operator call: valid for what the operator does, the same for the same seed."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import torch

from day0_worker.operators import call_dtype, resolve, with_strides

SPREADS = ("unit", "wide", "large", "odd", "masked")
"""Ranges of floating inputs: standard normal; magnitudes from 1e-3 to 20 with either sign, in which a
function that is clamped or approximated outside a small range shows it; whole numbers up to 3000, far beyond
what activations reach, mixed with tiny ones; zeros, infinities and NaN among ordinary values; minus infinity
in a third of the places, as a mask leaves it, and never in all along `dim`."""

_CHOSEN = {
    "large": (1e-4, -1e-4, 1.0, -1.0, 48.0, -48.0, 192.0, -192.0, 3072.0, -3072.0),
    "odd": (0.0, -0.0, 0.5, -0.5, 2.0, -2.0, math.inf, -math.inf, math.nan),
}
"""Values that every floating dtype of half precision or more holds without rounding, but for 1e-4."""

_EXACT_INTEGERS = 256  # consecutive integers that bfloat16 holds exactly
_WIDEST = 20.0

_POSITIVE = frozenset(
    ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "lgamma", "digamma", "pow", "float_power"]
)
_NONZERO = frozenset(["div", "reciprocal", "remainder", "fmod", "floor_divide", "true_divide", "divide"])
_WITHIN_ONE = frozenset(["acos", "asin", "atanh", "erfinv", "arccos", "arcsin", "arctanh"])
_NARROW = frozenset(["pow", "exp2", "cosh", "sinh", "prod", "cumprod", "float_power", "expm1"])
_ORDERING = frozenset(
    ["sort", "argsort", "topk", "argmax", "argmin", "max", "min",
     "kthvalue", "median", "aminmax", "mode", "cummax", "cummin"]
)  # fmt: skip
_SCATTERING = frozenset(["scatter", "scatter_", "index_copy", "index_copy_", "index_fill", "index_fill_"])
_PROBABILITIES = frozenset(("multinomial", "bernoulli", "bernoulli_"))


class Slot:
    """One distinct tensor of a call.

    Attributes:
        name: of the schema argument it first stands in.
        position: within that argument, where it is a list.
        facts: dtype, shape, stride as encoded.
    """

    def __init__(self, name: str, position: int, facts: Mapping[str, Any]) -> None:
        self.name = name
        self.position = position
        self.facts = facts
        self.shape = [int(size) for size in facts["shape"]]
        self.dtype = call_dtype(facts["dtype"])


class Request:
    """A call with what generators need to know of it.

    Attributes:
        base: operator name without namespace, overload and trailing underscore.
        values: schema argument -> encoded value.
        slots: distinct tensors, by alias.
        spread: out of `SPREADS`.
        generator: of random numbers.
    """

    def __init__(self, call: Mapping[str, Any], seed: int, spread: str) -> None:
        name = call["op"].split(".")[1]
        self.name = name
        self.base = name if name.startswith("_") else name.rstrip("_")
        self.values = _by_name(call)
        self.slots = _slots(self.values)
        self.spread = spread
        self.generator = torch.Generator().manual_seed(seed)

    def slot(self, *names: str) -> Optional[Slot]:
        """The first tensor that stands in one of these arguments."""
        return next((slot for slot in self.slots if slot.name in names), None)

    def number(self, name: str, default: int) -> int:
        """An integer argument."""
        value = self.values.get(name)
        return default if value is None or isinstance(value, (list, dict)) else int(value)


def make_inputs(call: Mapping[str, Any], seed: int = 0, spread: str = "unit") -> List[torch.Tensor]:
    """The tensors of a call, in order of their `alias` numbers, on the CPU.

    Args:
        call: an `OperatorCall` as JSON.
        seed: equal seeds give equal tensors.
        spread: out of `SPREADS`; integers, masks and indices do not depend on it.
    """
    request = Request(call, seed, spread)
    special = _WHOLE_CALLS.get(request.base)
    ready: Dict[int, torch.Tensor] = special(request) if special else {}
    tensors = []
    for alias, slot in enumerate(request.slots):
        tensor = ready.get(alias)
        if tensor is None:
            tensor = _one(request, slot)
        tensors.append(with_strides(tensor.to(slot.dtype), slot.facts["stride"]))
    return tensors


def _by_name(call: Mapping[str, Any]) -> Dict[str, Any]:
    schema = [argument.name for argument in resolve(call["op"])._schema.arguments]
    values = dict(zip(schema, call.get("args", ()), strict=False))
    values.update(call.get("kwargs", {}))
    return values


def _slots(values: Mapping[str, Any]) -> List[Slot]:
    found: Dict[int, Slot] = {}
    for name, value in values.items():
        for position, item in enumerate(value if isinstance(value, (list, tuple)) else [value]):
            if isinstance(item, dict) and "tensor" in item:
                facts = item["tensor"]
                found.setdefault(facts["alias"], Slot(name, position, facts))
    return [found[alias] for alias in sorted(found)]


def _one(request: Request, slot: Slot) -> torch.Tensor:
    if slot.name in ("index", "indices"):
        return _index(request, slot)
    if slot.dtype is torch.bool:
        return torch.rand(slot.shape, generator=request.generator) < 0.5
    if slot.dtype.is_complex:
        return torch.complex(_floats(request, slot), _floats(request, slot))
    return _floats(request, slot) if slot.dtype.is_floating_point else _integers(request, slot)


def _integers(request: Request, slot: Slot) -> torch.Tensor:
    if request.base in _ORDERING:
        return _distinct(request, slot.shape, request.number("dim", -1))
    # From 1: also divisors and shifts are valid; small: sums and products fit the smallest integer type.
    low = 0 if request.base in ("nonzero", "any", "all", "bincount", "histc") else 1
    high = max(2, request.number("bins", 11))
    return torch.randint(low, high, slot.shape, generator=request.generator)


def _floats(request: Request, slot: Slot) -> torch.Tensor:
    if request.base in _ORDERING:
        return _distinct(request, slot.shape, request.number("dim", -1))
    normal = torch.randn(slot.shape, generator=request.generator)
    base = request.base
    if base in _PROBABILITIES:
        return torch.rand(slot.shape, generator=request.generator)
    if base in _WITHIN_ONE:
        return torch.rand(slot.shape, generator=request.generator) * 1.9 - 0.95
    if base == "nonzero":
        return torch.where(normal > 0, normal, torch.zeros(()))
    if request.spread in _CHOSEN and base not in _NARROW:
        values = torch.tensor(_CHOSEN[request.spread])
        normal = values[torch.randint(0, len(values), slot.shape, generator=request.generator)]
    elif request.spread == "masked":
        seen = torch.rand(slot.shape, generator=request.generator) < 0.7
        if slot.shape:
            seen.narrow(request.number("dim", -1), 0, 1).fill_(True)
        return torch.where(seen, normal, -math.inf)
    elif request.spread == "wide" and base not in _NARROW:
        exponent = torch.rand(slot.shape, generator=request.generator)
        magnitude = torch.exp(math.log(1e-3) + exponent * (math.log(_WIDEST) - math.log(1e-3)))
        normal = torch.sign(normal) * magnitude
    if base in _POSITIVE or (base == "polar" and slot.name == "abs") or "var" in slot.name.split("_"):
        return normal.abs() + 0.01
    if "scale" in slot.name:
        return normal.abs() + 0.1
    if base in ("prod", "cumprod"):
        return 1 + normal / 16
    if base in _NONZERO and slot.name != "self":
        return torch.where(normal < 0, normal - 0.25, normal + 0.25)
    return normal


def _distinct(request: Request, shape: Sequence[int], dim: int) -> torch.Tensor:
    """Values without ties along `dim` (over all where that fits), so that positions are decided too."""
    total = math.prod(shape)
    if total <= _EXACT_INTEGERS or not shape:
        return torch.randperm(total, generator=request.generator).reshape(shape).float() - total // 2
    order = torch.rand(shape, generator=request.generator).argsort(dim=dim)
    return order.float() - shape[dim] // 2


def _index(request: Request, slot: Slot) -> torch.Tensor:
    if slot.dtype in (torch.bool, torch.uint8):
        return torch.rand(slot.shape, generator=request.generator) < 0.5
    source = request.slot("self", "weight", "input")
    if source is None:
        return _integers(request, slot)
    if request.base == "embedding":
        limit = source.shape[0]
    elif request.base == "take":
        limit = math.prod(source.shape)
    elif slot.name == "indices":
        limit = source.shape[_indexed_dim(request, slot)]
    else:
        limit = source.shape[request.number("dim", 0)] if source.shape else 1
    if request.base in _SCATTERING or request.name.startswith(("index_put", "_index_put")):
        return _unique_index(request, slot, limit)
    return torch.randint(0, max(limit, 1), slot.shape, generator=request.generator)


def _indexed_dim(request: Request, slot: Slot) -> int:
    """The dimension a tensor of an index list stands for: a mask before it takes as many as it has."""
    dim = 0
    for item in request.values[slot.name][: slot.position]:
        facts = item.get("tensor") if isinstance(item, dict) else None
        dim += len(facts["shape"]) if facts and facts["dtype"] in ("bool", "uint8") else 1
    return dim


def _unique_index(request: Request, slot: Slot, limit: int) -> torch.Tensor:
    """Indices without repeats along the scattered dimension: a place written twice has no defined value."""
    dim = request.number("dim", 0) if slot.shape else 0
    if not slot.shape or slot.shape[dim] > limit:
        return torch.randint(0, max(limit, 1), slot.shape, generator=request.generator)
    lanes = list(slot.shape)
    lanes[dim] = limit
    return torch.rand(lanes, generator=request.generator).argsort(dim=dim).narrow(dim, 0, slot.shape[dim])


def _grouped(request: Request) -> Dict[int, torch.Tensor]:
    """Ends of the groups along the rows, rising to their number; of three groups one stays empty."""
    offsets = request.slot("offs")
    rows = request.slots[0].shape[-2 if len(request.slots[0].shape) == 2 else -1]
    if offsets is None or not offsets.shape:
        return {}
    groups = offsets.shape[0]
    ends = torch.randint(0, rows + 1, (groups,), generator=request.generator).sort().values
    ends[-1] = rows
    if groups > 2:
        ends[1] = ends[0]
    return {request.slots.index(offsets): ends}


def _scaled(request: Request) -> Dict[int, torch.Tensor]:
    """Scales around one, as quantisation gives them: positive."""
    found = _grouped(request) if request.slot("offs") is not None else {}
    for slot in (request.slot("scale_a"), request.slot("scale_b")):
        if slot is not None:
            found[request.slots.index(slot)] = torch.rand(slot.shape, generator=request.generator) + 0.5
    return found


def _attention(request: Request) -> Dict[int, torch.Tensor]:
    """Masks in which every query sees at least one key."""
    mask = request.slot("attn_mask", "attn_bias")
    if mask is None:
        return {}
    seen = torch.rand(mask.shape, generator=request.generator) < 0.7
    seen[..., 0] = True
    if mask.dtype is not torch.bool:
        return {request.slots.index(mask): torch.where(seen, 0.0, -math.inf)}
    return {request.slots.index(mask): seen}


def _triangular(request: Request) -> Dict[int, torch.Tensor]:
    """A well-conditioned triangular system."""
    first = request.slots[0]
    size = first.shape[-1]
    noise = torch.randn(first.shape, generator=request.generator) / (4 * size)
    return {0: torch.triu(noise) + torch.tril(noise) + 2 * torch.eye(size)}


def _repeats(request: Request) -> Dict[int, torch.Tensor]:
    """Repeats that add up to `output_size` where it is given."""
    slot = request.slot("repeats")
    if slot is None or not slot.shape:
        return {}
    repeats = torch.ones(slot.shape, dtype=torch.int64)
    total = request.number("output_size", 0)
    if total:
        repeats = torch.full(slot.shape, total // slot.shape[0])
        repeats[0] += total - int(repeats.sum())
    return {request.slots.index(slot): repeats}


def _sorted_sequence(request: Request) -> Dict[int, torch.Tensor]:
    slot = request.slot("sorted_sequence", "boundaries")
    if slot is None:
        return {}
    return {request.slots.index(slot): torch.randn(slot.shape, generator=request.generator).sort().values}


def _exponent(request: Request) -> Dict[int, torch.Tensor]:
    """Exponents in [0, 1]: the base may be a number such as 10000."""
    slot = request.slot("exponent")
    if slot is None or not slot.dtype.is_floating_point:
        return {}
    return {request.slots.index(slot): torch.rand(slot.shape, generator=request.generator)}


_WHOLE_CALLS: Dict[str, Callable[[Request], Dict[int, torch.Tensor]]] = {
    "_grouped_mm": _grouped,
    "_scaled_grouped_mm": _scaled,
    "_scaled_mm": _scaled,
    "scaled_dot_product_attention": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "linalg_solve_triangular": _triangular,
    "repeat_interleave": _repeats,
    "searchsorted": _sorted_sequence,
    "bucketize": _sorted_sequence,
    "pow": _exponent,
}

"""What lowering a role to a precision means: how its weights and the inputs of its products are held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from day0.adapters.base.dtypes import BITS
from day0.adapters.base.errors import Day0Error

from .fake_precision import Scheme, stored_bytes


class PrecisionError(Day0Error):
    """A precision that cannot be tried."""

    default_code = "E464"


@dataclass(frozen=True)
class Lowering:
    """One precision.

    Attributes:
        dtype: short name.
        matrices: how weights that products sum over, or that rows are looked up in, are held.
        vectors: how all other weights are held; None: as they were, as engines leave biases. A role that has
            no matrix at all, such as norms, is held so that it has one scale for each vector.
        inputs: how each token that is multiplied with such a matrix is rounded, on the fly.
        text: both, for people.
    """

    dtype: str
    matrices: Scheme
    vectors: Scheme | None
    inputs: Scheme
    text: str

    def bytes_of(self, shape: Sequence[int], axis: int | None, base: str, *, alone: bool) -> int:
        """Bytes of a parameter with its scales.

        Args:
            shape: of it.
            axis: that products sum over; None: no matrix.
            base: short name of the dtype that it has where it is not lowered.
            alone: whether its role has no matrix.
        """
        scheme = self.scheme(axis, alone=alone)
        if scheme is None:
            return -(-_count(shape) * BITS[base] // 8)
        return stored_bytes(shape, scheme, -1 if axis is None else axis)

    def scheme(self, axis: int | None, *, alone: bool) -> Scheme | None:
        """How a parameter is held; None: as it was. Arguments: see `bytes_of`."""
        if axis is not None:
            return self.matrices
        return Scheme(self.dtype, "tensor") if alone and self.vectors is None else self.vectors


def _plain(dtype: str) -> Lowering:
    cast = Scheme(dtype, "cast")
    return Lowering(dtype, cast, cast, cast, f"weights and inputs of products cast to {dtype}")


def _scaled(dtype: str) -> Lowering:
    """W8A8 as vLLM runs it: weights per output channel, activations per token while they come."""
    channel = Scheme(dtype, "channel")
    return Lowering(dtype, channel, None, channel, "weights per channel, inputs per token")


LOWERINGS: Mapping[str, Lowering] = {
    "bf16": _plain("bf16"),
    "fp16": _plain("fp16"),
    "fp8_e4m3": _scaled("fp8_e4m3"),
    "fp8_e5m2": _scaled("fp8_e5m2"),
    "int8": _scaled("int8"),
    "int4": Lowering(
        "int4", Scheme("int4", "group", 128), None, Scheme("bf16", "cast"),
        "weights in groups of 128, inputs in bf16",
    ),
}  # fmt: skip
"""Precisions that can be tried."""
_ALIASES = {"fp8": "fp8_e4m3"}


def precisions(text: str) -> tuple[str, ...]:
    """The names in a list with commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def lowerings_of(names: Sequence[str]) -> tuple[Lowering, ...]:
    """The precisions of these names, each once; `fp8` is fp8_e4m3.

    Raises:
        PrecisionError: E464, a name is none of them.
    """
    found: dict[str, Lowering] = {}
    for name in names:
        dtype = _ALIASES.get(name, name)
        if dtype not in LOWERINGS:
            known = ", ".join([*_ALIASES, *LOWERINGS])
            raise PrecisionError(f"{name!r} is no precision that can be tried; name some of {known}")
        found[dtype] = LOWERINGS[dtype]
    return tuple(found.values())


def _count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count

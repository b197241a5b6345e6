"""Numbers as quantised checkpoints pack them, in a dtype of torch that holds them exactly.

Bytes of a word are taken in little-endian order, as safetensors stores them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Tuple

from day0_worker.scratch import cast, scratch

if TYPE_CHECKING:
    import torch

Tile = Tuple[int, int, int, int]
"""First and past-the-last row, first and past-the-last column."""
Numbers = Callable[[Tile], "torch.Tensor"]
"""The stored numbers of a tile, good until those of the next, but for a power of two known beside them."""

_LEAST_OF_E4M3 = 8  # the exponent of fp8_e4m3 counts from 2^-7, that of fp16 from 2^-15


def numbers_of(weight: "torch.Tensor") -> Tuple[int, Numbers]:
    """Numbers of a matrix that holds one an element, and the power of two that they lack.

    fp8 becomes fp16 by moving its bits, several times faster than torch's conversion; NaN stays NaN.

    Raises:
        ValueError: the dtype is neither fp8 nor int8.
    """
    import torch

    if weight.dtype == torch.int8:
        return 0, lambda tile: _cut(weight, tile)
    if weight.dtype == torch.float8_e4m3fn:
        signed = weight.view(torch.int8)
        return _LEAST_OF_E4M3, lambda tile: _from_e4m3(_cut(signed, tile))
    if weight.dtype == torch.float8_e5m2:
        octets = weight.view(torch.uint8)
        return 0, lambda tile: _from_e5m2(_cut(octets, tile))
    if weight.is_floating_point() and weight.element_size() == 1:
        return 0, lambda tile: _cut(weight, tile).to(torch.float32)
    raise ValueError(f"weights of {weight.dtype} are no scaled numbers")


def halves(octets: "torch.Tensor") -> "torch.Tensor":
    """int16 [rows, n] for uint8 [rows, n]: its bytes are the lower and the upper half of each, times 16.

    Good until this thread calls it again.
    """
    import torch

    wide = cast(octets, torch.int16, "wide")
    both = scratch("halves", wide.shape, wide.dtype, wide.device)
    torch.bitwise_left_shift(wide, 8, out=both)
    return both.bitwise_or_(wide.bitwise_left_shift_(4)).bitwise_and_(-0x0F10)


def e2m1(octets: "torch.Tensor") -> "torch.Tensor":
    """fp16 [rows, 2 n] for uint8 [rows, n]: E2M1 numbers over 2^14, the lower half of a byte first.

    Good until this thread calls it again.
    """
    import torch

    # 1 sign, 2 exponent and 1 mantissa bits go to their places in fp16, whose exponent counts 14 lower.
    wide = cast(halves(octets).view(torch.int8), torch.int16, "numbers")
    return wide.bitwise_left_shift_(5).bitwise_and_(-0x7200).view(torch.float16)


def above_least(octets: "torch.Tensor", bits: int) -> Tuple["torch.Tensor", int]:
    """int8 for uint8 [rows, n]: numbers of 2, 4 or 8 bits less 2^(bits-1), and the power of two they lack.

    The numbers are good until this thread calls it again.

    Raises:
        ValueError: another width.
    """
    import torch

    if bits == 8:
        return octets.bitwise_xor(0x80).view(torch.int8), 0
    if bits == 4:
        return halves(octets).bitwise_xor_(-0x7F80).view(torch.int8), -4
    if bits == 2:
        wide = octets.to(torch.int32)
        spread = wide | wide << 6 | wide << 12 | wide << 18
        return spread.bitwise_and_(0x03030303).view(torch.int8).sub_(2), 0
    raise ValueError(f"numbers of {bits} bits are not packed in a way that is known")


def along_rows(words: "torch.Tensor", bits: int, tile: Tile) -> "torch.Tensor":
    """int32 tile of [rows, columns] out of int32 words [rows * bits / 32, columns], lowest bits first.

    Good until this thread calls it, or its like, again.
    """
    import torch

    top, bottom, left, right = tile
    per_word = 32 // bits
    part = words[top // per_word : -(-bottom // per_word), left:right].unsqueeze(1)
    places = torch.arange(0, 32, bits, dtype=torch.int32).view(1, -1, 1)
    moved = scratch("words", (len(part), per_word, right - left), part.dtype, part.device)
    torch.bitwise_right_shift(part, places, out=moved)
    return moved.bitwise_and_(2**bits - 1).view(-1, right - left)[: bottom - top]


def along_columns(words: "torch.Tensor", order: Tuple[int, ...], tile: Tile) -> "torch.Tensor":
    """int32 tile of [rows, columns] out of int32 words [rows, columns / n], the n in places of that order.

    Good until this thread calls it, or its like, again.
    """
    import torch

    top, bottom, left, right = tile
    bits = 32 // len(order)
    part = words[top:bottom, left // len(order) : -(-right // len(order))].unsqueeze(2)
    places = torch.tensor(order, dtype=torch.int32) * bits
    moved = scratch("words", (*part.shape[:2], len(order)), part.dtype, part.device)
    torch.bitwise_right_shift(part, places, out=moved)
    return moved.bitwise_and_(2**bits - 1).view(bottom - top, -1)[:, : right - left]


def _cut(weight: "torch.Tensor", tile: Tile) -> "torch.Tensor":
    top, bottom, left, right = tile
    return weight[top:bottom, left:right]


def _from_e4m3(signed: "torch.Tensor") -> "torch.Tensor":
    import torch

    size = scratch("size", signed.shape, signed.dtype, signed.device)
    if int(torch.bitwise_and(signed, 0x7F, out=size).max()) == 0x7F:  # NaN of either sign
        return signed.view(torch.float8_e4m3fn).to(torch.float32).mul_(2.0**-_LEAST_OF_E4M3)
    wide = cast(signed, torch.int16, "wide")
    return wide.bitwise_left_shift_(7).bitwise_and_(-0x4080).view(torch.float16)


def _from_e5m2(octets: "torch.Tensor") -> "torch.Tensor":
    import torch

    return cast(octets, torch.int16, "wide").bitwise_left_shift_(8).view(torch.float16)

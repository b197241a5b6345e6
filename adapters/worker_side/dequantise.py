"""Weights of quantised checkpoints as the numbers that they stand for.

An expression `{"dequantize": SCHEME, "weight": X, "scale": Y, ...}` gives fp32, rounded once more where it is
filled into another dtype. Blocks and groups at the edges of a matrix are cut off.

- `fp8_block` (`block` [rows, columns], a scale for each): weight * scale. One scale a row is a block of
  [1, columns], one for all a block of [rows, columns]. `inference/kernel.py` of DeepSeek-V3;
  `Fp8Dequantize` of transformers; `dequantize` of compressed-tensors.
- `int8_block` (`block`, maybe `zero_point` like `scale`): (weight - zero point) * scale. compressed-tensors.
- `int_packed` (`bits`, `columns`, `group`, maybe `zero_point` and `stored_shape`): numbers of 2, 4 or 8 bits
  above -2^(bits-1) in int32, lowest bits first; (number - zero point) * scale of its group of columns.
  Zero points in int32 are packed along the rows. `unpack_from_int32` of compressed-tensors.
- `mxfp4`: two E2M1 numbers a byte, the lower half first, in groups of 32 whose scale is 2^(byte - 127). OCP
  Microscaling 1.0; `convert_moe_packed_tensors` of transformers without its transposition.
- `gptq` (`bits`, `group`, `plus_one`, maybe `groups`): [input / n, output], packed along the input;
  transposed (number - zero point) * scale. Zero points are stored less one where `plus_one`.
- `awq` (`group`): [input, output / 8], packed along the output in the order 0 2 4 6 1 3 5 7; the same.

Leading dimensions (experts) are worked off one by one. Memory: the result, the scales in fp32 and a few
tiles a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Tuple

from day0_worker.packed_numbers import Tile, above_least, along_columns, along_rows, e2m1, numbers_of
from day0_worker.scratch import scratch
from day0_worker.tiles import Outs, Product, fill_by_blocks, fill_in_tiles, wide_of

if TYPE_CHECKING:
    import torch

PARTS = ("weight", "scale", "zero_point", "groups", "stored_shape")
"""Keys under which a dequantisation has expressions; the last three may be absent."""

_Parts = Mapping[str, "torch.Tensor"]
_AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)  # where each of eight columns lies in its word


def dequantised_shape(expression: Mapping[str, Any], shape_of: Callable[[Any], List[int]]) -> List[int]:
    """Shape of the result.

    Raises:
        ValueError: the scheme is unknown.
    """
    scheme, shape = expression["dequantize"], shape_of(expression["weight"])
    if scheme in ("fp8_block", "int8_block"):
        return shape
    if scheme == "mxfp4":
        scales = shape_of(expression["scale"])
        return [*scales[:-1], scales[-1] * 32]
    if scheme == "int_packed":
        return [*shape[:-1], expression["columns"]]
    if scheme == "gptq":
        return [*shape[:-2], shape[-1], shape[-2] * 32 // expression["bits"]]
    if scheme == "awq":
        return [*shape[:-2], shape[-1] * 8, shape[-2]]
    raise ValueError(f"scheme {scheme!r} cannot be dequantised")


def dequantise(outs: Outs, expression: Mapping[str, Any], evaluate: Callable[[Any], "torch.Tensor"]) -> None:
    """Fills `outs` with what the expression stands for.

    Args:
        outs: of the shape of the result and any floating dtype, not necessarily contiguous; all but the first
            are rounded from the first.
        expression: see above.
        evaluate: gives the stored tensors.

    Raises:
        ValueError: the parts do not fit each other, or the scheme is unknown.
    """
    if expression["dequantize"] not in _FILLS:
        raise ValueError(f"scheme {expression['dequantize']!r} cannot be dequantised")
    parts = {key: evaluate(expression[key]) for key in PARTS if key in expression}
    stated = parts.pop("stored_shape", None)
    shape = list(outs[0].shape)
    if stated is not None and stated.flatten().tolist() != shape[-stated.numel() :]:
        raise ValueError(f"stored shape {stated.tolist()} of a weight of shape {shape}")
    _fill_each(outs, expression, parts)


def _fill_each(outs: Outs, expression: Mapping[str, Any], parts: _Parts) -> None:
    """Takes leading dimensions apart; a single number, and an order of rows, serve all of them."""
    shape = list(outs[0].shape)
    if len(shape) < 2:
        raise ValueError(f"a quantised weight of shape {shape}")
    if len(shape) == 2:
        _FILLS[expression["dequantize"]](outs, expression, parts)
        return
    for index in range(shape[0]):
        inner: Dict[str, torch.Tensor] = {}
        for key, part in parts.items():
            whole = part.numel() == 1 and part.dim() < 2
            if not whole and part.shape[0] != shape[0]:
                raise ValueError(f"{key} {list(part.shape)} for a weight of shape {shape}")
            inner[key] = part if whole else part[index]
        _fill_each([out[index] for out in outs], expression, inner)


def _scaled(outs: Outs, expression: Mapping[str, Any], parts: _Parts) -> None:
    out, weight, (rows, columns) = outs[0], parts["weight"], expression["block"]
    if weight.shape != out.shape:
        raise ValueError(f"weight {list(weight.shape)} where {list(out.shape)} is needed")
    power, numbers = numbers_of(weight)
    shared = {key: part for key, part in parts.items() if key != "weight"}
    if shared["scale"].numel() == 1 and shared["scale"].dim() == 1:
        shared = {key: part.reshape(()) for key, part in shared.items()}
    fill_by_blocks(outs, numbers, power, (rows, columns), shared)


def _mxfp4(outs: Outs, expression: Mapping[str, Any], parts: _Parts) -> None:
    import torch

    out = outs[0]
    stored = parts["weight"].reshape(out.shape[0], -1).contiguous().view(torch.uint8)
    if parts["weight"].element_size() != 1 or stored.shape[1] * 2 != out.shape[1]:
        raise ValueError(f"blocks {list(parts['weight'].shape)} for a weight of shape {list(out.shape)}")

    def numbers(tile: Tile) -> "torch.Tensor":
        top, bottom, left, right = tile
        return e2m1(stored[top:bottom, left // 2 : right // 2])

    scale = parts["scale"]
    if scale.dtype == torch.uint8:
        scale = (scale.to(torch.float32) - 127).exp2()
    fill_by_blocks(outs, numbers, 14, (1, 32), {"scale": scale}, unit=2)


def _int_packed(outs: Outs, expression: Mapping[str, Any], parts: _Parts) -> None:
    import torch

    out, bits, words = outs[0], expression["bits"], _words(parts["weight"], expression["bits"])
    per_word = 32 // bits
    if list(words.shape) != [out.shape[0], -(-out.shape[1] // per_word)]:
        raise ValueError(f"words {list(words.shape)} of {bits} bits for a weight of {list(out.shape)}")
    octets = words.contiguous().view(torch.uint8)

    def numbers(tile: Tile) -> "torch.Tensor":
        top, bottom, left, right = tile
        part = octets[top:bottom, left * bits // 8 : -(-right * bits // 8)]
        return above_least(part, bits)[0][:, : right - left]

    shared = {"scale": parts["scale"]}
    if "zero_point" in parts:
        shared["zero_point"] = _packed_along_rows(parts["zero_point"], bits, parts["scale"])
    power = above_least(octets[:0], bits)[1]
    fill_by_blocks(outs, numbers, power, (1, expression["group"]), shared, unit=per_word)


def _packed_along_rows(stored: "torch.Tensor", bits: int, scale: "torch.Tensor") -> "torch.Tensor":
    """Zero points like the scales [rows, groups]; other dtypes than int32 are not packed."""
    import torch

    if stored.dtype != torch.int32:
        return stored
    if stored.dim() != 2 or stored.shape[0] != -(-scale.shape[0] * bits // 32):
        raise ValueError(f"zero points {list(stored.shape)} of {bits} bits for scales {list(scale.shape)}")
    numbers, power = above_least(stored.t().contiguous().view(torch.uint8), bits)
    return (numbers.to(torch.float32) * 2.0**power)[:, : scale.shape[0]].t()


def _gptq(outs: Outs, expression: Mapping[str, Any], parts: _Parts) -> None:
    import torch

    out, bits, words = outs[0], expression["bits"], _words(parts["weight"], expression["bits"])
    rows, columns = out.shape[1], out.shape[0]
    if list(words.shape) != [rows * bits // 32, columns]:
        raise ValueError(f"words {list(words.shape)} of {bits} bits for a weight of {list(out.shape)}")
    order = tuple(range(32 // bits))
    zero = along_columns(_words(parts["zero_point"], bits), order, (0, parts["scale"].shape[0], 0, columns))
    if expression["plus_one"]:
        if bool((zero == 2**bits - 1).any()):  # zero less one for some kernels, 2^bits for others
            raise ValueError("a zero point that wraps around is read differently by different stacks")
        zero = zero + 1
    groups = parts.get("groups")
    groups = torch.arange(rows) // expression["group"] if groups is None else groups.long()
    _fill_by_groups(
        [out.t() for out in outs],
        lambda tile: along_rows(words, bits, tile),
        parts["scale"],
        zero,
        groups,
        32 // bits,
    )


def _awq(outs: Outs, expression: Mapping[str, Any], parts: _Parts) -> None:
    import torch

    out, words = outs[0], _words(parts["weight"], 4)
    columns, rows = out.shape
    if list(words.shape) != [rows, columns // 8]:
        raise ValueError(f"words {list(words.shape)} for a weight of shape {list(out.shape)}")
    stored = _words(parts["zero_point"], 4)
    zero = along_columns(stored, _AWQ_PLACES, (0, stored.shape[0], 0, columns))
    groups = torch.arange(rows) // expression["group"]
    _fill_by_groups(
        [out.t() for out in outs],
        lambda tile: along_columns(words, _AWQ_PLACES, tile),
        parts["scale"],
        zero,
        groups,
        8,
    )


def _fill_by_groups(
    outs: Outs,
    numbers: Callable[[Tile], "torch.Tensor"],
    scale: "torch.Tensor",
    zero: "torch.Tensor",
    groups: "torch.Tensor",
    unit: int,
) -> None:
    """Fills `outs` [rows, columns] with (number - zero point) * scale, these of the group of each row."""
    import torch

    out, factor, shift = outs[0], scale.float(), zero.float()
    if factor.shape != shift.shape or factor.shape[1:] != out.shape[1:] or len(groups) != len(out):
        raise ValueError(
            f"scales {list(scale.shape)} and zero points {list(zero.shape)} for {list(out.shape)}"
        )
    if len(groups) and not 0 <= int(groups.min()) <= int(groups.max()) < len(factor):
        raise ValueError(f"groups {int(groups.min())} to {int(groups.max())} of {len(factor)}")

    def make(turned: bool) -> Product:
        def work(tile: Tile) -> Tuple["torch.Tensor", "torch.Tensor"]:
            top, bottom, left, right = tile
            chosen, shape = groups[top:bottom], (bottom - top, right - left)
            entries = scratch("entries", shape, factor.dtype, factor.device)
            value = wide_of(numbers(tile))
            value.sub_(torch.index_select(shift[:, left:right], 0, chosen, out=entries))
            scales = torch.index_select(factor[:, left:right], 0, chosen, out=entries)
            return (value.t(), scales.t()) if turned else (value, scales)

        return work

    fill_in_tiles(outs, make, unit=unit, row_unit=unit)


def _words(tensor: "torch.Tensor", bits: int) -> "torch.Tensor":
    import torch

    if tensor.dtype != torch.int32 or bits not in (2, 4, 8):
        raise ValueError(f"numbers of {bits} bits in {tensor.dtype}")
    return tensor


_FILLS: Mapping[str, Callable[[Outs, Mapping[str, Any], _Parts], None]] = {
    "fp8_block": _scaled,
    "int8_block": _scaled,
    "int_packed": _int_packed,
    "mxfp4": _mxfp4,
    "gptq": _gptq,
    "awq": _awq,
}

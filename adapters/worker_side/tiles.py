"""Matrices filled tile by tile, in blocks that share a scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional, Sequence, Tuple

from day0_worker.packed_numbers import Numbers, Tile
from day0_worker.scratch import cast

if TYPE_CHECKING:
    import torch

Outs = Sequence["torch.Tensor"]
"""Tensors of one shape and one order of strides: the result, and the same in other dtypes."""

Product = Callable[[Tile], Tuple["torch.Tensor", "torch.Tensor"]]
"""Two tensors in fp32 whose product is the result of a tile."""

_TILE = 2**20
"""Elements of a tile: so many that torch's own threads share each operator (threads of ours, each with small
tiles, wait for the interpreter: five times slower on two cores), so few that they stay in the cache."""
_WIDE_TILE = 2**18  # where scales of full size lie beside the elements, or a tile is turned
_NARROW = 256  # columns of a tile that is turned before it is written, so that whole cache lines are filled


def fill_by_blocks(
    outs: Outs,
    numbers: Numbers,
    power: int,
    block: Tuple[int, int],
    parts: Mapping[str, "torch.Tensor"],
    unit: int = 1,
) -> None:
    """Fills `outs` with (numbers * 2^power - zero point of the block) * scale of the block, in fp32.

    Args:
        outs: [rows, columns].
        numbers: see `Numbers`.
        power: see above.
        block: rows and columns that share a scale; those at the edges are cut off.
        parts: `scale` and maybe `zero_point`, one entry a block.
        unit: tiles begin at columns that are multiples of this.

    Raises:
        ValueError: there are more or fewer entries than blocks.
    """
    out = outs[0]
    if min(block) < 1:
        raise ValueError(f"blocks of {list(block)}")
    rows, columns = (min(size, max(1, length)) for size, length in zip(block, out.shape))  # noqa: B905  # Python 3.9 has no strict
    grid = [-(-out.shape[0] // rows), -(-out.shape[1] // columns)]
    scale, zero = _as_grid(parts["scale"], grid), None
    if "zero_point" in parts:
        zero = _as_grid(parts["zero_point"], grid)
    folded = scale * 2.0**power if zero is None and _leaves_room(scale) else None

    def make(turned: bool) -> Product:
        spread = _Spread(scale if folded is None else folded, (rows, columns), turned)
        zeros = None if zero is None else _Spread(zero, (rows, columns), turned)

        def work(tile: Tile) -> Tuple["torch.Tensor", "torch.Tensor"]:
            value = numbers(tile)
            # Narrow numbers are turned, not wide ones.
            value = wide_of(cast(value.t(), value.dtype, "turned") if turned else value)
            scales = spread.over(tile)
            if scales.dim() == 3:
                value = value.view(len(scales), rows, -1)
            if folded is None:
                value.mul_(2.0**power)
            if zeros is not None:
                value.sub_(zeros.over(tile))
            return value, scales

        return work

    spread_out = rows == 1 and columns < out.shape[1]
    # Blocks below each other in one tile, where they are small.
    several = max(1, _TILE // (rows * out.shape[1])) if rows > 1 and out.numel() and out.stride(1) == 1 else 1
    fill_in_tiles(outs, make, size=_WIDE_TILE if spread_out else _TILE, block_rows=rows * several, unit=unit)


def wide_of(value: "torch.Tensor") -> "torch.Tensor":
    """A tile's numbers in fp32, which may be written to; good until the next tile's."""
    import torch

    return value if value.dtype == torch.float32 else cast(value, torch.float32, "fp32")


def fill_in_tiles(
    outs: Outs,
    make: Callable[[bool], Product],
    *,
    size: int = _WIDE_TILE,
    block_rows: int = 1,
    unit: int = 1,
    row_unit: int = 1,
) -> None:
    """Fills `outs` with products, tile by tile; the second and further ones are rounded from the first.

    Args:
        outs: [rows, columns], of any strides.
        make: gives the function that makes a tile, with results that are turned around their diagonal where
            it is told so; of three dimensions where it takes the rows apart.
        size: elements of a tile at most.
        block_rows: no tile crosses a multiple of it; 1: they may.
        unit: tiles begin at columns that are multiples of this.
        row_unit: tiles begin at rows that are multiples of this.
    """
    import torch

    out = outs[0]
    turned = out.stride(1) != 1
    work = make(turned)
    for tile in _tiles(out, turned, min(size, _WIDE_TILE) if turned else size, block_rows, unit, row_unit):
        top, bottom, left, right = tile
        places = [whole[top:bottom, left:right] for whole in outs]
        places = [place.t() for place in places] if turned else places
        one, other = work(tile)
        if one.dim() == 3:
            places = [place.view(one.shape) for place in places]
        torch.mul(one, other, out=places[0])
        for place in places[1:]:
            place.copy_(places[0])


def _tiles(
    out: "torch.Tensor", turned: bool, size: int, block_rows: int, unit: int, row_unit: int
) -> Iterator[Tile]:
    rows, columns = out.shape
    if not out.numel():
        return
    width = min(columns, _NARROW if turned else size)
    width = columns if width == columns else max(1, width // unit) * unit
    step = rows if block_rows == 1 else block_rows
    height = _even(step, max(1, size // width // row_unit) * row_unit, row_unit)
    for start in range(0, rows, step):
        for left in range(0, columns, width):
            for top in range(start, min(start + step, rows), height):
                yield top, min(top + height, start + step, rows), left, min(left + width, columns)


def _even(rows: int, most: int, unit: int) -> int:
    """Height of tiles of about the same size, multiples of the unit, of which as few as possible do."""
    count = -(-rows // most)
    return -(-rows // (count * unit)) * unit


def _as_grid(part: "torch.Tensor", grid: Sequence[int]) -> "torch.Tensor":
    """The entries as a matrix in fp32; one for a row, or for all, may come with fewer dimensions."""
    shapes = [list(grid)] + ([[grid[0]]] if grid[1] == 1 else []) + ([[]] if list(grid) == [1, 1] else [])
    if list(part.shape) not in shapes:
        raise ValueError(f"{list(part.shape)} scales or zero points where {list(grid)} are needed")
    return part.float().reshape(list(grid))


def _leaves_room(scale: "torch.Tensor") -> bool:
    """Whether each scale times a small power of two is exact and finite."""
    size = scale.abs()
    return bool(((size == 0) | ((size >= 2.0**-100) & (size <= 2.0**100))).all())


class _Spread:
    """Entries of a grid over the elements of tiles; those of the last tile are kept.

    Args:
        grid: one entry a block.
        block: rows and columns of a block.
        turned: whether tiles are turned around their diagonal.
    """

    def __init__(self, grid: "torch.Tensor", block: Tuple[int, int], turned: bool) -> None:
        self._grid, self._block, self._turned = grid, block, turned
        self._key: Optional[Tile] = None
        self._kept: Any = None

    def over(self, tile: Tile) -> "torch.Tensor":
        """What broadcasts over the tile; of [n, 1, columns] over one of n whole blocks below each other."""
        top, bottom, left, right = tile
        rows, columns = self._block
        key = (top // rows, (bottom - 1) // rows, left, right)
        if rows == 1 or key != self._key:
            first, last = left // columns, (right - 1) // columns + 1
            part = self._grid[top // rows : (bottom - 1) // rows + 1, first:last]
            part = part.t() if self._turned else part
            if last - first > 1:
                along, begin = 0 if self._turned else 1, left - first * columns
                part = part.repeat_interleave(columns, along).narrow(along, begin, right - left)
            if rows > 1 and len(part) > 1 and not self._turned:
                whole = (bottom - top) % rows == 0
                part = part.unsqueeze(1) if whole else part.repeat_interleave(rows, 0)[: bottom - top]
            self._key, self._kept = key, part
        result: torch.Tensor = self._kept
        return result

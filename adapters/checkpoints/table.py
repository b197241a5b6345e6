"""All tensors of a checkpoint in little memory: half a million of them fit into some sixty megabytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate

from day0.adapters.base.checkpoint import TensorBlock, TensorInfo, TensorKind


class TensorTable(Mapping[str, TensorInfo]):
    """Name -> tensor, each made when asked for.

    Args:
        blocks: what each file holds; no name comes twice.
    """

    def __init__(self, blocks: Sequence[TensorBlock]) -> None:
        self._blocks = tuple(block for block in blocks if block.names)
        self._ends = tuple(accumulate(len(block.names) for block in self._blocks))

    def __getitem__(self, name: str) -> TensorInfo:
        file, kind, offset = self.place(name)
        # The header was checked when it was read; checking 500,000 tensors again takes a second.
        return TensorInfo.model_construct(
            name=name, dtype=kind.dtype, shape=kind.shape, file=file, offset=offset, bytes=kind.bytes
        )

    def __iter__(self) -> Iterator[str]:
        for block in self._blocks:
            yield from block.names

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def blocks(self) -> Sequence[TensorBlock]:
        """What each file holds, in the order of the files."""
        return self._blocks

    def place(self, name: str) -> tuple[str, TensorKind, int]:
        """File, kind and first byte of a tensor, without making a `TensorInfo`."""
        block, row = self._places[name]
        return block.file, block.kinds[row], block.starts[row]

    @cached_property
    def _places(self) -> Mapping[str, tuple[TensorBlock, int]]:
        """Made when the first tensor is asked for by name; counting a release never does."""
        return {name: (block, row) for block in self._blocks for row, name in enumerate(block.names)}

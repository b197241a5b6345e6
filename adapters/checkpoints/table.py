"""All tensors of a checkpoint in little memory: half a million of them fit into some ten megabytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from day0.adapters.base.checkpoint import TensorInfo, TensorRow

from .safetensors_header import Place


class TensorTable(Mapping[str, TensorInfo]):
    """Name -> tensor, each made when asked for.

    Args:
        rows: name -> file and place within it.
    """

    def __init__(self, rows: Mapping[str, tuple[str, Place]]) -> None:
        self._rows = rows

    def __getitem__(self, name: str) -> TensorInfo:
        file, (dtype, shape, offset, length) = self._rows[name]
        # The header was checked when it was read; checking 500,000 tensors again takes a second.
        return TensorInfo.model_construct(
            name=name, dtype=dtype, shape=shape, file=file, offset=offset, bytes=length
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def rows(self) -> Iterator[TensorRow]:
        """All tensors in order, without making a `TensorInfo` of each."""
        for name, (file, (dtype, shape, _, length)) in self._rows.items():
            yield TensorRow(name, dtype, shape, file, length)

    def place(self, name: str) -> tuple[str, Place]:
        """File and place of a tensor, without making a `TensorInfo`."""
        return self._rows[name]

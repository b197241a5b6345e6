"""From a tensor's name back to its row in the table of patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .index_sets import parse_indices
from .record import TensorPattern

_INDEX = re.compile(r"\.([0-9]{1,9})(?=\.|$)")
_PLACEHOLDER = re.compile(r"\.\{([lei])\}")


class PatternLookup:
    """Finds the row of a tensor; layers beyond the model's own have rows of their own.

    Args:
        patterns: of the record.
    """

    def __init__(self, patterns: Iterable[TensorPattern]) -> None:
        self._rows: dict[str, list[tuple[TensorPattern, frozenset[int], int]]] = {}
        for pattern in patterns:
            marks = _PLACEHOLDER.findall(pattern.pattern)
            slot = marks.index("l") if "l" in marks else -1
            layers = frozenset(parse_indices(pattern.layers))
            form = _PLACEHOLDER.sub(".#", pattern.pattern)
            self._rows.setdefault(form, []).append((pattern, layers, slot))

    def find(self, name: str) -> tuple[TensorPattern | None, int | None]:
        """The row and, where the pattern has one, the layer's index; no row for an unknown name."""
        parts = _INDEX.split(name)
        rows = self._rows.get(".#".join(parts[::2]), ())
        for pattern, layers, slot in rows:
            layer = int(parts[1::2][slot]) if slot >= 0 else None
            if layer is None or layer in layers:
                return pattern, layer
        return None, None

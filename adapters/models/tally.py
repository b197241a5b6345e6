"""Counts of what a model calls: how often over the whole model, and from which modules."""

from __future__ import annotations

from collections.abc import Hashable

from .repeated_layers import Scope


class Tally:
    """Counts by what is called, in which execution of a layer and from which module."""

    def __init__(self) -> None:
        self._counts: dict[Hashable, dict[tuple[Scope, str], int]] = {}

    def add(self, key: Hashable, scope: Scope, module: str) -> None:
        """One more call of `key`."""
        counts = self._counts.setdefault(key, {})
        counts[scope, module] = counts.get((scope, module), 0) + 1

    def count(self, key: Hashable) -> int:
        """Calls over the whole model, those of layers that did not run themselves included."""
        return sum(count * scope.weight for (scope, _), count in self._counts[key].items())

    def modules(self, key: Hashable) -> list[str]:
        """Paths of all modules that call it, behind each those of the repeated layers that it stands for."""
        places = self._counts[key]
        return list(dict.fromkeys(path for scope, module in places for path in scope.paths(module)))

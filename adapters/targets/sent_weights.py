"""Weights on their way to a worker: files that it sees it reads itself, everything else is sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from day0_worker.serve import file_mark

if TYPE_CHECKING:
    from torch import Tensor

Ask = Callable[[Sequence[Mapping[str, Any]]], Collection[str]]
"""Asks the worker which of these files, given by path and mark, it sees as they are here."""


class SentWeights:
    """What one worker sees, asked once a file.

    Args:
        ask: see `Ask`.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._seen: dict[str, bool] = {}

    def forget(self) -> None:
        """A fresh worker may see other files."""
        self._seen.clear()

    def sees(self, path: str) -> bool:
        """Whether the worker sees a file, the same one."""
        if path not in self._seen:
            self._seen[path] = path in self._ask([{"path": path, "mark": file_mark(path)}])
        return self._seen[path]

    def sent(self, expression: Any, tensors: dict[str, Tensor]) -> Any:
        """The weight expression with every leaf that the worker cannot read itself replaced by its value.

        Args:
            expression: see `day0_worker.weights`.
            tensors: sent along; those of the expression are added.
        """
        if isinstance(expression, list):
            return [self.sent(part, tensors) for part in expression]
        if not isinstance(expression, dict):
            return expression
        if "value" in expression:
            return _attached(expression["value"], tensors)
        if "file" not in expression:
            return {key: self.sent(part, tensors) for key, part in expression.items()}
        path = str(Path(expression["file"]).resolve())
        if self.sees(path):
            return {**expression, "file": path}
        from day0_worker.weights import read_tensor

        value = read_tensor(path, expression["offset"], expression["dtype"], expression["shape"])
        return _attached(value, tensors)


def _attached(value: Tensor, tensors: dict[str, Tensor]) -> dict[str, str]:
    name = f"weight{len(tensors)}"
    tensors[name] = value
    return {"value": name}

"""How long work says how far it is; the command line and the flows decide how to show it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the state of one long step.

    Args:
        step: what is being done, e.g. `numerics eager@cpu/bf16`.
        done: units finished.
        total: units in all; 0 when unknown.
        note: the unit at hand, e.g. `model.layers.7`.
    """

    def __call__(self, step: str, done: int, total: int, note: str = "") -> None: ...


def silent(step: str, done: int, total: int, note: str = "") -> None:
    """Shows nothing."""

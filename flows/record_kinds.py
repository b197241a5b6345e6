"""Which type of record each stage makes."""

from __future__ import annotations

from importlib import import_module

from day0.tasks.record import StageRecord


def record_kind(stage: str) -> type[StageRecord]:
    """The type of one stage's record, imported when it is first needed: the six together take a while."""
    kind: type[StageRecord] = getattr(
        import_module(f"day0.tasks.{stage}.record"), f"{stage.capitalize()}Record"
    )
    return kind

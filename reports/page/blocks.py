"""What the blocks of all sections share: ids of targets, the block of a stage that did not run."""

from __future__ import annotations

from ..model import Report, TargetResult
from .parts import Block
from .text import element_id


def target_slug(result: TargetResult) -> str:
    """The target as a part of an id."""
    return element_id(result.target)


def reused(report: Report, stage: str, result: TargetResult) -> bool:
    """Whether the record came from an earlier run."""
    return report.reused.get(f"{stage} {result.target}", False)


def absent_block(stage: str, result: TargetResult) -> Block:
    """The block of a stage that left no record."""
    return Block(
        id=f"{stage}--{target_slug(result)}",
        title=result.target,
        verdict="unverified",
        lead="This stage left no record in this run; nothing is known.",
    )

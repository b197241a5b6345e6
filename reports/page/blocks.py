"""What the blocks of all sections share: ids of targets, the block of a stage that did not run."""

from __future__ import annotations

from day0.tasks.record import StageRecord

from ..model import Report, TargetResult
from ..records import leading_message
from ..words import sentence
from .parts import Block
from .text import element_id


def target_slug(result: TargetResult) -> str:
    """The target as a part of an id."""
    return element_id(result.target)


def reused(report: Report, stage: str, result: TargetResult) -> bool:
    """Whether the record came from an earlier run."""
    return report.reused.get(f"{stage} {result.target}", False)


def why_nothing(record: StageRecord, default: str) -> str:
    """Why a record is empty: its heaviest finding, or the default sentence."""
    return sentence(leading_message(record.findings)) or default


def absent_block(stage: str, result: TargetResult) -> Block:
    """The block of a stage that left no record."""
    return Block(
        id=f"{stage}--{target_slug(result)}",
        title=result.target,
        verdict="unverified",
        lead="This stage left no record in this run; nothing is known.",
    )

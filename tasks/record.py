"""The base of all stage records: the only thing that passes between stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from day0.adapters.base.values import Value, digest

from .finding import Finding, verdict_of
from .verdict import Verdict

SCHEMA_VERSION = 1
STAGES = ("inventory", "coverage", "minimal", "numerics", "plan", "scale")


class StageRecord(Value):
    """The typed result of one stage.

    A stage's `record.py` derives from it and narrows `facts` and `observations` to its own models.

    Attributes:
        stage: out of `STAGES`.
        stage_version: raised whenever the stage's code may give other facts.
        schema_version: of this base.
        key: digest under which the record may be used again: stage, version, input digests, fingerprint.
        target: the target's text; empty for stages that know none (inventory, plan).
        verdict: worst over the findings.
        findings: what a person may have to act on.
        facts: identical for identical inputs; digested.
        observations: times, throughput, memory, host, logs; never digested.
        sources: JSON pointer into `facts` -> where the value came from (`config.json#/hidden_size`,
            `header:FILE#TENSOR`, `measured`, `computed:FORMULA`); a prefix covers what lies below it.
        files: name -> path of a side file in the run store.
    """

    stage: str
    stage_version: int
    schema_version: int = SCHEMA_VERSION
    key: str = ""
    target: str = ""
    verdict: Verdict
    findings: Sequence[Finding] = ()
    facts: Value
    observations: Value
    sources: Mapping[str, str] = {}
    files: Mapping[str, str] = {}

    @classmethod
    def conclude(cls, *, findings: Iterable[Finding], **fields: Any) -> Self:
        """A record whose verdict follows from its findings."""
        listed = tuple(findings)
        return cls(findings=listed, verdict=verdict_of(listed), **fields)

    @property
    def facts_digest(self) -> str:
        """Digest over the facts alone."""
        return digest(self.facts.model_dump(mode="json"))


def record_key(stage: str, stage_version: int, inputs: Mapping[str, str]) -> str:
    """The key of a record: stage, version and the digests of all it depends on, never a branch or a path."""
    return digest({"stage": stage, "version": stage_version, "inputs": dict(inputs)})

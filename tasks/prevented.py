"""What stands for a stage that could not do its work: empty facts and one finding that says why."""

from __future__ import annotations

from day0.adapters.base.values import Fingerprint

from .catalogue.prevented import PREFIXES
from .coverage.record import CoverageFacts, CoverageRecord
from .finding import Subject, make_finding
from .job import StageJob
from .minimal.record import MinimalFacts, MinimalRecord
from .numerics.record import NumericsFacts, NumericsRecord
from .plan.record import PlanFacts, PlanRecord
from .prevention import Prevention
from .record import StageRecord
from .scale.record import ScaleFacts, ScaleRecord


def prevented_record(stage: str, job: StageJob, why: Prevention) -> StageRecord:
    """A record of the stage's own type with empty facts and one finding.

    Args:
        stage: any but inventory, without which there is no record at all.
        job: whose fingerprint the facts carry; a target that could not be asked has an empty one.
        why: becomes the finding.
    """
    finding = make_finding(
        f"{PREFIXES[stage]}{why.number}",
        Subject(kind=why.about, name=job.target if why.about == "target" else job.model),
        why.message,
        evidence=why.evidence,
        remedy=why.remedy or None,
    )
    findings = (finding,)
    fingerprint = job.fingerprint or Fingerprint(family="", exact={})
    if stage == "coverage":
        return CoverageRecord.conclude(findings=findings, facts=_no_coverage(fingerprint))
    if stage == "minimal":
        facts = MinimalFacts(fingerprint=fingerprint, tokens=(), nodes=())
        return MinimalRecord.conclude(findings=findings, facts=facts)
    if stage == "numerics":
        return NumericsRecord.conclude(findings=findings, facts=_no_numerics(fingerprint))
    if stage == "plan":
        return PlanRecord.conclude(findings=findings, facts=PlanFacts(recommended=(), rejected=()))
    return ScaleRecord.conclude(findings=findings, facts=ScaleFacts(fingerprint=fingerprint, tiers=()))


def _no_coverage(fingerprint: Fingerprint) -> CoverageFacts:
    return CoverageFacts(
        fingerprint=fingerprint, config_digest="", overloads=0, signatures=0, statuses={}, ops=(), gaps=()
    )


def _no_numerics(fingerprint: Fingerprint) -> NumericsFacts:
    return NumericsFacts(
        fingerprint=fingerprint, reference="", noise="", tokens=0, blocks=(), first_fault=None, logits=None
    )

"""Coverage records that were stored without measuring anything."""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.values import Fingerprint, digest
from day0.adapters.base.workaround import Chosen
from day0.tasks.coverage.record import CoverageFacts, CoverageRecord
from day0.tasks.job import RecordRef, StageJob
from day0.tasks.record_store import save_record


def store_coverage(job: StageJob, chosen: Sequence[Chosen] = ()) -> RecordRef:
    """Stores an empty record that chose these ways around, for the job's target."""
    fingerprint = job.fingerprint or Fingerprint(family="test", exact={})
    facts = CoverageFacts(
        fingerprint=fingerprint,
        config_digest="c",
        overloads=0,
        signatures=0,
        statuses={},
        ops=(),
        gaps=(),
        chosen=chosen,
    )
    key = digest([job.target, [one.model_dump(mode="json") for one in chosen]])
    record = CoverageRecord.conclude(findings=(), target=job.target, facts=facts)
    save_record(job.run_store, record.model_copy(update={"key": key}))
    return RecordRef(stage="coverage", target=job.target, key=key, verdict=record.verdict, reused=False)

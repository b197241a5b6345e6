"""Stages that take no time: they count their calls and hand on small records of the right types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.values import Fingerprint, digest
from day0.tasks.inventory.record import (
    ActiveParams,
    Architecture,
    Identity,
    InventoryFacts,
    InventoryRecord,
    Quantization,
    TiedEmbeddings,
    Totals,
)
from day0.tasks.job import RecordRef, StageJob, reuse_or_run
from day0.tasks.prevented import prevented_record
from day0.tasks.prevention import Prevention
from day0.tasks.record import StageRecord
from day0.tasks.verdict import Verdict

FINGERPRINT = Fingerprint(family="stand-in 1", exact={"stand-in": "1.0"})


def small_inventory(model: str = "m", revision: str = "r1") -> InventoryRecord:
    facts = InventoryFacts(
        identity=Identity(
            model=model, revision=revision, config_digest="c", structure_digest="s", weights_digest="w"
        ),
        format="safetensors",
        totals=Totals(
            tensors=1,
            shards=1,
            data_bytes=8,
            logical_params=4,
            aux_elements=0,
            mtp_params=0,
            vision_params=0,
            routed_expert_params=0,
            main_params=4,
        ),
        active_params=ActiveParams(
            with_embedding_and_head=4, without_embedding=4, without_embedding_and_head=4
        ),
        kv_bytes_per_token=0,
        kv_bytes_per_token_growing=0,
        state_bytes_per_sequence=0,
        layers=(),
        roles={},
        quantization=Quantization(),
        tied_embeddings=TiedEmbeddings(config=None, tensors=None),
        architecture=Architecture(),
        config={},
        shards=(),
        header_bytes_total=0,
    )
    return InventoryRecord.conclude(findings=(), facts=facts)


def empty_record(stage: str, job: StageJob) -> StageRecord:
    """A passing record of the stage's type, with empty facts."""
    record = prevented_record(stage, job, Prevention(number=900, about="model", message="stand-in"))
    return record.model_copy(update={"findings": (), "verdict": Verdict.PASS})


@dataclass
class StandIns:
    """What to raise or answer where, and what was computed how often (`STAGE TARGET`)."""

    errors: dict[str, Exception] = field(default_factory=dict)
    records: dict[str, StageRecord] = field(default_factory=dict)
    computed: Counter[str] = field(default_factory=Counter)
    started: list[str] = field(default_factory=list)

    def stage_function(self, stage: str) -> Callable[..., RecordRef]:
        def run(job: StageJob, *upstream: RecordRef) -> RecordRef:
            name = f"{stage} {job.target}".strip()
            self.started.append(name)

            def compute() -> StageRecord:
                self.computed[name] += 1
                error = self.errors.get(name)
                if error is not None:
                    raise error
                if name in self.records:
                    return self.records[name]
                return small_inventory(job.model) if stage == "inventory" else empty_record(stage, job)

            kind = InventoryRecord if stage == "inventory" else type(empty_record(stage, job))
            return reuse_or_run(job, kind, stage, digest([stage, job.target, job.model]), compute)

        return run

    def describe(self, job: StageJob, target: str) -> object:
        from day0.flows.stage_runs import TargetJob
        from day0.tasks.prevention import prevention_of

        on_target = job.model_copy(update={"target": target, "fingerprint": FINGERPRINT})
        error = self.errors.get(f"describe {target}")
        if isinstance(error, Day0Error):
            return TargetJob(job=on_target, prevented=prevention_of(error, asking=True))
        return TargetJob(job=on_target)

"""What plan hands on: which configuration fits where, as estimates with their arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from day0.adapters.base.values import Value

from ..record import StageRecord

STAGE = "plan"
STAGE_VERSION = 3


class RuleCheck(Value):
    """One engine rule applied to one configuration.

    Attributes:
        rule: `r1` heads, `r2` KV heads, `r3` block- or group-quantised shards.
        holds: whether it is kept.
        arithmetic: the numbers, e.g. `9 heads % 4 = 1`.
    """

    rule: str
    holds: bool
    arithmetic: str


class Config(Value):
    """One configuration on one chip.

    Attributes:
        chip: profile name.
        devices: number of them.
        tensor_parallel: degree.
        expert_parallel: degree; 1 for none.
        pipeline_parallel: degree.
        weight_dtype: as loaded.
        kv_dtype: of the cache.
        memory_bytes: usable per device, by the profile.
        weight_bytes: per device, the fullest one.
        kv_bytes_per_token: per device and sequence.
        state_bytes_per_sequence: per device.
        reserve_bytes: held back for activations, graphs and communication.
        max_context: tokens that one sequence can hold, capped at the model's own maximum.
        concurrency: sequences of that length at once.
        fits: `fits`, `tight` or `no`.
        limited_by: what gives out first, in words.
        rules: each rule that was applied.
        command: command line to copy; empty where nothing fits.
        sequence_bytes: per device, of one sequence of that length; a full window holds less than length times
            bytes per token.
        commands: engine -> command line, where further engines take the same configuration.
        notes: what a person should know before copying, e.g. that the degree crosses nodes.
    """

    chip: str
    devices: int
    tensor_parallel: int
    expert_parallel: int
    pipeline_parallel: int
    weight_dtype: str
    kv_dtype: str
    memory_bytes: int
    weight_bytes: int
    kv_bytes_per_token: int
    state_bytes_per_sequence: int
    reserve_bytes: int
    max_context: int
    concurrency: int
    fits: str
    limited_by: str
    rules: Sequence[RuleCheck]
    command: str
    sequence_bytes: int = 0
    commands: Mapping[str, str] = {}
    notes: Sequence[str] = ()


class Chip(Value):
    """What the planning took a chip to be.

    Attributes:
        name: as in `Config.chip`.
        memory_bytes: of one device (rank).
        nominal: whether that is the vendor's figure and not what a driver reports.
        devices_per_node: joined by the fast tier.
        memory_bandwidth: bytes per second; 0 where no source is trusted.
        link_bandwidth: bytes per second one way between devices of a node; 0 where no source is trusted.
        provenance: field -> where its value comes from.
    """

    name: str
    memory_bytes: int
    nominal: bool
    devices_per_node: int
    memory_bandwidth: float
    link_bandwidth: float
    provenance: Mapping[str, str]


class PlanFacts(Value):
    """All configurations looked at.

    Attributes:
        recommended: the best per chip; what the report shows first.
        alternatives: further ones that keep every rule and hold the model.
        rejected: those that break a rule or do not fit, with the arithmetic.
        chips: the profiles planned with.
        estimate: always true in this version: nothing was measured on these chips.
    """

    recommended: Sequence[Config]
    alternatives: Sequence[Config] = ()
    rejected: Sequence[Config]
    chips: Sequence[Chip] = ()
    estimate: bool = True


class PlanObservations(Value):
    """What the planning took."""

    seconds: float = 0.0


class PlanRecord(StageRecord):
    """The plan stage's record."""

    stage: str = STAGE
    stage_version: int = STAGE_VERSION
    facts: PlanFacts
    observations: PlanObservations = PlanObservations()

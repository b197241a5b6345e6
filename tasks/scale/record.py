"""What scale hands on: how far up the tiers the target holds."""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.values import Fingerprint, Value

from ..record import StageRecord

STAGE = "scale"
STAGE_VERSION = 1


class Check(Value):
    """One check of a tier.

    Attributes:
        name: e.g. `all_reduce fp32 world 2`.
        outcome: `passed`, `failed` or `could_not_run`.
        detail: numbers or the reason.
    """

    name: str
    outcome: str
    detail: str = ""


class Tier(Value):
    """One tier of health checks.

    Attributes:
        number: 1 device compute, 2 two processes, 3 all devices of the node, 4 batch and sequence growth.
        name: in words.
        outcome: `passed`, `failed`, `could_not_run` or `not_reached` (a lower tier failed).
        checks: what was checked.
    """

    number: int
    name: str
    outcome: str
    checks: Sequence[Check] = ()


class ScaleFacts(Value):
    """What held.

    Attributes:
        fingerprint: of the target.
        tiers: in order.
    """

    fingerprint: Fingerprint
    tiers: Sequence[Tier]


class Bandwidth(Value):
    """One measured collective: seconds are the median of `samples` runs."""

    name: str
    world_size: int
    bytes: int
    seconds: float
    bus_bytes_per_second: float
    samples: int


class Growth(Value):
    """One point of the batch and sequence growth.

    Attributes:
        batch: sequences.
        length: prompt tokens of each.
        new_tokens: generated of each.
        first_token_seconds: measured.
        tokens_per_second: generated tokens over decode time, all sequences.
        memory_bytes: measured growth above the loaded model.
        expected_memory_bytes: from config and header bytes, computed before the run.
        expected_first_token_seconds: its multiplications at the known-answer product's speed; 0: unknown.
        layers: layers of the cut-down release that ran.
    """

    batch: int
    length: int
    new_tokens: int
    first_token_seconds: float
    tokens_per_second: float
    memory_bytes: int
    expected_memory_bytes: int
    expected_first_token_seconds: float = 0.0
    layers: int


class ScaleObservations(Value):
    """What was measured; differs from run to run."""

    seconds: float = 0.0
    bandwidths: Sequence[Bandwidth] = ()
    growth: Sequence[Growth] = ()
    device_flops: float = 0.0
    worker_log: Sequence[str] = ()


class ScaleRecord(StageRecord):
    """The scale stage's record."""

    stage: str = STAGE
    stage_version: int = STAGE_VERSION
    facts: ScaleFacts
    observations: ScaleObservations = ScaleObservations()

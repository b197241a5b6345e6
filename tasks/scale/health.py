"""The tiers of health in their order: one device, two processes, the whole node, then the model itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from day0.adapters.base.errors import UnsupportedError, WorkerError
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.target import Target, TargetDescription

from ..confirmed import confirmed
from ..finding import Finding, Subject, make_finding
from ..inventory.record import InventoryRecord
from ..minimal.record import CutRelease
from ..thresholds import SCALE_DEVICE_SHARE, SCALE_WORKER_BYTES
from .growth import GrowthResult, ModelTier, measure_growth
from .model_shapes import compute_dtype
from .record import Check, Growth, ScaleFacts, ScaleObservations, ScaleRecord, Tier
from .tiers import check_collectives, check_device, compare_bandwidths, node_ranks
from .verdicts import TierResult

NAMES = {
    1: "device compute",
    2: "two processes",
    3: "all devices of the node",
    4: "batch and length of the model",
}
_LOG_LINES = 40


@dataclass
class _Ladder:
    """How far up it went.

    Attributes:
        target: what is tested.
        tiers: outcomes so far.
        findings: of all tiers.
        results: of the tiers that ran, by number.
        log: last lines of a worker that was lost.
    """

    target: Target
    tiers: list[Tier] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    results: dict[int, TierResult] = field(default_factory=dict)
    log: Sequence[str] = ()

    @property
    def broken(self) -> bool:
        """Whether a tier failed, so that those above it are not reached."""
        return any(tier.outcome == "failed" for tier in self.tiers)

    def climb(self, number: int, run: Callable[[], TierResult]) -> None:
        """Runs a tier unless one below it failed."""
        name = NAMES[number]
        if self.broken:
            self.tiers.append(Tier(number=number, name=name, outcome="not_reached"))
            return
        result = self._run(number, run)
        self.results[number] = result
        self.findings += result.findings
        if result.could_not_run and not result.findings:
            subject = Subject(kind="tier", name=f"tier {number}")
            sentence = f"tier {number} ({name}) could not run: {result.could_not_run}"
            self.findings.append(make_finding("SCL006", subject, sentence))
        self.tiers.append(
            Tier(number=number, name=name, outcome=result.outcome, checks=result.checks or _reason(result))
        )

    def _run(self, number: int, run: Callable[[], TierResult]) -> TierResult:
        lost = TierResult()
        try:
            return confirmed(run)
        except UnsupportedError as error:
            lost.could_not_run = error.message
        except WorkerError as error:
            if getattr(error, "kind", "") == "unsupported":
                lost.could_not_run = error.message
                return lost
            self.log = tuple(error.log[-_LOG_LINES:])
            lost.add(NAMES[number], False, error.message)
            subject = Subject(kind="tier", name=f"tier {number}")
            sentence = f"tier {number} ({NAMES[number]}): {error.message}"
            lost.findings.append(
                make_finding(
                    "SCL009", subject, sentence, evidence=[f"{error.code} {type(error).__name__}", *self.log]
                )
            )
        return lost


def check_health(
    inventory: InventoryRecord,
    target: Target,
    *,
    cut_folder: str | None,
    cut: CutRelease | None,
    numerics_failed: bool = False,
    memory_limit: int = 0,
    progress: Progress = silent,
) -> ScaleRecord:
    """Climbs the tiers; a failed one stops those above it, one that cannot be tested does not.

    Args:
        inventory: of the release; gives all shapes.
        target: an opened target.
        cut_folder: of the cut-down release that the minimal run wrote; None where it wrote none.
        cut: what that folder holds.
        numerics_failed: holds back the model tier.
        memory_limit: bytes (PSS of the worker's process tree) at which the worker is killed; 0 for none.
        progress: told of each tier.

    Raises:
        WorkerError: the target could not even describe itself.
    """
    began = time.perf_counter()
    description = target.describe()
    facts, device = inventory.facts, target.spec.device
    dtype = compute_dtype(facts, target.spec.dtype)
    ladder = _Ladder(target)
    ladder.climb(1, lambda: check_device(facts, dtype, target, description, progress))
    two, node = node_ranks(device, len(description.devices))
    for number, ranks in ((2, two), (3, node)):
        ladder.climb(number, _collective_tier(ranks, device, inventory, dtype, target, description, progress))
    if {2, 3} <= ladder.results.keys():
        compare_bandwidths(device, ladder.results[2], ladder.results[3])
        ladder.findings += [found for found in ladder.results[3].findings if found not in ladder.findings]
    flops = ladder.results[1].flops
    limit = _memory_limit(device, memory_limit, description)
    if cut is None or cut_folder is None or numerics_failed:
        ladder.climb(4, lambda: _held_back(numerics_failed))
    else:
        model = ModelTier(facts, cut_folder, cut, dtype, limit, flops)
        ladder.climb(4, lambda: measure_growth(model, target, progress))
    progress("scale", 4, 4)
    return _conclude(ladder, description, flops, time.perf_counter() - began)


def _collective_tier(
    ranks: int,
    device: str,
    inventory: InventoryRecord,
    dtype: str,
    target: Target,
    description: TargetDescription,
    progress: Progress,
) -> Callable[[], TierResult]:
    if ranks:
        return lambda: check_collectives(inventory.facts, dtype, target, description, ranks, progress)

    def alone() -> TierResult:
        result = TierResult(could_not_run=f"the stack sees one {device} device only")
        subject = Subject(kind="target", name=device)
        result.findings.append(make_finding("SCL016", subject, f"the stack sees one {device} device only"))
        return result

    return alone


def _held_back(numerics_failed: bool) -> TierResult:
    subject = Subject(kind="tier", name="tier 4")
    if numerics_failed:
        result = TierResult(could_not_run="the numerics stage failed")
        result.findings.append(
            make_finding("SCL007", subject, "the model tier did not run because the numerics stage failed")
        )
    else:
        result = TierResult(could_not_run="the minimal run wrote no cut-down release")
        result.findings.append(
            make_finding("SCL008", subject, "the model tier did not run because there is no cut-down release")
        )
    return result


def _memory_limit(device: str, process_limit: int, description: TargetDescription) -> int:
    """What weights and a batch may take together: of the process on a CPU, else of one device."""
    if device == "cpu":
        return max(process_limit - SCALE_WORKER_BYTES, 1) if process_limit else 0
    return int(description.devices[0].memory_bytes * SCALE_DEVICE_SHARE) if description.devices else 0


def _reason(result: TierResult) -> Sequence[Check]:
    return [Check(name="tier", outcome="could_not_run", detail=result.could_not_run)]


def _conclude(ladder: _Ladder, description: TargetDescription, flops: float, seconds: float) -> ScaleRecord:
    growth: list[Growth] = []
    for result in ladder.results.values():
        growth += result.points if isinstance(result, GrowthResult) else []
    sources: Mapping[str, str] = {
        "/fingerprint": "measured: the worker's own description",
        "/tiers": "measured; sizes computed from config.json and headers",
    }
    return ScaleRecord.conclude(
        findings=ladder.findings,
        facts=ScaleFacts(fingerprint=description.fingerprint, tiers=ladder.tiers),
        sources=sources,
        observations=ScaleObservations(
            seconds=seconds,
            bandwidths=[entry for result in ladder.results.values() for entry in result.bandwidths],
            growth=growth,
            device_flops=flops,
            worker_log=ladder.log,
        ),
    )

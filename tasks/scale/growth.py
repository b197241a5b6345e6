"""The model tier: batch and length grow on the cut-down release, each point against its expectation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from day0.adapters.base.errors import RemoteError
from day0.adapters.base.progress import Progress
from day0.adapters.base.target import Generation, Target

from ..finding import Finding, Subject, make_finding
from ..inventory.record import InventoryFacts
from ..minimal.record import CutRelease
from ..thresholds import (
    SCALE_GROWTH_BATCH,
    SCALE_GROWTH_FLOPS,
    SCALE_GROWTH_LENGTHS,
    SCALE_LATENCY_FACTOR,
    SCALE_LATENCY_SLACK,
    SCALE_MEMORY_FACTOR,
    SCALE_MEMORY_SLACK,
)
from .expectation import Expectation, expect, expected_weight_bytes
from .record import Growth
from .verdicts import TierResult

NEW_TOKENS = 8


@dataclass(frozen=True)
class ModelTier:
    """What the model tier is given.

    Attributes:
        facts: the inventory of the whole release.
        folder: of the cut-down release.
        cut: which layers it holds, and its bytes.
        dtype: in which it is loaded.
        memory_limit: bytes that weights and a batch may take together; 0 for none.
        flops: the device's measured rate; 0 where it is not known.
    """

    facts: InventoryFacts
    folder: str
    cut: CutRelease
    dtype: str
    memory_limit: int
    flops: float


@dataclass
class GrowthResult(TierResult):
    """A tier with its measured points."""

    points: list[Growth] = field(default_factory=list)


def measure_growth(tier: ModelTier, target: Target, progress: Progress) -> GrowthResult:
    """Loads the cut-down release and runs the points, smallest first.

    Raises:
        WorkerError: the worker was lost.
        UnsupportedError: the target cannot load or generate.
    """
    result = GrowthResult()
    expected_weights = expected_weight_bytes(tier.facts, tier.cut.bytes, tier.dtype) or tier.cut.bytes
    if tier.memory_limit and expected_weights + SCALE_MEMORY_SLACK > tier.memory_limit:
        result.could_not_run = (
            f"its weights need {expected_weights:,} bytes, {tier.memory_limit:,} are allowed"
        )
        return result
    try:
        weights = _load(tier, target, result)
        # The first call pays for lazy imports and workspaces, which belong to no point.
        target.generate(_prompts(tier.facts, 1, 4), new_tokens=2)
    except RemoteError as error:
        _refused(result, "load", error)
        return result
    points = growth_points(tier, target.spec.device)
    for number, (batch, length) in enumerate(points):
        progress("scale model", number, len(points), f"batch {batch} length {length}")
        expected = expect(tier.facts, tier.cut.layers, tier.dtype, batch, length, NEW_TOKENS)
        need = weights + int(expected.memory_bytes * SCALE_MEMORY_FACTOR) + SCALE_MEMORY_SLACK
        if tier.memory_limit and need > tier.memory_limit:
            sentence = f"up to {need:,} bytes are expected, the limit is {tier.memory_limit:,}"
            result.findings.append(make_finding("SCL012", _point(batch, length), sentence))
            break
        try:
            answer = target.generate(_prompts(tier.facts, batch, length), new_tokens=NEW_TOKENS)
        except RemoteError as error:
            _refused(result, f"batch {batch} length {length}", error)
            return result
        _judge(tier, result, batch, length, answer, expected)
    return result


def growth_points(tier: ModelTier, device: str) -> Sequence[tuple[int, int]]:
    """Batch and prompt length of each point, smallest first, the largest within the allowed work."""
    most = SCALE_GROWTH_FLOPS["cpu" if device == "cpu" else "other"]
    positions = tier.facts.architecture.max_positions or max(SCALE_GROWTH_LENGTHS) + NEW_TOKENS
    fitting = [length for length in SCALE_GROWTH_LENGTHS if length + NEW_TOKENS <= positions]
    work = {
        length: expect(
            tier.facts, tier.cut.layers, tier.dtype, SCALE_GROWTH_BATCH, length, NEW_TOKENS
        ).prefill_flops
        for length in fitting
    }
    longest = next((length for length in fitting if work[length] <= most), min(fitting, default=1))
    short = max(longest // 4, 1)
    return [(1, short), (1, longest), (SCALE_GROWTH_BATCH, short), (SCALE_GROWTH_BATCH, longest)]


def _load(tier: ModelTier, target: Target, result: GrowthResult) -> int:
    report = target.load(tier.folder, dtype=tier.dtype)
    expected = expected_weight_bytes(tier.facts, tier.cut.bytes, tier.dtype)
    fits = not expected or report.weight_bytes <= expected * SCALE_MEMORY_FACTOR
    result.add("weights in memory", fits, f"expected {expected:,} bytes" if expected else "packed weights")
    if not fits:
        sentence = (
            f"the weights take {report.weight_bytes:,} bytes loaded as {tier.dtype}, expected {expected:,}"
        )
        result.findings.append(make_finding("SCL010", Subject(kind="tier", name="weights"), sentence))
    return report.weight_bytes


def _judge(
    tier: ModelTier, result: GrowthResult, batch: int, length: int, answer: Generation, expected: Expectation
) -> None:
    point, findings = _point(batch, length), []
    if [len(row) for row in answer.tokens] != [NEW_TOKENS] * batch:
        sizes = [len(row) for row in answer.tokens]
        sentence = f"{batch} sequences of {NEW_TOKENS} tokens were asked for, {sizes[:8]} came"
        findings.append(make_finding("SCL014", point, sentence))
    findings += _beyond(tier, point, answer, expected)
    failed = any(finding.severity == "error" for finding in findings)
    result.add(point.name, not failed, f"expected {expected.memory_bytes:,} bytes above the loaded model")
    result.findings += findings
    decode = max(answer.seconds - answer.first_token_seconds, 1e-9)
    result.points.append(
        Growth(
            batch=batch,
            length=length,
            new_tokens=NEW_TOKENS,
            first_token_seconds=answer.first_token_seconds,
            tokens_per_second=batch * (NEW_TOKENS - 1) / decode,
            memory_bytes=answer.peak_bytes,
            expected_memory_bytes=expected.memory_bytes,
            expected_first_token_seconds=expected.prefill_flops / tier.flops if tier.flops else 0.0,
            layers=len(tier.cut.layers),
        )
    )


def _beyond(tier: ModelTier, point: Subject, answer: Generation, expected: Expectation) -> Sequence[Finding]:
    findings = []
    most = int(expected.memory_bytes * SCALE_MEMORY_FACTOR) + SCALE_MEMORY_SLACK
    if answer.peak_bytes > most:
        sentence = (
            f"{point.name} took {answer.peak_bytes:,} bytes above the loaded model, "
            f"expected {expected.memory_bytes:,}"
        )
        findings.append(make_finding("SCL010", point, sentence))
    if tier.flops:
        seconds = expected.prefill_flops / tier.flops
        if answer.first_token_seconds > seconds * SCALE_LATENCY_FACTOR + SCALE_LATENCY_SLACK:
            sentence = (
                f"the first token of {point.name} took {answer.first_token_seconds:.2f} s, "
                f"its multiplications {seconds:.3f} s at the device's own speed"
            )
            findings.append(make_finding("SCL011", point, sentence))
    return findings


def _refused(result: GrowthResult, what: str, error: RemoteError) -> None:
    result.add(what, False, f"{error.kind}: {error.message}")
    subject = Subject(kind="tier", name=f"model {what}")
    sentence = f"the cut-down release does not run ({what}, {error.kind}): {error.message}"
    result.findings.append(make_finding("SCL013", subject, sentence, evidence=error.log[-20:]))


def _prompts(facts: InventoryFacts, batch: int, length: int) -> list[list[int]]:
    """Token ids that differ from row to row and from place to place, the same in every run."""
    vocabulary = max(facts.architecture.vocab_size, 2)
    return [[(31 * place + 7 * row + 17) % vocabulary for place in range(length)] for row in range(batch)]


def _point(batch: int, length: int) -> Subject:
    return Subject(kind="tier", name=f"batch {batch} length {length}")

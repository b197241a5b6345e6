"""What ranks answered, as checks, findings and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ..finding import Finding, Subject, make_finding
from .record import Bandwidth, Check

# Bus bandwidth over algorithm bandwidth for n ranks, nccl-tests PERFORMANCE.md.
_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "send_recv": lambda n: 1.0,
}


@dataclass
class TierResult:
    """What one tier came to.

    Attributes:
        checks: in order.
        findings: about them.
        bandwidths: of its collectives.
        flops: highest rate of a product, operations a second.
        could_not_run: why nothing was tested; empty where something was.
    """

    checks: list[Check] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    bandwidths: list[Bandwidth] = field(default_factory=list)
    flops: float = 0.0
    could_not_run: str = ""

    @property
    def outcome(self) -> str:
        """`passed`, `failed` or `could_not_run`."""
        outcomes = {check.outcome for check in self.checks}
        if "failed" in outcomes:
            return "failed"
        return "could_not_run" if self.could_not_run or "passed" not in outcomes else "passed"

    def add(self, name: str, passed: bool, detail: str) -> None:
        """Notes one check."""
        self.checks.append(Check(name=name, outcome="passed" if passed else "failed", detail=detail))


def judge_ranks(answers: Sequence[Mapping[str, Any]], result: TierResult) -> bool:
    """Whether every rank finished; findings name those that failed, not those that only waited for them."""
    lost = [answer for answer in answers if answer["outcome"] in ("died", "hung", "error")]
    for answer in lost or [answer for answer in answers if answer["outcome"] != "finished"]:
        rank = int(answer["rank"])
        sentence = f"rank {rank} of {len(answers)} {answer['outcome']}: {answer['detail']}"
        result.add(f"rank {rank}", False, sentence)
        subject = Subject(kind="tier", name=f"world {len(answers)}", rank=rank)
        result.findings.append(make_finding("SCL004", subject, sentence))
    return not lost and all(answer["outcome"] == "finished" for answer in answers)


def judge_compute(checks: Sequence[Mapping[str, Any]], capped: Sequence[str], result: TierResult) -> None:
    """Known answers of one device: right, and the same bits again."""
    for check, cap in zip(checks, capped, strict=True):
        name, detail = str(check["name"]), str(check["detail"])
        result.add(name, bool(check["passed"]) and bool(check["repeatable"]), detail or cap)
        subject = Subject(kind="tier", name=name)
        if not check["passed"]:
            code = "SCL001" if check["seconds"] else "SCL005"
            result.findings.append(make_finding(code, subject, f"{name}: {detail}"))
        elif not check["repeatable"]:
            sentence = f"{name} gave other bits when it was repeated on the same input"
            result.findings.append(make_finding("SCL002", subject, sentence))
        if check["passed"] and check["flops"] and check["operation"] == "gemm":
            result.flops = max(result.flops, check["flops"] / max(min(check["seconds"]), 1e-9))


def judge_collectives(
    answers: Sequence[Mapping[str, Any]], notes: Mapping[int, str], result: TierResult
) -> None:
    """Data of each collective on every rank, and its bus bandwidth by the slowest rank of each sample.

    Args:
        answers: of all ranks.
        notes: elements -> what they stand for.
        result: added to.
    """
    world = len(answers)
    for same in zip(*(answer["checks"] for answer in answers), strict=True):
        name = f"{same[0]['name']} world {world}"
        wrong = [(rank, check) for rank, check in enumerate(same) if not check["passed"]]
        details = "; ".join(f"rank {rank}: {check['detail']}" for rank, check in wrong)
        result.add(name, not wrong, details or f"data checked on every rank; {notes[same[0]['elements']]}")
        for rank, check in wrong:
            code = "SCL003" if check["seconds"] else "SCL005"
            subject = Subject(kind="tier", name=name, rank=rank)
            sentence = f"{name}, rank {rank}: {check['detail']}"
            result.findings.append(make_finding(code, subject, sentence))
        if not wrong and same[0]["operation"] in _FACTORS:
            result.bandwidths.append(_bandwidth(name, same, world))


def _bandwidth(name: str, same: Sequence[Mapping[str, Any]], world: int) -> Bandwidth:
    operation = same[0]["operation"]
    slowest = [max(samples) for samples in zip(*(check["seconds"] for check in same), strict=True)]
    seconds = median(slowest)
    # What nccl-tests calls the size: for a gather all that arrives, for the ring both directions.
    size = same[0]["bytes"] * {"all_gather": world, "send_recv": 2}.get(operation, 1)
    return Bandwidth(
        name=name,
        world_size=world,
        bytes=size,
        seconds=seconds,
        bus_bytes_per_second=size / max(seconds, 1e-9) * _FACTORS[operation](world),
        samples=len(slowest),
    )

"""Judges a re-run against the accepted baseline: what changed, what explains it, is it a regression."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.values import Value
from day0.tasks.numerics.record import NOT_ASKED, NumericsRecord
from day0.tasks.verdict import Verdict

from .change import Change
from .diff import diff_reports
from .model import Report, TargetResult
from .records import fingerprint_of, stage_records
from .words import listed, plural

ChangeClass = Literal[
    "model_revision", "stack_version", "reference_version", "method", "behaviour", "metric", "node",
    "finding", "verdict", "coverage", "fact",
]  # fmt: skip

# Facts that only executing the target gives; all else in its records follows from config and arithmetic.
_EXECUTED = re.compile(r"/(outcome|missing|unexpected|mismatched|generated)(/|$)|^/says/target$")
_KNOWN_STATUS = re.compile(r"^/ops/\d+/status$")
# Words that say nothing of how the target behaves, only that it was not or could not be asked.
_UNDECIDED_WORDS = frozenset(
    {"unknown", "unverified", "not_run", "unsupported", "could_not_run", "not_reached"}
)

_FACT_CLASS: Mapping[tuple[str, str], ChangeClass] = {
    ("numerics", "/reference"): "reference_version",
    ("numerics", "/noise"): "method",
    ("numerics", "/tokens"): "method",
}
_KIND_CLASS: Mapping[str, ChangeClass] = {
    "model": "model_revision",
    "revision": "model_revision",
    "version": "stack_version",
    "target": "verdict",
    "verdict": "verdict",
    "finding": "finding",
    "node": "node",
    "signature": "node",
    "metric": "metric",
}


class ClassifiedChange(Value):
    """One change with its class.

    Attributes:
        category: `model_revision`, `stack_version`, `reference_version` and `method` (other settings, another
            version of a stage) explain others; `behaviour` is what changed although none of these did; the
            rest is named after what changed.
        regression: whether this change alone makes the re-run a regression.
        change: what differs.
    """

    category: ChangeClass
    regression: bool
    change: Change


class Regression(Value):
    """The judgement of a re-run.

    Attributes:
        verdict: `fail` for a regression, `unverified` where it could not be decided, else `pass`.
        headline: one sentence.
        changes: all changes, regressions first.
        undecided: why it could not be decided; empty where it could.
    """

    verdict: Verdict
    headline: str
    changes: Sequence[ClassifiedChange]
    undecided: Sequence[str] = ()

    @property
    def regression(self) -> bool:
        """Whether the re-run is a regression."""
        return self.verdict is Verdict.FAIL


def judge_regression(baseline: Report, current: Report, store: RunStore | None = None) -> Regression:
    """Holds a run against its baseline.

    A regression is: a verdict, finding or node that now fails and did not; or any behaviour of the target
    (outcome, number, output) that changed although model, stack, reference and method are the same.

    Args:
        baseline: the accepted report.
        current: the later one.
        store: in which both runs left their signatures (see `diff_reports`).
    """
    diff = diff_reports(baseline, current, store)
    explained = {result.target: _explanations(baseline, current, result.target) for result in current.targets}
    listing = [_classify(change, explained.get(change.target, frozenset())) for change in diff.changes]
    changes = sorted(listing, key=lambda item: not item.regression)
    undecided = _undecided(baseline, current)
    red = any(item.regression for item in changes)
    verdict = Verdict.FAIL if red else Verdict.UNVERIFIED if undecided else Verdict.PASS
    return Regression(
        verdict=verdict,
        headline=_headline(changes, undecided, explained),
        changes=tuple(changes),
        undecided=tuple(undecided),
    )


def _explanations(baseline: Report, current: Report, target: str) -> frozenset[ChangeClass]:
    """What changed around the target and may explain another behaviour."""
    before, after = _result(baseline, target), _result(current, target)
    found: set[ChangeClass] = set()
    old, new = baseline.inventory.facts.identity, current.inventory.facts.identity
    # A folder's revision follows inode and mtime, so only what was read tells whether the model changed.
    if (old.config_digest, old.weights_digest) != (new.config_digest, new.weights_digest):
        found.add("model_revision")
    if before is None or after is None:
        return frozenset(found)
    if fingerprint_of(before) != fingerprint_of(after):
        found.add("stack_version")
    if _compared(before) and _compared(after) and _reference(before) != _reference(after):
        found.add("reference_version")
    if _method(before, after) != _method(after, before):
        found.add("method")
    return frozenset(found)


def _result(report: Report, target: str) -> TargetResult | None:
    return next((result for result in report.targets if result.target == target), None)


def _reference(result: TargetResult) -> str:
    numerics = result.stages.numerics
    return numerics.facts.reference if numerics else ""


def _compared(result: TargetResult) -> bool:
    """Whether numerics came to compare anything."""
    return bool(result.stages.numerics and result.stages.numerics.facts.blocks)


def _method(result: TargetResult, other: TargetResult) -> Mapping[str, object]:
    """Versions of the stages' code and, where both compared something, the inputs they chose."""
    numerics, minimal = result.stages.numerics, result.stages.minimal
    versions = {
        stage: record.stage_version for stage, record in stage_records(result.stages).items() if record
    }
    if not (_compared(result) and _compared(other)):
        return {}
    return {
        "versions": versions,
        "noise": numerics.facts.noise if numerics else "",
        "tokens": numerics.facts.tokens if numerics else 0,
        "prompts": _prompts(numerics),
        "prompt": numerics.facts.says.prompt if numerics and numerics.facts.says else "",
        "batch": minimal.facts.tokens if minimal else (),
    }


def _prompts(numerics: NumericsRecord | None) -> Sequence[str]:
    logits = numerics.facts.logits if numerics else None
    return [prompt.name for prompt in logits.prompts if prompt.reason != NOT_ASKED] if logits else []


def _classify(change: Change, explained: frozenset[ChangeClass]) -> ClassifiedChange:
    if change.target and not explained and _is_behaviour(change):
        return ClassifiedChange(category="behaviour", regression=True, change=change)
    return ClassifiedChange(category=_category(change), regression=change.fails, change=change)


def _category(change: Change) -> ChangeClass:
    if change.kind == "fact":
        return _FACT_CLASS.get(
            (change.stage, change.subject), "coverage" if change.stage == "coverage" else "fact"
        )
    return _KIND_CLASS[change.kind]


def _is_behaviour(change: Change) -> bool:
    if not _UNDECIDED_WORDS.isdisjoint({str(change.before), str(change.after)}):
        return False
    if change.kind in ("metric", "node", "signature"):
        return True
    if change.kind != "fact":
        return False
    if change.stage == "coverage":
        return bool(_KNOWN_STATUS.match(change.subject))
    return change.stage in ("minimal", "numerics", "scale") and bool(_EXECUTED.search(change.subject))


def _undecided(baseline: Report, current: Report) -> list[str]:
    reasons = []
    for result in current.targets:
        if _result(baseline, result.target) is None:
            reasons.append(f"{result.target} has no baseline")
        for stage, record in stage_records(result.stages).items():
            now = record.verdict if record else Verdict.UNVERIFIED
            if now in (Verdict.UNVERIFIED, Verdict.BLOCKED) and not _was(baseline, result.target, stage, now):
                reasons.append(f"{result.target} {stage} is {now} and was not in the baseline")
    reasons += [
        f"{result.target} is in the baseline and was not run"
        for result in baseline.targets
        if _result(current, result.target) is None
    ]
    return reasons


def _was(baseline: Report, target: str, stage: str, verdict: Verdict) -> bool:
    before = _result(baseline, target)
    record = stage_records(before.stages)[stage] if before else None
    return before is not None and (record.verdict if record else Verdict.UNVERIFIED) is verdict


def _headline(
    changes: Sequence[ClassifiedChange],
    undecided: Sequence[str],
    explained: Mapping[str, frozenset[ChangeClass]],
) -> str:
    reasons = sorted({reason.replace("_", " ") for found in explained.values() for reason in found})
    around = f" ({listed(reasons)} changed too)" if reasons else ""
    red = [item for item in changes if item.regression]
    if red:
        first = red[0]
        unexplained = " under an unchanged fingerprint" if first.category == "behaviour" else ""
        more = f", and {len(red) - 1} more" if red[1:] else ""
        return f"Regression{unexplained}: {first.change.text}{more}{around}."
    if undecided:
        return f"Could not be decided: {listed(undecided, 2)}."
    if not changes:
        return "No change since the baseline."
    return f"No regression; {plural(len(changes), 'change')} since the baseline{around}."

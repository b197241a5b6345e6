"""What each needed registry row comes to, and how rows add up to one entry an operator and dtype tuple."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Fingerprint, digest
from day0.adapters.registries.blame import owner_of
from day0.adapters.registries.registry import Known, Registry
from day0.adapters.registries.row import CHECKS, DECLARED, Constraint, RegistryRow

from .needs import Need
from .rebuilt import Rebuilt
from .record import CoveredOp, Gap

SOUND = ("native", "decomposed")
"""What the target computes as it should, by itself or rebuilt from others."""
RUNS = (*SOUND, "fallback", "slow")
"""What gives right values, at whatever cost."""

_BEST_FIRST = (
    "native", "decomposed", "slow", "fallback", "unknown",
    "double_fault", "wrong", "missing", "hang", "crash",
)  # fmt: skip

_CHECK_WORDS = {
    "example": "one call",
    "signatures": "other calls",
    "ranges": "other values",
    "attributes": "other attributes",
}
"""What is tried of a row, for a person."""

Key = tuple[str, tuple[str, ...], str]
"""Operator, dtypes, variant."""


@dataclass(frozen=True)
class State:
    """One needed row and what is known of it.

    Attributes:
        need: the row with the model's calls.
        known: what the registry says; None: nothing.
        rebuilt: how it can be rebuilt, where it is missing and can.
    """

    need: Need
    known: Known | None
    rebuilt: Rebuilt | None = None

    @property
    def status(self) -> str:
        """Out of the design's vocabulary; what nobody ran is `unknown`, whatever a list declares."""
        if self.known is None or self.known.grade == DECLARED:
            return "unknown"
        status = "missing" if self.refused or self.known.row.status == "decomposed" else self.known.row.status
        return "decomposed" if status == "missing" and self.rebuilt else status

    @property
    def refused(self) -> Constraint | None:
        """What the row says against one of these very calls, although the operator runs otherwise."""
        if self.known is None or self.known.row.status != "native":
            return None
        return self.known.row.refusal(call.signature for call in self.need.calls)

    @property
    def key(self) -> Key:
        """Of the entry that it is a part of."""
        call = self.need.calls[0]
        return call.op, tuple(call.dtypes), call.variant


def half_tried(row: RegistryRow) -> bool:
    """Whether a row is right as far as it was tried, and more of it is to be tried.

    What a sweep met beside the model is never tried further.
    """
    return row.status in RUNS and row.generator != "sweep" and not set(CHECKS) <= set(row.checks)


def states_of(
    needs: Sequence[Need],
    registry: Registry,
    fingerprint: Fingerprint,
    rebuilt: Mapping[str, Rebuilt] | None = None,
) -> list[State]:
    """Each need with what the registry knows of it.

    Args:
        needs: of the model.
        registry: of the target.
        fingerprint: of the target.
        rebuilt: row key -> how a missing one can be rebuilt.
    """
    ways = rebuilt or {}
    return [State(need, registry.lookup(need.key, fingerprint), ways.get(need.key)) for need in needs]


def grouped(states: Sequence[State]) -> Mapping[Key, Sequence[State]]:
    """The states of each entry, in the order of the needs."""
    groups: dict[Key, list[State]] = {}
    for state in states:
        groups.setdefault(state.key, []).append(state)
    return groups


def worst(group: Sequence[State]) -> State:
    """The state that speaks for an entry."""
    return max(group, key=lambda state: _BEST_FIRST.index(state.status))


def covered_ops(states: Sequence[State], spec: TargetSpec) -> tuple[CoveredOp, ...]:
    """One entry an operator, dtype tuple and variant, by falling impact; of several rows the worst speaks."""
    listed = [_covered(group, spec) for group in grouped(states).values()]
    return tuple(sorted(listed, key=lambda entry: (-entry.impact, entry.op, entry.dtypes, entry.variant)))


def _covered(group: Sequence[State], spec: TargetSpec) -> CoveredOp:
    state = worst(group)
    calls = [call for one in group for call in one.need.calls]
    phases = {phase: None for one in group for phase in one.need.phases}
    modules = {path: None for call in calls for path in (call.modules or [call.module]) if path}
    row = state.known.row if state.known else None
    layer = _layer(state)
    return CoveredOp(
        op=calls[0].op,
        dtypes=tuple(calls[0].dtypes),
        variant=calls[0].variant,
        attributes=dict(state.need.example.attributes),
        status=state.status,
        grade=state.known.grade if state.known else "",
        evidence=evidence_of(state),
        layer=layer,
        owner=((row.owner if row else "") or owner_of(spec.stack, spec.device, layer)) if layer else "",
        impact=round(sum(one.need.impact for one in group), 6),
        calls=sum(call.count for call in calls),
        phases=tuple(phases),
        module=calls[0].module,
        modules=tuple(modules) if len(modules) > 1 else (),
        signatures=len({call.signature for call in calls}),
    )


def _layer(state: State) -> str:
    if state.known is None or state.status in ("native", "unknown"):
        return ""
    return state.known.row.layer or ("library" if state.refused else "")


def gaps_of(ops: Sequence[CoveredOp]) -> tuple[Gap, ...]:
    """The operators that are not native, those with the largest share of the work first."""
    return tuple(plain_gap(entry) for entry in ops if entry.status != "native")


def plain_gap(entry: CoveredOp) -> Gap:
    """What an operator's entry alone says of the gap."""
    return Gap(
        id=gap_id(key_of(entry)),
        op=entry.op,
        dtypes=entry.dtypes,
        variant=entry.variant,
        status=entry.status,
        impact=entry.impact,
        layer=entry.layer,
        owner=entry.owner,
        workaround=entry.workaround,
        evidence=entry.evidence,
    )


def key_of(entry: CoveredOp) -> Key:
    """What distinguishes an entry from all others."""
    return entry.op, tuple(entry.dtypes), entry.variant


def gap_id(key: Key) -> str:
    """A stable short name."""
    return digest(list(key))[:10]


def evidence_of(state: State) -> str:
    """One line that says what shows the status."""
    if state.known is None:
        return "nobody has tried it under this fingerprint family"
    row, refused = state.known.row, state.refused
    if state.known.grade == DECLARED:
        return f"a support list declares it {row.status}; nobody has tried it"
    if refused is not None:
        shapes = _shapes(refused.shapes) if refused.shapes else "these attributes"
        return "; ".join(
            part for part in (f"runs otherwise, but refuses {shapes}: {refused.reason}", *_notes(row)) if part
        )
    parts = [row.reason]
    if state.rebuilt:
        leaves = ", ".join(f"{count} x {op}" for op, count in state.rebuilt.leaves.items())
        parts.append(f"{'' if state.status == 'decomposed' else 'can be '}rebuilt from {leaves}")
    parts += [_deviation(row), _checked_so_far(row), *_notes(row)]
    if row.probe:
        parts.append(f"probe {row.probe[:8]} seed {row.seed} shapes {_shapes(row.shapes)}")
    return "; ".join(part for part in parts if part)


def _notes(row: RegistryRow) -> tuple[str, ...]:
    until = f" until {row.until}" if row.until else ""
    return (
        f"known: {row.issue}" if row.issue else "",
        f"accepted{until}: {row.waiver}" if row.waiver else "",
    )


def _deviation(row: RegistryRow) -> str:
    if row.error is None or row.tolerance is None or row.status != "native":
        return ""
    return f"error {row.error:.2g} of {row.tolerance:.2g} allowed" if row.tolerance else "exact"


def _checked_so_far(row: RegistryRow) -> str:
    if row.status not in RUNS or set(CHECKS) <= set(row.checks):
        return ""
    done = [words for check, words in _CHECK_WORDS.items() if check in row.checks]
    left = [words for check, words in _CHECK_WORDS.items() if check not in row.checks]
    return f"tried with {', '.join(done) or 'nothing that is recorded'}; not yet with {', '.join(left)}"


def _shapes(shapes: Sequence[Sequence[int]]) -> str:
    return "x".join(str(list(shape)).replace(" ", "") for shape in shapes) or "none"

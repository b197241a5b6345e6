"""What each needed registry row comes to, and how rows add up to one entry an operator and dtype tuple."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from day0.adapters.base.values import Fingerprint
from day0.adapters.registries.registry import Known, Registry
from day0.adapters.registries.row import RegistryRow

from .needs import Need
from .record import CoveredOp, Gap

SOUND = ("native", "decomposed")

_BEST_FIRST = (
    "native", "decomposed", "slow", "fallback", "unknown",
    "double_fault", "wrong", "missing", "hang", "crash",
)  # fmt: skip

_SWITCHES = {
    "aten.scaled_dot_product_attention.default": "attn=eager",
    "aten._grouped_mm.default": "experts=batched_mm",
}
"""Operators that a transformers switch replaces by others: the option to give the target."""


@dataclass(frozen=True)
class State:
    """One needed row and what is known of it; nothing known is `unknown`."""

    need: Need
    known: Known | None

    @property
    def status(self) -> str:
        """Out of the design's vocabulary."""
        return self.known.row.status if self.known else "unknown"


def states_of(needs: Sequence[Need], registry: Registry, fingerprint: Fingerprint) -> list[State]:
    """Each need with what the registry knows of it."""
    return [State(need, registry.lookup(need.key, fingerprint)) for need in needs]


def covered_ops(
    states: Sequence[State], registry: Registry, fingerprint: Fingerprint
) -> tuple[CoveredOp, ...]:
    """One entry an operator and dtype tuple, by falling impact; of several rows the worst one speaks."""
    groups: dict[tuple[str, tuple[str, ...]], list[State]] = {}
    for state in states:
        example = state.need.calls[0]
        groups.setdefault((example.op, tuple(example.dtypes)), []).append(state)
    listed = [_covered(group, registry, fingerprint) for group in groups.values()]
    return tuple(sorted(listed, key=lambda entry: (-entry.impact, entry.op, entry.dtypes)))


def _covered(group: Sequence[State], registry: Registry, fingerprint: Fingerprint) -> CoveredOp:
    worst = max(group, key=lambda state: _BEST_FIRST.index(state.status))
    calls = [call for state in group for call in state.need.calls]
    phases = {phase: None for state in group for phase in state.need.phases}
    known = worst.known
    return CoveredOp(
        op=calls[0].op,
        dtypes=tuple(calls[0].dtypes),
        status=worst.status,
        grade=known.grade if known and worst.status != "unknown" else "",
        evidence=evidence_of(known.row) if known else "nobody has tried it under this fingerprint family",
        workaround="" if worst.status in SOUND else workaround_of(worst, registry, fingerprint),
        impact=round(sum(state.need.impact for state in group), 6),
        calls=sum(call.count for call in calls),
        phases=tuple(phases),
        module=calls[0].module,
        signatures=len({call.signature for call in calls}),
    )


def gaps_of(ops: Sequence[CoveredOp]) -> tuple[Gap, ...]:
    """The operators that are neither native nor rebuilt, those with the largest share of the work first."""
    return tuple(
        Gap(
            op=entry.op,
            dtypes=entry.dtypes,
            status=entry.status,
            impact=entry.impact,
            workaround=entry.workaround,
            evidence=entry.evidence,
        )
        for entry in ops
        if entry.status not in SOUND
    )


def evidence_of(row: RegistryRow) -> str:
    """One line that says what shows the status."""
    probe = f"probe {row.probe[:8]} seed {row.seed} shapes {_shapes(row.shapes)}" if row.probe else ""
    parts = [row.reason, f"rebuilt from {', '.join(row.via)}" if row.via else ""]
    if row.error is not None and row.tolerance is not None and row.status == "native":
        parts.append(f"error {row.error:.2g} of {row.tolerance:.2g} allowed" if row.tolerance else "exact")
    return "; ".join(part for part in [*parts, probe] if part)


def _shapes(shapes: Sequence[Sequence[int]]) -> str:
    return "x".join(str(list(shape)).replace(" ", "") for shape in shapes) or "none"


def workaround_of(state: State, registry: Registry, fingerprint: Fingerprint) -> str:
    """The smallest known way around: a switch of the model, a cast to a dtype that is native, or none.

    Returns:
        `attn=eager`, `experts=batched_mm` (options of the target), `cast=fp32`, or empty.
    """
    example = state.need.calls[0]
    if state.status == "unknown":
        return ""
    if example.op in _SWITCHES:
        return _SWITCHES[example.op]
    for dtype in ("fp32", "bf16", "fp16"):
        if dtype not in example.dtypes and _native_in(example.op, dtype, registry, fingerprint):
            return f"cast={dtype}"
    return "sample=host" if state.need.phases == ["sampling"] else ""


def _native_in(op: str, dtype: str, registry: Registry, fingerprint: Fingerprint) -> bool:
    families: Mapping[str, str] = {key: value.family for key, value in registry.fingerprints.items()}
    return any(
        row.op == op
        and row.status == "native"
        and dtype in row.dtypes
        and families.get(row.fingerprint) == fingerprint.family
        for row in registry.rows.values()
    )

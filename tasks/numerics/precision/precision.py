"""Which roles tolerate which precision: a policy with its measured cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from day0.adapters.base.dtypes import BITS
from day0.adapters.base.values import json_number

from ... import thresholds
from ..record_parts import Precision, PrecisionRow
from ..sequences import active_weights
from ..walk.case import Case
from .lowerings import lowerings_of
from .precision_step import Local, Single, Swept
from .precision_walk import PrecisionWalks


@dataclass(frozen=True)
class Trial:
    """One role in one precision.

    Attributes:
        role: out of `ROLES`.
        dtype: short name.
        local: at its nodes.
        kl: nats per position at the output; None where it was not measured; NaN where it was not finite.
        top1: agreement at the output; NaN where it was not measured.
        tolerates: whether it may be lowered.
    """

    role: str
    dtype: str
    local: Local
    kl: float | None
    top1: float
    tolerates: bool

    @property
    def cost(self) -> float:
        """What trials of one sweep are ranked by, infinite where nothing finite is known."""
        known = self.local.ratio if self.kl is None else self.kl
        return math.inf if math.isnan(known) else known


def sweep_precision(case: Case, dtypes: Sequence[str]) -> Precision:
    """Tries each role of the model in each precision, then what they tolerate all at once.

    Args:
        case: its main pass is what runs, on the CPU alone; the target itself is not asked.
        dtypes: out of `LOWERINGS`, or `fp8`.

    Raises:
        PrecisionError: E464, a dtype is none of these.
        ArmError: the reference failed.
        CheckpointError: a node's weights are not there.
        SkeletonError: the forward failed between nodes.
    """
    lowerings = lowerings_of(dtypes)
    with PrecisionWalks(case) as walks:
        propagate = affordable(case, 2 + len(lowerings) * len(walks.roles))
        swept = walks.sweep(lowerings, propagate=propagate)
        trials = trials_of(swept)
        policy, kl = policy_of(trials, walks.roles, case.dtype), math.nan
        if swept.logits is not None and affordable(case, 1):
            limit = bar(swept)
            for candidate in raised(policy, trials, case.dtype):
                policy = candidate
                kl = walks.cost(policy, swept.logits).kl
                if kl <= limit:
                    break
    texts = {lowering.dtype: lowering.text for lowering in lowerings}
    return Precision(
        rows=tuple(_row(trial, texts[trial.dtype]) for trial in trials),
        policy=policy,
        kl=json_number(kl),
    )


def affordable(case: Case, streams: int) -> bool:
    """Whether so many forwards of the whole model may be made."""
    ids = case.passes[0].ids if case.passes else (case.tokens.ids,)
    tokens = sum(len(row) for row in ids)
    return streams * tokens * active_weights(case.skeleton) <= thresholds.NUMERICS_SWEEP_WORK


def bar(swept: Swept) -> float:
    """Nats per position at the output up to which a lower precision is tolerated."""
    floor = thresholds.NUMERICS_SWEEP_KL
    if swept.information > 0:
        floor = min(floor, thresholds.NUMERICS_SWEEP_KL_SHARE * swept.information)
    own = swept.base.kl if swept.base is not None and math.isfinite(swept.base.kl) else 0.0
    return max(thresholds.NUMERICS_SWEEP_FACTOR * own, floor)


def trials_of(swept: Swept) -> list[Trial]:
    """What was tried, judged at the output where that was measured and else at the nodes."""
    limit = bar(swept)
    return [_trial(single, local, swept, limit) for single, local in swept.local.items()]


def policy_of(trials: Sequence[Trial], roles: Sequence[str], base: str) -> dict[str, str]:
    """Each role's lowest tolerated precision; the target's own where it tolerates none lower."""
    return {role: _ladder(trials, role, base)[0] for role in roles}


def raised(policy: Mapping[str, str], trials: Sequence[Trial], base: str) -> Iterator[dict[str, str]]:
    """The policy, then each time with the role raised that costs most by itself, until none is lowered.

    Args:
        policy: role -> precision.
        trials: what each costs by itself.
        base: precision of the target.
    """
    costs = {(trial.role, trial.dtype): trial.cost for trial in trials}
    now = dict(policy)
    yield dict(now)
    while lowered := [role for role, dtype in now.items() if dtype != base]:
        role = max(lowered, key=lambda role: costs[role, now[role]])
        ladder = _ladder(trials, role, base)
        now[role] = ladder[ladder.index(now[role]) + 1]
        yield dict(now)


def _ladder(trials: Sequence[Trial], role: str, base: str) -> list[str]:
    """Tolerated precisions narrower than the target's, the narrowest first and of each width the cheapest."""
    cheapest: dict[int, Trial] = {}
    for trial in trials:
        width = BITS[trial.dtype]
        if trial.role != role or not trial.tolerates or width >= BITS[base]:
            continue
        if width not in cheapest or trial.cost < cheapest[width].cost:
            cheapest[width] = trial
    return [*(cheapest[width].dtype for width in sorted(cheapest)), base]


def _trial(single: Single, local: Local, swept: Swept, limit: float) -> Trial:
    cost = swept.costs.get(single)
    if cost is not None:
        tolerates = cost.kl <= limit
    else:
        tolerates = (
            local.ratio <= thresholds.NUMERICS_SWEEP_RATIO or local.rel_l2 <= thresholds.NUMERICS_SWEEP_REL_L2
        )
    kl, top1 = (cost.kl, cost.top1) if cost is not None else (None, math.nan)
    return Trial(*single, local, kl, top1, tolerates)


def _row(trial: Trial, scheme: str) -> PrecisionRow:
    return PrecisionRow(
        role=trial.role,
        dtype=trial.dtype,
        scheme=scheme,
        rel_l2=json_number(trial.local.rel_l2),
        ratio=json_number(trial.local.ratio),
        kl=json_number(math.nan if trial.kl is None else trial.kl),
        top1=json_number(trial.top1),
        worst=trial.local.worst,
        bytes=trial.local.bytes,
        tolerates=trial.tolerates,
    )

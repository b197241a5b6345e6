"""Builds a target's registry: tries the operators of a model or of the seed set and keeps what was learnt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target import Target
from day0.adapters.base.values import Fingerprint, Value
from day0.adapters.registries.files import add_to_store, load_registry, store_path
from day0.adapters.registries.registry import Registry

from .needs import Need, group
from .prober import Prober
from .record import CoveredOp, Gap
from .statuses import covered_ops, gaps_of, states_of


class Probed(Value):
    """What a probe of a target came to.

    Attributes:
        target: as named.
        fingerprint: under which the rows hold.
        statuses: status -> number of operators.
        ops: every operator with its dtype tuple.
        gaps: those neither native nor rebuilt, by falling share of the work.
        known_before: rows that needed no probe.
        probed: rows tried now.
        left: rows for which the time was too short.
        seconds: spent on trying.
        registry: file in the run store that holds the rows.
    """

    target: str
    fingerprint: Fingerprint
    statuses: Mapping[str, int]
    ops: Sequence[CoveredOp]
    gaps: Sequence[Gap]
    known_before: int
    probed: int
    left: int
    seconds: float
    registry: str


def probe(
    calls: Iterable[OperatorCall],
    target: Target,
    store: RunStore,
    *,
    budget: float = float("inf"),
    refresh: bool = False,
    progress: Progress = silent,
) -> Probed:
    """Tries operators on a target and lays what was learnt over the registry in the run store.

    Rows measured under this very fingerprint are left alone, so that a probe that was killed goes on where it
    was. Rows inherited from a related version come first, then those nobody has tried; within each, by share
    of the work.

    Args:
        calls: captured, in the dtype of the target.
        target: to try.
        store: holds the registry.
        budget: seconds.
        refresh: whether measured rows are tried again too.
        progress: told of each row.
    """
    fingerprint = target.describe().fingerprint
    registry = load_registry(store, target.spec.registry_name)
    needs = group(calls)
    due = _due(needs, registry, fingerprint, refresh=refresh)
    prober = Prober(
        target,
        fingerprint,
        registry,
        budget=budget,
        keep=lambda learnt: add_to_store(store, learnt),
        progress=progress,
    )
    prober.run(due)
    states = states_of(needs, prober.registry, fingerprint)
    ops = covered_ops(states, prober.registry, fingerprint)
    return Probed(
        target=str(target.spec),
        fingerprint=fingerprint,
        statuses=dict(sorted(Counter(entry.status for entry in ops).items())),
        ops=ops,
        gaps=gaps_of(ops),
        known_before=len(needs) - len(due),
        probed=prober.probed,
        left=sum(_grade(need, prober.registry, fingerprint) != "measured" for need in due),
        seconds=prober.seconds,
        registry=store.path(store_path(target.spec.registry_name)),
    )


def _due(needs: Sequence[Need], registry: Registry, fingerprint: Fingerprint, *, refresh: bool) -> list[Need]:
    order = {"inherited": 0, "declared": 1, "": 2, "measured": 3}
    graded = [(order[_grade(need, registry, fingerprint)], need) for need in needs]
    return [need for rank, need in sorted(graded, key=lambda pair: pair[0]) if refresh or rank < 3]


def _grade(need: Need, registry: Registry, fingerprint: Fingerprint) -> str:
    known = registry.lookup(need.key, fingerprint)
    return known.grade if known else ""

"""Builds a target's registry: tries the operators of a model or of the seed set and keeps what was learnt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from day0.adapters.base.errors import UnsupportedError
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target import Target, TargetDescription
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Fingerprint, Value
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.captures import load_or_capture
from day0.adapters.registries.files import add_to_store, load_registry, store_path
from day0.adapters.registries.registry import Registry
from day0.adapters.targets.kept_description import described
from day0.adapters.targets.open import open_target

from ..job import RunOptions
from ..verdict import Verdict
from .needs import Need, group, on_target, request_of
from .record import CoveredOp, Gap
from .statuses import RUNS, covered_ops, gaps_of, half_tried, states_of

if TYPE_CHECKING:
    from .prober import Prober


class Probed(Value):
    """What a probe of a target came to.

    Attributes:
        target: as named.
        fingerprint: under which the rows hold.
        verdict: `fail` for an operator that is missing, wrong or kills the worker, `unverified` for an
            undecided one, `warn` for one that is slow or runs on the host.
        statuses: status -> number of operators.
        ops: every operator with its dtype tuple.
        gaps: those neither native nor rebuilt, by falling share of the work.
        known_before: rows that needed no probe.
        probed: rows tried now.
        left: rows for which the time was too short, or of which not everything could be tried.
        beside: rows tried that nobody asked for, in other dtypes and ranks.
        seconds: spent on trying.
        first_seconds: of them, until every row had its first call; null: the time did not suffice.
        registry: file in the run store that holds the rows.
        unread: what could not be read of the rows known before, a sentence each.
    """

    target: str
    fingerprint: Fingerprint
    verdict: Verdict
    statuses: Mapping[str, int]
    ops: Sequence[CoveredOp]
    gaps: Sequence[Gap]
    known_before: int
    probed: int
    left: int
    beside: int
    seconds: float
    first_seconds: float | None
    registry: str
    unread: Sequence[str] = ()

    def lines(self) -> Iterator[str]:
        """For a person: counts first, then the gaps."""
        counts = ", ".join(f"{count} {status}" for status, count in self.statuses.items())
        yield f"{self.target}: {self.verdict}; operators: {counts or 'none'}"
        yield (
            f"  {self.probed} rows tried in {self.seconds:.0f} s, {self.known_before} known before, "
            f"{self.left} left for another time"
        )
        if self.beside:
            yield f"  {self.beside} more in other dtypes and ranks"
        for gap in self.gaps:
            around = f"; way around: {gap.workaround}" if gap.workaround else ""
            yield f"  {gap.status} {gap.op}({','.join(gap.dtypes)}): {gap.evidence}{around}"
        yield from (f"  {unread}; passed over" for unread in self.unread)
        yield f"registry: {self.registry}"


def probe_target(
    model: str | None,
    spec: TargetSpec,
    store: RunStore,
    options: RunOptions,
    *,
    revision: str | None = None,
    refresh: bool = False,
    sweep: bool = False,
    progress: Progress = silent,
    log: Path | None = None,
) -> Probed:
    """What `day0 probe [MODEL] --target T` does.

    Args:
        model: whose operators are tried; None: those of the seed set and, where they are installed, of
            torch's own operator tests.
        spec: the target.
        store: holds the registry.
        options: of the run; `probe_budget` bounds the time.
        revision: of the model.
        refresh: whether measured rows are tried again too.
        sweep: whether other dtypes and ranks are tried too while time is left.
        progress: told of each batch.
        log: of the worker.

    Raises:
        Day0Error: the release cannot be opened or built, the target is unknown or does not start.
        UnsupportedError: E502, the target runs no single operators.
    """
    calls = _calls_of(model, revision, spec, store)
    with open_target(
        spec,
        timeout=options.node_timeout,
        memory_limit=options.memory_limit,
        command=options.worker_command,
        log=log,
    ) as target:
        description = described(spec, store, target.describe, command=options.worker_command)
        if "op" not in description.capabilities:
            raise UnsupportedError(
                f"{spec} runs no single operators, so none can be tried",
                code="E502",
                remedy="The minimal run still says whether nodes execute.",
            )
        return probe(
            calls,
            target,
            store,
            description=description,
            budget=options.probe_budget,
            refresh=refresh,
            sweep=sweep,
            extra=None if model else opinfo_needs(spec),
            progress=progress,
        )


def _calls_of(
    model: str | None, revision: str | None, spec: TargetSpec, store: RunStore
) -> Sequence[OperatorCall]:
    if model is None:
        from .seeds import seed_calls

        return on_target(seed_calls(), "bf16", spec)
    capture = load_or_capture(open_release(model, revision), store, request_of(spec))
    return on_target(capture.calls, capture.captured_dtype, spec)


def opinfo_needs(spec: TargetSpec) -> list[Need]:
    """What torch's own operator tests call, in the target's dtype; nothing where they are not installed."""
    from .opinfo import is_installed, opinfo_calls

    return group(on_target(opinfo_calls(), "fp32", spec)) if is_installed() else []


def probe(
    calls: Iterable[OperatorCall],
    target: Target,
    store: RunStore,
    *,
    description: TargetDescription | None = None,
    budget: float = float("inf"),
    refresh: bool = False,
    sweep: bool = False,
    extra: Sequence[Need] | None = None,
    progress: Progress = silent,
) -> Probed:
    """Tries operators on a target and lays what was learnt over the registry in the run store.

    Rows measured under this very fingerprint are left alone, so that a probe that was killed goes on where it
    was. Rows inherited from a related version come first, then those that a support list declares, then those
    of which nothing is known; within each, by share of the work. Where all is known, no worker is started.

    Args:
        calls: captured, in the dtype of the target.
        target: to try.
        store: holds the registry.
        description: of the target; None: it is asked.
        budget: seconds.
        refresh: whether measured rows are tried again too.
        sweep: whether other dtypes and ranks are tried too while time is left.
        extra: rows that nobody asked for, which are tried after those of the calls.
        progress: told of each batch.
    """
    description = description or target.describe()
    fingerprint = description.fingerprint
    registry = load_registry(store, target.spec.registry_name)
    needs = group(calls)
    due = due_of(needs, registry, fingerprint, refresh=refresh)
    known = _without(registry, due, fingerprint) if refresh else registry
    tried = _Tried(known)
    if due or extra or sweep:
        from .prober import Prober  # imports torch, which nothing known needs

        prober = Prober(
            target,
            fingerprint,
            known,
            budget=budget,
            keep=lambda learnt: add_to_store(store, learnt),
            progress=progress,
        )
        dtypes = description.dtypes.get("activations", ()) if sweep else ()
        tried = _tried(prober, needs, due, extra or (), dtypes, fingerprint)
    ops = covered_ops(states_of(needs, tried.registry, fingerprint), target.spec)
    left = len(due_of(needs, tried.registry, fingerprint))
    return Probed(
        target=str(target.spec),
        fingerprint=fingerprint,
        verdict=_verdict(ops, left),
        statuses=dict(sorted(Counter(entry.status for entry in ops).items())),
        ops=ops,
        gaps=gaps_of(ops),
        known_before=len(needs) - len(due),
        probed=tried.probed,
        left=left,
        beside=tried.beside,
        seconds=tried.seconds,
        first_seconds=tried.first_seconds,
        registry=store.path(store_path(target.spec.registry_name)),
        unread=registry.unread,
    )


@dataclass(frozen=True)
class _Tried:
    registry: Registry
    probed: int = 0
    beside: int = 0
    seconds: float = 0.0
    first_seconds: float | None = None


def _tried(
    prober: Prober,
    needs: Sequence[Need],
    due: Sequence[Need],
    extra: Sequence[Need],
    dtypes: Sequence[str],
    fingerprint: Fingerprint,
) -> _Tried:
    """What is due, then what nobody asked for, then the neighbours in these dtypes."""
    prober.run(due)
    probed, first_seconds = prober.probed, prober.first_seconds
    prober.run(due_of(extra, prober.registry, fingerprint), generator="opinfo")
    if dtypes:
        from .sweep import neighbours

        beside = due_of(neighbours(needs, dtypes), prober.registry, fingerprint)
        prober.run(beside, deep=False, generator="sweep")
    return _Tried(prober.registry, probed, prober.probed - probed, prober.seconds, first_seconds)


def due_of(
    needs: Sequence[Need], registry: Registry, fingerprint: Fingerprint, *, refresh: bool = False
) -> list[Need]:
    """What is to be tried, the first thing first: rows that nobody tried here, and those half tried."""
    due = [need for need in needs if refresh or _wants(need, registry, fingerprint)]
    return sorted(due, key=lambda need: registry.probe_rank(need.key, fingerprint))


def _wants(need: Need, registry: Registry, fingerprint: Fingerprint) -> bool:
    if registry.needs_probe(need.key, fingerprint, [call.signature for call in need.calls]):
        return True
    return half_tried(registry.rows[need.key, fingerprint.digest])


def _without(registry: Registry, needs: Sequence[Need], fingerprint: Fingerprint) -> Registry:
    gone = {(need.key, fingerprint.digest) for need in needs}
    kept = {place: row for place, row in registry.rows.items() if place not in gone}
    return Registry(registry.name, kept, registry.fingerprints, registry.declared)


def _verdict(ops: Sequence[CoveredOp], left: int) -> Verdict:
    statuses = {entry.status for entry in ops}
    if statuses - {*RUNS, "unknown"}:
        return Verdict.FAIL
    if left or "unknown" in statuses:
        return Verdict.UNVERIFIED
    return Verdict.WARN if statuses - {"native", "decomposed"} else Verdict.PASS

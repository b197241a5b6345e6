"""Builds a target's registry: tries the operators of a model or of the seed set and keeps what was learnt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from day0.adapters.base.errors import UnsupportedError
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target import Target
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Fingerprint, Value
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.captures import load_or_capture
from day0.adapters.registries.files import add_to_store, load_registry, store_path
from day0.adapters.registries.registry import Registry
from day0.adapters.targets.open import open_target

from ..job import RunOptions
from ..verdict import Verdict
from .needs import Need, group, on_target, request_of
from .prober import Prober
from .record import CoveredOp, Gap
from .statuses import SOUND, covered_ops, gaps_of, states_of


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

    @property
    def verdict(self) -> Verdict:
        """`fail` for a row that is missing, wrong or kills the worker, `unverified` for an undecided one."""
        statuses = set(self.statuses) - set(SOUND)
        if statuses - {"unknown"}:
            return Verdict.FAIL
        return Verdict.UNVERIFIED if statuses or self.left else Verdict.PASS

    def lines(self) -> Iterator[str]:
        """For a person: counts first, then the gaps."""
        counts = ", ".join(f"{count} {status}" for status, count in self.statuses.items())
        yield f"{self.target}: {self.verdict}; operators: {counts or 'none'}"
        yield (
            f"  {self.probed} rows tried in {self.seconds:.0f} s, {self.known_before} known before, "
            f"{self.left} left for another time"
        )
        for gap in self.gaps:
            around = f"; way around: {gap.workaround}" if gap.workaround else ""
            yield f"  {gap.status} {gap.op}({','.join(gap.dtypes)}): {gap.evidence}{around}"
        yield f"registry: {self.registry}"


def probe_target(
    model: str | None,
    spec: TargetSpec,
    store: RunStore,
    options: RunOptions,
    *,
    revision: str | None = None,
    refresh: bool = False,
    progress: Progress = silent,
    log: Path | None = None,
) -> Probed:
    """What `day0 probe [MODEL] --target T` does.

    Args:
        model: whose operators are tried; None: those of the seed set.
        spec: the target.
        store: holds the registry.
        options: of the run; `probe_budget` bounds the time.
        revision: of the model.
        refresh: whether measured rows are tried again too.
        progress: told of each row.
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
        if "op" not in target.describe().capabilities:
            raise UnsupportedError(
                f"{spec} runs no single operators, so none can be tried",
                code="E502",
                remedy="The minimal run still says whether nodes execute.",
            )
        return probe(calls, target, store, budget=options.probe_budget, refresh=refresh, progress=progress)


def _calls_of(
    model: str | None, revision: str | None, spec: TargetSpec, store: RunStore
) -> Sequence[OperatorCall]:
    if model is None:
        from .seeds import seed_calls

        return on_target(seed_calls(), "bf16", spec)
    capture = load_or_capture(open_release(model, revision), store, request_of(spec))
    return on_target(capture.calls, capture.captured_dtype, spec)


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
    ops = covered_ops(states, target.spec)
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

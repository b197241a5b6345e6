"""Tries operators on a target until the time is spent; what is learnt goes into the registry as it comes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime

import torch

from day0.adapters.base.errors import UnsupportedError, WorkerUnusable
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.target import Target
from day0.adapters.base.values import Fingerprint
from day0.adapters.registries.registry import Registry
from day0.adapters.registries.row import CHECKS, RegistryRow, mark_of

from ..thresholds import PROBE_SECONDS
from .batches import attempt
from .learnt import Setting, extended, joined, own_row, ran_elsewhere, with_refusals
from .needs import Need
from .pace import Pace
from .plan_probe import Trial, composite, example_of, further, others
from .reference_worker import Asked, Expected, ReferenceWorker
from .replay import Outcome
from .unheeded import explained

Keep = Callable[[Registry], None]
"""Receives what was learnt since the last time, as a registry of its own."""

_KEEP_EVERY = 2.0
_RUNS = ("native", "slow", "fallback")
_MORE = ("native", "fallback")
"""Statuses of rows of which more is tried; every further call of a slow one costs its time again."""


class Prober:
    """One target being tried.

    Args:
        target: must be able to run single operators.
        fingerprint: of the target.
        registry: what is known before.
        budget: seconds in all; a call that has begun is waited for.
        keep: called every few seconds and at the end, so that a killed run loses little.
        progress: told of each batch.
        date: day of the probe that the rows hold (UTC); None: today.

    Attributes:
        registry: what is known by now.
        probed: rows tried.
        first_seconds: until each row of the first run had its first call; None: not all had.
    """

    def __init__(
        self,
        target: Target,
        fingerprint: Fingerprint,
        registry: Registry,
        *,
        budget: float,
        keep: Keep | None = None,
        progress: Progress = silent,
        date: str | None = None,
    ) -> None:
        self.registry = registry
        self.probed = 0
        self.first_seconds: float | None = None
        self._target, self._fingerprint = target, fingerprint
        day = datetime.now(UTC).date().isoformat() if date is None else date
        self._setting = Setting(target.spec, fingerprint.digest, day)
        self._pace = Pace(budget)
        self._keep, self._progress = keep, progress
        self._kept = time.monotonic()
        self._unkept: dict[str, RegistryRow] = {}
        self._examples: dict[str, OperatorCall] = {}
        self._references: ReferenceWorker

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._pace.seconds

    def run(self, needs: Sequence[Need], *, deep: bool = True, generator: str = "captured") -> None:
        """Tries one call of each row, in order, then more of those that are right.

        Rows whose first call is known to be right go on with what was not tried of them.

        Args:
            needs: the rows with their calls.
            deep: whether more than the first call is tried.
            generator: of the calls, see `RegistryRow`.
        """
        if self._pace.spent or not needs:
            return
        self._setting = replace(self._setting, generator=generator)
        before, threads = self._target.timeout, torch.get_num_threads()
        self._target.timeout = min(before, PROBE_SECONDS)
        torch.set_num_threads(1)  # comparisons are small, and the workers need the cores
        try:
            with ReferenceWorker() as self._references:
                fresh = [one for one in map(self._untried, needs) if one is not None]
                self._first(sorted(fresh, key=lambda need: composite(need.example)))
                if self.first_seconds is None and not self._pace.spent:
                    self.first_seconds = self.seconds
                self._settle(fresh)
                if deep:
                    self._more(needs)
        except (WorkerUnusable, UnsupportedError):
            self._pace.stop()
        finally:
            self._target.timeout = before
            torch.set_num_threads(threads)
            self._hand_over()
        self._progress(self._label, len(needs), len(needs))

    @property
    def _label(self) -> str:
        return f"coverage {self._target.spec}"

    def _row(self, key: str) -> RegistryRow | None:
        return self.registry.rows.get((key, self._fingerprint.digest))

    def _untried(self, need: Need) -> Need | None:
        """The row with the calls of which one is to be tried first; None where only more is wanted."""
        row = self._row(need.key)
        if row is None or row.status not in _RUNS:
            return need
        met = {*row.tried, *(one.mark for one in row.constraints)}
        calls = [call for call in need.calls if mark_of(call.signature) not in met]
        refuses = any(one.mark for one in row.constraints)
        return Need(need.key, calls, need.impact) if refuses and calls else None

    def _first(self, needs: Sequence[Need]) -> None:
        known = {need.key: need for need in needs}
        for place, outcomes in self._batches([example_of(need) for need in needs]):
            self._progress(self._label, place, len(needs), outcomes[0].call.op)
            for outcome in outcomes:
                self._learn_first(known[outcome.trial.key], outcome)

    def _learn_first(self, need: Need, outcome: Outcome) -> None:
        self.probed += 1
        if outcome.status in _RUNS:
            self._examples[need.key] = outcome.call
        refused = [outcome] if outcome.refused and outcome.status == "missing" else []
        if refused and outcome.kind != "missing_operator":
            outcome, refused = self._other_shape(need, outcome, refused)
        self._learn(joined(self._row(need.key), outcome, refused, self._setting))

    def _other_shape(
        self, need: Need, outcome: Outcome, refused: list[Outcome]
    ) -> tuple[Outcome, list[Outcome]]:
        """The first of the row's other calls that runs, with those that were refused before it."""
        for call in others(need):
            if self._pace.spent:
                break
            trial = Trial(need.key, "example", Asked(call, outcome.trial.asked.seed, "unit"))
            (found,) = attempt(self._target, [trial], self._references.ask([trial.asked]))
            if found.status in _RUNS:
                self._examples[need.key] = found.call
                return found, refused
            refused = [*refused, found] if found.refused else refused
        return outcome, refused

    def _settle(self, needs: Sequence[Need]) -> None:
        """Rows of refused shapes whose operator runs with other ranks: constrained, not missing."""
        rows = list(self.registry.rows.values())
        for need in needs:
            row = self._row(need.key)
            if row is None or row.status != "missing" or not row.reason.startswith("shape:"):
                continue
            if ran_elsewhere(row, rows, need.calls):
                marked = [Trial(need.key, "example", Asked(call, row.seed, "unit")) for call in need.calls]
                refused = [Outcome(one, one.asked.call, "missing", row.reason) for one in marked]
                self._learn(with_refusals(row.model_copy(update={"status": "native"}), refused))

    def _more(self, needs: Sequence[Need]) -> None:
        trials = [trial for need in needs for trial in self._wanted(need)]
        left = Counter(trial.key for trial in trials)
        for need in needs:
            if not left[need.key]:
                self._complete(need.key)
        for place, outcomes in self._batches(trials):
            self._progress(self._label, place, len(trials), outcomes[0].call.op)
            grouped: dict[str, list[Outcome]] = {}
            for outcome in explained(self._references, outcomes, self._examples):
                grouped.setdefault(outcome.trial.key, []).append(outcome)
            for key, found in grouped.items():
                row = self._row(key)
                assert row is not None, "only rows that are known have more to try"
                self._learn(extended(row, found, self._setting))
                for more in (own_row(outcome, row, self._setting) for outcome in found):
                    if more is not None and self._row(more.key) is None:
                        self._learn(more)
                left[key] -= len(found)
                if not left[key]:
                    self._complete(key)

    def _complete(self, key: str) -> None:
        row = self._row(key)
        if row is not None and row.status in _RUNS and not self._pace.spent:
            self._learn(row.model_copy(update={"checks": CHECKS}))

    def _wanted(self, need: Need) -> list[Trial]:
        row = self._row(need.key)
        if row is None or row.status not in _MORE or set(CHECKS) <= set(row.checks):
            return []
        example = self._examples.get(need.key) or self._smaller(need)
        if example is None:
            return []
        return further(need, example)

    def _smaller(self, need: Need) -> OperatorCall | None:
        """The example of a row that an earlier run tried."""
        if self._pace.spent:
            return None
        trial = example_of(need)
        self._examples[need.key] = found = self._references.ask([trial.asked])[0].call or need.example
        return found

    def _batches(self, trials: Sequence[Trial]) -> Iterator[tuple[int, list[Outcome]]]:
        """The outcomes of one batch after the other; the references of the next are computed meanwhile."""
        place = 0
        begun = self._begun(trials, place)
        while begun is not None and not self._pace.spent:
            part, expected = begun
            begun = self._begun(trials, place + len(part))
            with self._pace.timing(len(part)):
                outcomes = attempt(self._target, part, expected.result())
            yield place, outcomes
            place += len(part)

    def _begun(
        self, trials: Sequence[Trial], place: int
    ) -> tuple[Sequence[Trial], Future[list[Expected]]] | None:
        part = trials[place : place + self._pace.size]
        return (part, self._references.begin([one.asked for one in part])) if part else None

    def _learn(self, row: RegistryRow) -> None:
        self.registry = self.registry.merged([row], {self._fingerprint.digest: self._fingerprint})
        self._unkept[row.key] = row
        if time.monotonic() - self._kept > _KEEP_EVERY:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._keep is not None and self._unkept:
            fingerprints = {self._fingerprint.digest: self._fingerprint}
            self._keep(Registry(self.registry.name).merged(self._unkept.values(), fingerprints))
        self._unkept, self._kept = {}, time.monotonic()

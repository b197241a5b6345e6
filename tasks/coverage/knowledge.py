"""What is known of a target's operators in one run of the stage, and the means to learn more."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property

from day0.adapters.base.errors import WorkerUnusable
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.target import Target, TargetDescription
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.registries.registry import Known, Registry
from day0.adapters.registries.row import RegistryRow

from .kind_rows import KindRows
from .needs import Need, group
from .statuses import half_tried

OpenTarget = Callable[[TargetSpec], AbstractContextManager[Target]]
"""Opens a target; its worker starts with the first call."""
Keep = Callable[[Registry], None]
"""Receives what was learnt since the last time, as a registry of its own."""
KeepKinds = Callable[[KindRows], None]
"""The same for kinds of nodes."""
ReadRows = Callable[[str], Registry]
"""What an earlier run has handed to `Keep`, by name."""

FOR_ONE_STEP = 0.5
"""Share of the time left for the model as it is, and for each step after it: a gap without a way around helps
less than one that is known a little later."""

_NEXT_TO_NOTHING = 0.05
"""Share of the time that a prober may leave over, having no time for another batch."""


class Knowledge:
    """Looks operators up and, while time is left, tries those that need it.

    No worker is started before something has to be tried. Use it as a context manager.

    Args:
        spec: the target.
        description: of it.
        registry: what is known before.
        open_target: see `OpenTarget`.
        budget: seconds for trying operators, over all calls.
        keep: receives new rows as they come.
        stored: what was kept before.
        progress: told of each row tried.

    Attributes:
        spec: see above.
        fingerprint: of the target.
        registry: what is known by now.
        can_probe: whether the target runs single operators.
        probed: rows tried.
        seconds: spent on trying.
        progress: told of each row tried.
    """

    def __init__(
        self,
        spec: TargetSpec,
        description: TargetDescription,
        registry: Registry,
        open_target: OpenTarget,
        *,
        budget: float,
        keep: Keep | None = None,
        stored: ReadRows | None = None,
        progress: Progress = silent,
    ) -> None:
        self.spec, self.fingerprint, self.registry = spec, description.fingerprint, registry
        self.can_probe = "op" in description.capabilities
        self.probed, self.seconds = 0, 0.0
        self.progress = progress
        self._open, self._budget, self._keep, self._stored = open_target, budget, keep, stored
        self._learnt: set[str] = set()
        self._stack = ExitStack()
        self._opened: Target | None = None

    def __enter__(self) -> Knowledge:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def left(self) -> float:
        """Seconds that may still be spent."""
        return max(0.0, self._budget - self.seconds) if self.can_probe else 0.0

    @property
    def spent(self) -> bool:
        """Whether the time is all but used up."""
        return self.can_probe and self._budget > 0 and self.left < _NEXT_TO_NOTHING * self._budget

    def target(self) -> Target:
        """The target without ways around, opened once."""
        if self._opened is None:
            # What is learnt holds for the stack itself, so no way around may be in the way.
            options = {key: value for key, value in self.spec.options.items() if key != "with"}
            plain = self.spec.model_copy(update={"options": options})
            self._opened = self._stack.enter_context(self._open(plain))
        return self._opened

    def open(self, spec: TargetSpec) -> AbstractContextManager[Target]:
        """The target with other options, in a worker of its own."""
        return self._open(spec)

    def lookup(self, key: str) -> Known | None:
        """What is known of a row; what is merely declared stands as `declared`."""
        return self.registry.lookup(key, self.fingerprint)

    def learn(self, needs: Sequence[Need], share: float = 1.0) -> None:
        """Tries what is inherited, declared or unknown, in this order, the most work first.

        Rows that an earlier run left half tried come after all these.

        Args:
            needs: rows.
            share: of the time that is left, which may be spent on them.
        """
        due = [need for need in needs if self.is_due(need, self.registry)]
        due.sort(key=lambda need: self.registry.probe_rank(need.key, self.fingerprint))
        running = bool(due) or self._opened is not None
        more = [need for need in needs if self._goes_on(need, running=running)]
        if not (due or more) or self.left <= 0:
            return
        from .prober import Prober  # imports torch, which nothing known needs

        began = time.monotonic()
        try:
            prober = Prober(
                self.target(),
                self.fingerprint,
                self.registry,
                budget=self.left * share,
                keep=self._keep,
                progress=self.progress,
            )
            prober.run([*due, *more])
        except WorkerUnusable:
            self.can_probe = False
            return
        finally:
            self.seconds += time.monotonic() - began
        before, self.registry = self.registry, prober.registry
        changed = {need.key for need in [*due, *more] if self._row(need) != self._row(need, before)}
        self._learnt |= changed
        self.probed += prober.probed + sum(need.key in changed for need in more)

    def native(self, calls: Sequence[OperatorCall]) -> set[str]:
        """Row keys of those calls that the target was seen to run, after trying those that need it."""
        self.learn(group(calls), share=FOR_ONE_STEP)
        return {call.row_key for call in calls if self._is_native(call.row_key)}

    def registry_with(self, way: str) -> Registry:
        """What is known of operators while a way around is switched on."""
        name = _with(self.registry.name, way)
        return self._stored(name) if self._stored is not None else Registry(name)

    def kept_with(self, way: str, rows: Sequence[RegistryRow]) -> Registry:
        """Rows that were learnt while a way around was switched on, kept for the next time."""
        fingerprints = {self.fingerprint.digest: self.fingerprint}
        learnt = Registry(_with(self.registry.name, way)).merged(rows, fingerprints)
        if self._keep is not None and rows:
            self._keep(learnt)
        return learnt

    def is_due(self, need: Need, registry: Registry) -> bool:
        """Whether a row should be tried, by what a registry knows of it."""
        signatures = [call.signature for call in need.calls]
        return registry.needs_probe(need.key, self.fingerprint, signatures)

    def is_half_tried(self, need: Need, registry: Registry) -> bool:
        """Whether a registry's row is right under this very fingerprint as far as it was tried."""
        row = self._row(need, registry)
        return row is not None and half_tried(row)

    def is_unfinished(self, needs: Sequence[Need]) -> bool:
        """Whether the next run has something to try: the time was up, or rows of these stayed half tried."""
        return self.spent or (self.can_probe and any(self._goes_on(need, running=False) for need in needs))

    def timed(self, began: float) -> None:
        """Counts time that was spent on the target elsewhere, since `began` of the monotonic clock."""
        self.seconds += time.monotonic() - began

    def _goes_on(self, need: Need, *, running: bool) -> bool:
        """Whether more is to be tried of a row whose first call was right under this very fingerprint.

        What an earlier run had no time for is worth a worker. Of rows that came with Day0 or a package no run
        knows how far they are to be trusted less than their maker did: they are gone on with beside others.
        """
        if not self.is_half_tried(need, self.registry) or self.is_due(need, self.registry):
            return False
        if running or self._stored is None or need.key in self._learnt:
            return True
        return self._row(need, self._kept) is not None

    @cached_property
    def _kept(self) -> Registry:
        """What earlier runs have learnt."""
        return self._stored(self.registry.name) if self._stored is not None else self.registry

    def _row(self, need: Need, registry: Registry | None = None) -> RegistryRow | None:
        return (registry or self.registry).rows.get((need.key, self.fingerprint.digest))

    def _is_native(self, key: str) -> bool:
        known = self.lookup(key)
        return known is not None and known.sound and known.row.status == "native"


def _with(name: str, way: str) -> str:
    return f"{name} with {way}"

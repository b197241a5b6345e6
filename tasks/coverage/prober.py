"""Tries operators on a target until the time is spent; what is learnt goes into the registry as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from day0.adapters.base.errors import UnsupportedError, WorkerUnusable
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.target import Target
from day0.adapters.base.values import Fingerprint
from day0.adapters.registries.registry import Registry
from day0.adapters.registries.row import RegistryRow

from ..thresholds import PROBE_SECONDS
from .needs import Need
from .replay import replay

Keep = Callable[[Registry], None]
"""Receives what was learnt since the last time, as a registry of its own."""

_KEEP_EVERY = 2.0


class Prober:
    """One target being tried.

    Args:
        target: must be able to run single operators.
        fingerprint: of the target.
        registry: what is known before.
        budget: seconds in all; a call that has begun is waited for.
        keep: called every few seconds and at the end, so that a killed run loses little.
        progress: told of each row.

    Attributes:
        registry: what is known by now.
        probed: rows tried.
        seconds: spent so far.
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
    ) -> None:
        self.registry = registry
        self.probed = 0
        self._target, self._fingerprint = target, fingerprint
        self._budget, self._keep, self._progress = budget, keep, progress
        self._began = self._kept = time.monotonic()
        self._unkept: list[RegistryRow] = []
        self._usable = True

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._began

    def run(self, needs: Sequence[Need]) -> None:
        """Tries these in order."""
        before = self._target.timeout
        self._target.timeout = min(before, PROBE_SECONDS)
        try:
            for place, need in enumerate(needs):
                if self._spent:
                    break
                self._progress(f"coverage {self._target.spec}", place, len(needs), need.example.op)
                self._try(need.example)
        finally:
            self._target.timeout = before
            self._hand_over()
        self._progress(f"coverage {self._target.spec}", len(needs), len(needs))

    @property
    def _spent(self) -> bool:
        return not self._usable or self.seconds >= self._budget

    def _try(self, call: OperatorCall) -> None:
        try:
            row = replay(self._target, call, self._fingerprint.digest)
        except (WorkerUnusable, UnsupportedError):
            self._usable = False
            return
        self.probed += 1
        self._learn(row)

    def _learn(self, row: RegistryRow) -> None:
        self.registry = self.registry.merged([row], {self._fingerprint.digest: self._fingerprint})
        self._unkept.append(row)
        if time.monotonic() - self._kept > _KEEP_EVERY:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._keep is not None and self._unkept:
            fingerprints = {self._fingerprint.digest: self._fingerprint}
            self._keep(Registry(self.registry.name).merged(self._unkept, fingerprints))
        self._unkept, self._kept = [], time.monotonic()

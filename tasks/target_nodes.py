"""Nodes of a model on a target; each kind is prepared once, and again after the worker died."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from day0.adapters.base.errors import (
    Day0Error,
    RemoteError,
    UnsupportedError,
    WorkerCrashed,
    WorkerError,
    WorkerTimeout,
)
from day0.adapters.base.skeleton import Node, Skeleton
from day0.adapters.base.target import Answer, Call, Fragment, Observation, Target

from .confirmed import confirmed

_HANGS_PER_KIND = 2
"""Nodes of one kind that may hang; the next ones would only cost their time limit each."""


class TargetNodes:
    """Runs single nodes of one model on one target.

    A worker's death takes its prepared kinds and its caches with it; they are made again where they are
    needed. A call during which the worker dies is made once more before it counts as a crash. A kind that
    cannot be prepared, or that hung twice, is not tried any further: its error is raised again.

    Args:
        target: with the capability `fragment`.
        skeleton: of the model.
        dtype: short name of weights and activations.

    Attributes:
        seconds: that the target spent executing, by its own clock.
        peak_bytes: highest that any answer named.
    """

    def __init__(self, target: Target, skeleton: Skeleton, dtype: str) -> None:
        self._target, self._skeleton, self._dtype = target, skeleton, dtype
        self._handles: dict[tuple[str, str], str] = {}
        self._broken: dict[tuple[str, str], Day0Error] = {}
        self._hangs: dict[tuple[str, str], int] = {}
        self._crashed: set[tuple[str, str]] = set()
        self._prompts: dict[tuple[str, str | None], Call] = {}
        self._alive: set[tuple[str, str | None]] = set()
        self._loaded = ""
        self.seconds, self.peak_bytes = 0.0, 0

    def run(
        self, node: Node, weights: Mapping[str, Any], inputs: Call, *, mode: str, state: str | None = None
    ) -> Answer:
        """Runs one node.

        Args:
            node: of the skeleton.
            weights: its resolved weights; not sent again where the node ran last.
            inputs: its arguments, in the target's precision.
            mode: `prefill` or `decode`.
            state: name of the sequence whose cache the target keeps; None: no cache.

        Raises:
            WorkerError: the target failed; a later call may succeed.
            UnsupportedError: the target does not run nodes.
        """
        key = (node.kind, mode)
        if key in self._broken:
            raise self._broken[key]
        sequence = (node.name, state)
        earlier = self._prompts.pop(sequence, None) if mode == "decode" else None

        def attempt() -> Answer:
            if earlier is not None and sequence not in self._alive:
                # The worker that held this node's cache is gone: a fresh one has to see the prompt first.
                self._run_once(node, weights, earlier, "prefill", state)
            return self._run_once(node, weights, inputs, mode, state)

        try:
            answer = confirmed(attempt)
        except (WorkerError, UnsupportedError) as error:
            self._note_failure(key, error)
            raise
        if state is not None and mode == "prefill":
            self._prompts[sequence] = inputs
        self.seconds += answer.seconds
        self.peak_bytes = max(self.peak_bytes, answer.peak_bytes)
        return answer

    def observe(
        self, node: Node, weights: Mapping[str, Any], inputs: Call, *, mode: str, limit: int
    ) -> Observation:
        """Runs one node without a cache and says which operators that called.

        Args:
            node: see `run`.
            weights: see `run`.
            inputs: see `run`.
            mode: see `run`.
            limit: bytes of tensors beyond which values are left out.

        Raises:
            WorkerError: the worker failed or died.
            UnsupportedError: the target cannot be observed.
        """
        try:
            handle = self._prepared(node, inputs, mode)
            seen = self._target.observe(handle, node.name, weights, inputs, limit=limit)
        except WorkerError as error:
            if not isinstance(error, RemoteError):
                self._forget_worker()
            self._loaded = ""
            raise
        self._loaded = f"{handle} {node.name}"
        return seen

    def _run_once(
        self, node: Node, weights: Mapping[str, Any], inputs: Call, mode: str, state: str | None
    ) -> Answer:
        try:
            handle = self._prepared(node, inputs, mode)
            sent = {} if self._loaded == f"{handle} {node.name}" else weights
            answer = self._target.run(handle, node.name, sent, inputs, state=state)
        except WorkerError as error:
            if not isinstance(error, RemoteError):
                self._forget_worker()
            raise
        self._loaded = f"{handle} {node.name}"
        self._alive.add((node.name, state))
        return answer

    def _forget_worker(self) -> None:
        self._handles.clear()
        self._alive.clear()
        self._loaded = ""

    def _prepared(self, node: Node, inputs: Call, mode: str) -> str:
        key = (node.kind, mode)
        if key not in self._handles:
            fragment = Fragment(
                node=node.name,
                kind=node.kind,
                architecture=self._skeleton.architecture,
                config=self._skeleton.config,
                dtype=self._dtype,
                options={},
            )
            try:
                self._handles[key] = self._target.prepare(fragment, inputs, mode=mode)
            except WorkerCrashed as error:
                if key in self._crashed:
                    self._broken[key] = error
                self._crashed.add(key)
                raise
            except (WorkerError, UnsupportedError) as error:
                self._broken[key] = error
                raise
        return self._handles[key]

    def _note_failure(self, key: tuple[str, str], error: Day0Error) -> None:
        self._loaded = ""
        if isinstance(error, WorkerTimeout):
            self._hangs[key] = self._hangs.get(key, 0) + 1
            if self._hangs[key] >= _HANGS_PER_KIND:
                self._broken[key] = error

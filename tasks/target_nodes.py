"""Nodes of a model on a target; each kind is prepared once, and again after the worker died."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from torch import Tensor

from day0.adapters.base.errors import (
    Day0Error,
    RemoteError,
    UnsupportedError,
    WorkerCrashed,
    WorkerError,
    WorkerTimeout,
)
from day0.adapters.base.skeleton import Node, Skeleton
from day0.adapters.base.target import Answer, Call, Fragment, Observation, Paused, Target
from day0_worker.workarounds import OPTION

from .confirmed import confirmed
from .target_runs import History, Run, experts_output

Result = TypeVar("Result")
_HANGS_PER_NODE = 2
"""Calls of one node that may hang; the next ones would only cost their time limit each."""
_NODES_PER_KIND = 2
"""Nodes of one kind that may hang; those after them are not tried."""


class TargetNodes:
    """Runs single nodes of one model on one target.

    A worker's death takes its prepared kinds, its caches and the runs that stand still with it; they are made
    again where they are needed. A call during which the worker dies is made once more before it counts as a
    crash; then all runs that stood still are lost, and `resume` raises for each what it was lost to. A kind
    that cannot be prepared and a node that hung twice are not tried any further: the error is raised again.
    Where two nodes of a kind hung no other of it is tried, which is no fault of it: an `UnsupportedError`.

    Args:
        target: with the capability `fragment`.
        skeleton: of the model.
        dtype: short name of weights and activations.
        ways: ways around, or bugs, with which its nodes are built besides those that the target names.

    Attributes:
        seconds: that the target spent executing, by its own clock.
        peak_bytes: highest that any answer named.
    """

    def __init__(self, target: Target, skeleton: Skeleton, dtype: str, ways: Sequence[str] = ()) -> None:
        self._target, self._skeleton, self._dtype = target, skeleton, dtype
        self._options = {OPTION: ",".join((*_ways_of(target), *ways))} if ways else {}
        self._handles: dict[tuple[str, str], str] = {}
        self._broken: dict[tuple[str, str], Day0Error] = {}
        self._hangs: dict[tuple[str, str], dict[str, list[WorkerTimeout]]] = {}
        self._crashed: set[tuple[str, str]] = set()
        self._history = History()
        self._alive: set[tuple[str, str | None]] = set()
        self._loaded = ""
        self._death: WorkerError | None = None
        self._numbers = itertools.count(1)
        self._standing: dict[str, Run] = {}
        self._examples: dict[str, tuple[Call, str]] = {}
        self.seconds, self.peak_bytes = 0.0, 0

    def changed(self, *ways: str) -> TargetNodes:
        """The same target's nodes built with these ways around or bugs as well.

        The worker keeps the weights of one node: those of this one's are sent anew afterwards.
        """
        self._loaded = ""
        return TargetNodes(self._target, self._skeleton, self._dtype, ways)

    @property
    def parts(self) -> bool:
        """Whether runs can stand still at their experts on this target."""
        return "parts" in self._target.describe().capabilities

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
        run = Run(node, weights, inputs, mode, state)
        came = self._tried(node, mode, lambda: self._brought(run))
        assert isinstance(came, Answer), "a run that is not to stand still does not"
        return self._ended(run, came)

    def start(
        self, node: Node, weights: Mapping[str, Any], inputs: Call, *, mode: str, state: str | None = None
    ) -> Answer | Paused:
        """Runs one node up to its experts; see `run` for arguments and errors.

        Runs of other nodes that still stand are dropped.

        Returns:
            `Paused`; the node's answer where it has no experts of its own to hand out, does not call them, or
            the target cannot stand still: then the weights have to be all of them.
        """
        self._drop([key for key, run in self._standing.items() if run.node.name != node.name])
        if not (node.experts and self.parts):
            return self.run(node, weights, inputs, mode=mode, state=state)
        run = Run(node, weights, inputs, mode, state, pause=node.experts)
        self._examples[node.kind] = (inputs, mode)
        came = self._tried(node, mode, lambda: self._brought(run))
        return self._settled(str(next(self._numbers)), run, came)

    def resume(self, paused: Paused, output: Tensor) -> Answer | Paused:
        """Goes on with a run.

        Args:
            paused: from `start` or `resume`; it can be resumed once.
            output: of its experts, [T, H].

        Raises:
            WorkerError: the target failed, or the run was lost to an earlier failure.
        """
        run = self._standing.get(paused.key)
        if run is None:
            raise WorkerError(f"no run stands still under the key {paused.key!r}", code="E607")

        def attempt() -> Answer | Paused:
            if run.at is None:
                self._brought(run)
            return self._went_on(run, output)

        try:
            if run.lost is not None:
                raise run.lost
            came = self._tried(run.node, run.mode, attempt)
        finally:
            del self._standing[paused.key]
        run.outputs.append(output)
        return self._settled(paused.key, run, came)

    def run_experts(
        self, node: Node, stack: Mapping[str, Any], hidden: Tensor, ids: Tensor, weights: Tensor
    ) -> Tensor:
        """Runs the experts of a node of whose kind a run was started.

        Args:
            node: of the skeleton.
            stack: parameter of the experts -> expression of its stack [n, ...].
            hidden: [T, H].
            ids: [T, k] out of 0 to n - 1; n stands for none.
            weights: [T, k] of the choices.

        Returns:
            [T, H].

        Raises:
            WorkerError: the target failed.
        """
        inputs, mode = self._examples[node.kind]

        def attempt() -> Tensor:
            handle = self._prepared(node, inputs, mode)
            answer = self._asked(
                lambda: self._target.run_experts(handle, node.name, node.experts, stack, hidden, ids, weights)
            )
            self._count(answer)
            return experts_output(node, answer.outputs, hidden)

        return self._tried(node, mode, attempt)

    def observe(
        self,
        node: Node,
        weights: Mapping[str, Any],
        inputs: Call,
        *,
        mode: str,
        state: str | None = None,
        limit: int,
    ) -> Observation:
        """Runs one node and says which operators that called.

        Args:
            node: see `run`.
            weights: see `run`; all of them.
            inputs: see `run`.
            mode: see `run`.
            state: see `run`; a worker that died since the cache was filled is not told again.
            limit: bytes of tensors beyond which values are left out.

        Raises:
            WorkerError: the worker failed or died.
            UnsupportedError: the target cannot be observed.
        """
        self._drop(list(self._standing))
        handle, self._loaded = self._prepared(node, inputs, mode), ""
        seen = self._asked(
            lambda: self._target.observe(handle, node.name, weights, inputs, state=state, limit=limit)
        )
        self._loaded = f"{handle} {node.name}"
        return seen

    def forget(self, state: str) -> None:
        """Drops the caches of a sequence, and what a fresh worker would be told of it."""
        self._history.forget(state)
        self._alive = {key for key in self._alive if key[1] != state}
        self._told(partial(self._target.forget, state))

    def forget_all(self) -> None:
        """Drops all caches and all runs that stand still."""
        self._drop(list(self._standing))
        self._history.forget()
        states = {state for _, state in self._alive if state is not None}
        self._alive.clear()
        for state in sorted(states):
            self._told(partial(self._target.forget, state))

    def _brought(self, run: Run) -> Answer | Paused:
        """The run's cache as it has to be, then the run up to where it last stood."""
        if run.mode == "decode" and run.sequence not in self._alive:
            # The worker that held this node's cache is gone: a fresh one has to see what came before.
            before = self._history.before(run)
            if not before and self._death is not None and run.state is not None:
                raise self._death
            for earlier in before:
                self._stepped(earlier)
        return self._stepped(run)

    def _stepped(self, run: Run) -> Answer | Paused:
        run.heard.clear()
        came = self._started(run)
        for output in run.outputs:
            if not isinstance(came, Paused):
                raise WorkerError(f"{run.node.name} called its experts once and not again", code="E607")
            came = self._went_on(run, output)
        return came

    def _started(self, run: Run) -> Answer | Paused:
        handle = self._prepared(run.node, run.inputs, run.mode)
        whole = f"{handle} {run.node.name}"
        here = f"{whole} without {run.pause}" if run.pause else whole
        sent = {} if self._loaded in (whole, here) else run.own_weights

        def ask() -> Answer | Paused:
            if not run.pause:
                return self._target.run(handle, run.node.name, sent, run.inputs, state=run.state)
            return self._target.start(
                handle, run.node.name, sent, run.inputs, pause=run.pause, state=run.state
            )

        came = self._asked(ask)
        self._loaded = here if sent else self._loaded
        self._alive.add(run.sequence)
        return self._heard(run, came)

    def _went_on(self, run: Run, output: Tensor) -> Answer | Paused:
        key = run.at
        assert key is not None, "only a run that stands still goes on"
        run.at = None
        return self._heard(run, self._asked(lambda: self._target.resume(key, output)))

    def _heard(self, run: Run, came: Answer | Paused) -> Answer | Paused:
        run.heard_of(came)
        measured = came.measured if isinstance(came, Paused) else came
        if measured is not None:
            self._count(measured)
        return came

    def _count(self, answer: Answer) -> None:
        self.seconds += answer.seconds
        self.peak_bytes = max(self.peak_bytes, answer.peak_bytes)

    def _settled(self, key: str, run: Run, came: Answer | Paused) -> Answer | Paused:
        if isinstance(came, Answer):
            return self._ended(run, came)
        self._standing[key] = run
        return replace(came, key=key)

    def _ended(self, run: Run, last: Answer) -> Answer:
        self._history.note(run)
        return run.answer(last)

    def _tried(self, node: Node, mode: str, attempt: Callable[[], Result]) -> Result:
        self._refuse_broken(node, mode)
        try:
            return confirmed(attempt)
        except (WorkerError, UnsupportedError) as error:
            self._note_failure(node, mode, error)
            raise

    def _refuse_broken(self, node: Node, mode: str) -> None:
        kind = (node.kind, mode)
        if kind in self._broken:
            raise self._broken[kind]
        hung = self._hangs.get(kind, {})
        errors = hung.get(node.name, [])
        if len(errors) >= _HANGS_PER_NODE:
            raise errors[-1]
        if not errors and len(hung) >= _NODES_PER_KIND:
            raise UnsupportedError(f"not tried: {' and '.join(hung)}, which are of the same kind, hung")

    def _asked(self, ask: Callable[[], Result]) -> Result:
        try:
            return ask()
        except WorkerError as error:
            if not isinstance(error, RemoteError):
                self._forget_worker(error)
            raise

    def _told(self, tell: Callable[[], None]) -> None:
        """Something that a worker which dies of it need not hear again."""
        try:
            tell()
        except WorkerError as error:
            self._forget_worker(error)

    def _drop(self, keys: list[str]) -> None:
        runs = [self._standing.pop(key) for key in keys]
        known = [run.at for run in runs if run.at is not None]
        if known:
            self._told(lambda: self._target.drop(known))

    def _forget_worker(self, error: WorkerError) -> None:
        self._handles.clear()
        self._alive.clear()
        self._loaded = ""
        self._death = error
        for run in self._standing.values():
            run.at = None
            if not isinstance(error, WorkerCrashed):
                # It hung or took too much: what it does once more, it would do for the same price.
                run.lost = error

    def _prepared(self, node: Node, inputs: Call, mode: str) -> str:
        key = (node.kind, mode)
        if key not in self._handles:
            fragment = Fragment(
                node=node.name,
                kind=node.kind,
                architecture=self._skeleton.architecture,
                config=self._skeleton.config,
                dtype=self._dtype,
                options=self._options,
            )
            try:
                self._handles[key] = self._asked(lambda: self._target.prepare(fragment, inputs, mode=mode))
            except WorkerCrashed as error:
                if key in self._crashed:
                    self._broken[key] = error
                self._crashed.add(key)
                raise
            except (WorkerError, UnsupportedError) as error:
                self._broken[key] = error
                raise
        return self._handles[key]

    def _note_failure(self, node: Node, mode: str, error: Day0Error) -> None:
        self._loaded = ""
        if isinstance(error, WorkerCrashed):
            for run in self._standing.values():
                run.lost = run.lost or (error if run.at is None else None)
        if isinstance(error, WorkerTimeout):
            self._hangs.setdefault((node.kind, mode), {}).setdefault(node.name, []).append(error)


def _ways_of(target: Target) -> list[str]:
    return [way for way in target.spec.options.get(OPTION, "").split(",") if way]

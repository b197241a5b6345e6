"""One run of a node on a target, with all that is needed to make it again in a fresh worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from day0.adapters.base.errors import Day0Error, WorkerError
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Answer, Call, Paused
from day0_worker.trees import TreeError, decode

_HISTORY_BYTES = 256 * 2**20
"""Of inputs that are kept so that a fresh worker's caches can be filled again: those of a few dozen layers of
a short prompt, or of one layer of a long one."""


@dataclass
class Run:
    """One run of a node.

    Attributes:
        node: which.
        weights: its resolved weights.
        inputs: its arguments.
        mode: `prefill` or `decode`.
        state: name of the sequence whose cache the target keeps; None: no cache.
        pause: module path of the experts at which it stands still; empty: it does not.
        outputs: of the experts, with which it was resumed so far.
        at: the worker's key of it while it stands still; None: it does not, or that worker is gone.
        heard: what the target measured of it, since its start in the present worker.
        lost: why it cannot go on.
    """

    node: Node
    weights: Mapping[str, Any]
    inputs: Call
    mode: str
    state: str | None
    pause: str = ""
    outputs: list[Tensor] = field(default_factory=list)
    at: str | None = None
    heard: list[Answer] = field(default_factory=list)
    lost: Day0Error | None = None

    @property
    def sequence(self) -> tuple[str, str | None]:
        """Whose cache it uses."""
        return self.node.name, self.state

    @property
    def own_weights(self) -> Mapping[str, Any]:
        """Those that are needed to run it: without the experts' where these are handed out."""
        if not self.pause:
            return self.weights
        return {name: value for name, value in self.weights.items() if not name.startswith(f"{self.pause}.")}

    def heard_of(self, came: Answer | Paused) -> None:
        """Notes what was measured, and where it stands."""
        self.at = came.key if isinstance(came, Paused) else None
        measured = came.measured if isinstance(came, Paused) else came
        if measured is not None:
            self.heard.append(measured)

    def answer(self, last: Answer) -> Answer:
        """The whole run's answer, which the last call's ends."""
        return replace(
            last,
            seconds=sum(one.seconds for one in self.heard),
            peak_bytes=max(one.peak_bytes for one in self.heard),
            operators={name: used for one in self.heard for name, used in one.operators.items()},
            anomalies=[anomaly for one in self.heard for anomaly in one.anomalies],
        )


class History:
    """What filled the caches of sequences, so that a fresh worker's can be filled again.

    The oldest are forgotten where all take more than 256 MiB.
    """

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str | None], list[Run]] = {}

    def note(self, run: Run) -> None:
        """A run that ended well; a prefill begins its sequence anew."""
        if run.state is None:
            return
        before = [] if run.mode == "prefill" else self._runs.pop(run.sequence, [])
        self._runs.pop(run.sequence, None)
        self._runs[run.sequence] = [*before, replace(run, heard=[], weights={})]
        while len(self._runs) > 1 and sum(map(_bytes, self._runs.values())) > _HISTORY_BYTES:
            del self._runs[next(iter(self._runs))]

    def before(self, run: Run) -> list[Run]:
        """The runs that its cache comes from, in order, with its weights; empty where they are not known."""
        return [replace(one, weights=run.weights, heard=[]) for one in self._runs.get(run.sequence, ())]

    def forget(self, state: str | None = None) -> None:
        """Drops what is known of a sequence, or of all."""
        self._runs = {key: runs for key, runs in self._runs.items() if state is not None and key[1] != state}


def experts_output(node: Node, outputs: Call, hidden: Tensor) -> Tensor:
    """What experts answered, if it is one row for each that they were given.

    Raises:
        WorkerError: E607, it is something else.
    """
    try:
        value = decode(outputs.tree, outputs.tensors)
    except TreeError as error:
        raise WorkerError(f"experts of {node.name} answered a broken tree: {error}", code="E607") from error
    if not (isinstance(value, Tensor) and value.dim() == 2 and len(value) == len(hidden)):
        said = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise WorkerError(f"experts of {node.name} answered {said} to rows {list(hidden.shape)}", code="E607")
    return value


def _bytes(runs: list[Run]) -> int:
    return sum(tensor.nbytes for run in runs for tensor in (*run.inputs.tensors.values(), *run.outputs))

"""The verbs of runs that stand still at a node's experts, as the worker answers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

from day0_worker.measure import Measure
from day0_worker.parts import Paused, PausedRuns
from day0_worker.stack import NodeRun, Stack, StackError
from day0_worker.trees import decode, encode

Result = Tuple[Dict[str, Any], Mapping[str, Any]]
"""What a verb answers: JSON and tensors by name."""


@dataclass
class _Begun:
    """What belongs to a run from its start to its end, whichever calls it takes.

    Attributes:
        job: what is run.
        measure: of its stack, open where the run is being timed.
        operators: choices that were named so far.
    """

    job: NodeRun
    measure: Measure
    operators: Dict[str, str]


class PartVerbs:
    """Runs of one stack that stand still.

    Args:
        stack: that runs them.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._runs = PausedRuns(stack.device)
        self._begun: Dict[str, _Begun] = {}

    def start(self, job: NodeRun) -> Result:
        """`run` with `pause`: up to the experts, or to the node's end."""
        begun = _Begun(job, self._stack.measure, {})
        return self._settled(begun, lambda: self._runs.start(lambda: self._stack.run(job)))

    def resume(self, request: Mapping[str, Any], tensors: Mapping[str, Any]) -> Result:
        """`resume`: on with the experts' output, up to the next call of them or to the node's end."""
        key, output = request["key"], decode(request["tree"], tensors)
        begun = self._begun.pop(key, None)
        if begun is None:
            raise StackError(f"no run waits under the key {key!r}")
        begun.measure.go_on()
        self._stack.measure = begun.measure
        for choice, implementation in begun.operators.items():
            self._stack.used(choice, implementation)
        return self._settled(begun, lambda: self._runs.resume(key, output))

    def drop(self, keys: Optional[Sequence[str]]) -> Result:
        """`drop`: ends the runs of these keys, or all."""
        self._runs.drop(keys)
        for key in list(self._begun) if keys is None else keys:
            self._begun.pop(key, None)
        return {}, {}

    def close(self) -> None:
        """Ends all runs."""
        self.drop(None)

    def make_way(self, job: NodeRun) -> None:
        """Ends the runs of other nodes where the job brings weights, which take the place of theirs."""
        if job.weights is not None and not job.experts:
            self.drop([key for key, begun in self._begun.items() if not _same_node(begun.job, job)])

    def _settled(self, begun: _Begun, go: Callable[[], Any]) -> Result:
        stack, whole = self._stack, Measure()
        with whole.span(stack.device):
            value = go()
        begun.measure.interrupt()
        if not stack.measure.spans:  # the stack timed nothing itself: the whole call counts
            stack.measure = whole
        if not isinstance(value, Paused):
            tree, outputs = encode(stack.ways.returned(begun.job.node, value))
            return {"tree": tree}, outputs
        begun.operators.update(stack.end_call()["operators"])
        self._begun[value.key] = begun
        tree, outputs = encode([value.hidden, value.ids, value.weights])
        return {"paused": value.key, "tree": tree}, outputs


def _same_node(one: NodeRun, other: NodeRun) -> bool:
    return (one.handle, one.node) == (other.handle, other.node)

"""The nodes of the cut-down release on the target: a prefill of a small batch, then one decode step.

The reference answers the same calls in this process and in the target's precision. Where the target fails,
its answer lets the walk go on, so that every node is tried however many fail. Bound: the weights of one node,
twice, and the caches of a few layers over sixteen tokens.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, isfinite

from day0.adapters.base.errors import CheckpointError, Day0Error, RemoteError, UnsupportedError, WorkerError
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Call
from day0.adapters.models.walk import Glue, Walk
from day0.adapters.models.weights import resolve_weights

from ..cut import Cut
from ..outcomes import RAN, detail_of, log_of, outcome_of
from ..reference_arm import Arm, ArmError, loose_weights, read_weights
from ..target_nodes import TargetNodes
from .record import NodeRunFact

_SEED = 20260923
_SEQUENCES, _LENGTH = 2, 16
_STATE = "minimal"
PHASES = ("prefill", "decode")


@dataclass
class NodeRuns:
    """What came of running the nodes.

    Attributes:
        facts: each node in each phase.
        logs: node name -> the worker's last lines where it failed.
        stopped: why the reference could not go on, or empty.
    """

    facts: list[NodeRunFact] = field(default_factory=list)
    logs: dict[str, Sequence[str]] = field(default_factory=dict)
    stopped: str = ""


def batch(config: Mapping[str, Any]) -> list[list[int]]:
    """Token ids drawn by a fixed seed: two sequences of sixteen, or of what the model takes."""
    text = config.get("text_config")
    part = {**config, **text} if isinstance(text, Mapping) else config
    vocabulary = int(part.get("vocab_size") or 2)
    length = min(_LENGTH, int(part.get("max_position_embeddings") or _LENGTH) - 1)
    draw = random.Random(_SEED)
    return [[draw.randrange(vocabulary) for _ in range(length)] for _ in range(_SEQUENCES)]


def run_nodes(
    cut: Cut,
    target: TargetNodes,
    *,
    dtype: str,
    options: Mapping[str, str],
    tokens: Sequence[Sequence[int]],
    progress: Progress = silent,
    step: str = "minimal",
) -> NodeRuns:
    """Runs every node of the cut in both phases.

    Args:
        cut: the cut-down release.
        target: runs its nodes.
        dtype: short name of weights and activations.
        options: of the target.
        tokens: the batch.
        progress: told of each node.
        step: how progress calls this.
    """
    runner = _Runner(cut, target, dtype, options)
    total = len(PHASES) * sum(1 for node in cut.skeleton.nodes if node.called)
    try:
        for phase in PHASES:
            ids = [list(row) for row in tokens] if phase == "prefill" else [[row[-1]] for row in tokens]
            for name in runner.phase(phase, ids):
                progress(step, len(runner.found.facts), total, name)
    except (CheckpointError, ArmError) as error:
        runner.found.stopped = detail_of(error)
    runner.note_the_rest()
    return runner.found


class _Runner:
    def __init__(self, cut: Cut, target: TargetNodes, dtype: str, options: Mapping[str, str]) -> None:
        self.cut, self.target = cut, target
        self.found = NodeRuns()
        self._arm = Arm(cut.skeleton, dtype, options)
        loose = loose_weights(cut.skeleton, cut.release.checkpoint)
        self._glue = Glue(cut.skeleton, dtype, self._arm.options, loose)
        self._cached: set[str] = set()

    def phase(self, phase: str, ids: Sequence[Sequence[int]]) -> Any:
        """Names of the nodes as they are done.

        Raises:
            CheckpointError: weights are missing or cannot be read.
            ArmError: reference and target both failed at a node.
        """
        cache = self._arm.cache(_STATE) if phase == "decode" else None
        with Walk(self.cut.skeleton, ids, self._arm.dtype, glue=self._glue, cache=cache) as walk:
            for call in walk:
                node = self.cut.skeleton.node(call.node)
                expressions = resolve_weights(node, self.cut.release.checkpoint)
                ours, trouble = self._reference(node, read_weights(node, expressions), call.call)
                theirs, fact = self._target(node, expressions, call.call, ours, phase)
                self._note(fact)
                answer = theirs if theirs is not None and fact.outcome == RAN else ours
                if answer is None:
                    raise trouble or ArmError(f"{node.name} gave no output")
                call.reply(answer)
                yield fact.name

    def note_the_rest(self) -> None:
        """Adds `not_run` for every node and phase that was not come to."""
        done = {(fact.name, fact.phase) for fact in self.found.facts}
        for phase in PHASES:
            for node in self.cut.skeleton.nodes:
                if node.called and (self._name(node), phase) not in done:
                    reason = self.found.stopped or "the walk ended before"
                    self.found.facts.append(self._fact(node, phase, "not_run", reason))

    def _reference(
        self, node: Node, weights: Mapping[str, Tensor], call: Call
    ) -> tuple[Call | None, ArmError | None]:
        try:
            return self._arm.run(node, weights, call, state=_STATE), None
        except ArmError as error:
            return None, error

    def _target(
        self, node: Node, expressions: Mapping[str, Any], call: Call, ours: Call | None, phase: str
    ) -> tuple[Call | None, NodeRunFact]:
        if phase == "decode" and node.state.kind != "none" and node.name not in self._cached:
            reason = "its cache is not there: its prefill failed, or its worker died since"
            return None, self._fact(node, phase, "not_run", reason)
        try:
            theirs = self.target.run(node, expressions, call, mode=phase, state=_STATE).outputs
        except (WorkerError, UnsupportedError) as error:
            if isinstance(error, WorkerError) and not isinstance(error, RemoteError):
                self._cached.clear()
            return None, self._failed(node, phase, error)
        self._cached.add(node.name)
        outcome, detail = _judged(theirs, ours)
        return theirs, self._fact(node, phase, outcome, detail)

    def _failed(self, node: Node, phase: str, error: Day0Error) -> NodeRunFact:
        fact = self._fact(node, phase, outcome_of(error), detail_of(error))
        self.found.logs.setdefault(fact.name, log_of(error))
        return fact

    def _note(self, fact: NodeRunFact) -> None:
        """One fact a node and phase; where a forward calls it more than once, the first failure stands."""
        for index, known in enumerate(self.found.facts):
            if (known.name, known.phase) == (fact.name, fact.phase):
                if known.outcome == RAN:
                    self.found.facts[index] = fact
                return
        self.found.facts.append(fact)

    def _fact(self, node: Node, phase: str, outcome: str, detail: str = "") -> NodeRunFact:
        return NodeRunFact(
            name=self._name(node), kind=node.kind, role=node.role, phase=phase, outcome=outcome, detail=detail
        )

    def _name(self, node: Node) -> str:
        return self.cut.names.get(node.name, node.name)


def _judged(theirs: Call, ours: Call | None) -> tuple[str, str]:
    """`ran`, or what is plainly wrong with an output: its parts, its shapes, numbers that are not finite."""
    shapes = [list(tensor.shape) for tensor in theirs.tensors.values() if tensor.is_floating_point()]
    if ours is not None:
        expected = [list(tensor.shape) for tensor in ours.tensors.values() if tensor.is_floating_point()]
        if shapes != expected:
            return "shape", f"output {shapes}, expected {expected}"
    bad = sum(_nonfinite(tensor) for tensor in theirs.tensors.values())
    known = sum(_nonfinite(tensor) for tensor in ours.tensors.values()) if ours is not None else 0
    if bad > known:
        return "nonfinite", f"{bad} elements are NaN or infinite, {known} of them in the reference too"
    return RAN, ""


def _nonfinite(tensor: Tensor) -> int:
    return int((~isfinite(tensor)).sum()) if tensor.is_floating_point() else 0

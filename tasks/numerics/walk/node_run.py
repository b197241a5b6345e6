"""Everything that is to be run at one node, in the order that holds least in memory at a time.

The reference first, then the noise arm, then the target; the weights of one arm go before those of the next
come. Where the node has experts, each run stops before them: then the rows of all runs meet each expert
together, chunk by chunk, and the runs go on with what came out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from day0.adapters.base.errors import Day0Error, UnsupportedError, WorkerError
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Answer, Call, Paused
from day0.adapters.models.node_weights import ExpertStack, NodeWeights
from day0.adapters.models.quick_linear import Around, Scratch, quick_around
from day0_worker.dtypes import torch_dtype

from ...reference_arm import Arm, ArmError
from ...target_nodes import TargetNodes
from ..measures.metrics import nonfinite_weights
from ..prompts.passes import MAIN, Pass
from .expert_runs import Waiting, through_experts

Key = tuple[str, str]
"""Stream and name of the pass."""

REFERENCE = ("reference",)
NOISE = ("noise_local", "noise")
TARGET = ("local", "again", "own")
"""Streams of each side."""
_WHICH = {"reference": "exact", "noise": "lowered", "target": "sent"}


@dataclass(frozen=True)
class Ask:
    """One run of the node.

    Attributes:
        stream: out of the streams above.
        step: the pass.
        call: arguments.
        state: name of the sequence whose cache is used; None: no cache.
    """

    stream: str
    step: Pass
    call: Call
    state: str | None = None

    @property
    def key(self) -> Key:
        """Names the run."""
        return self.stream, self.step.name


@dataclass(frozen=True)
class Sides:
    """Who runs nodes.

    Attributes:
        reference: in the reference's precision; None where a bundle stands for it.
        noise: in the target's; None likewise.
        target: the target; None where only the reference runs.
    """

    reference: Arm | None
    noise: Arm | None
    target: TargetNodes | None


@dataclass(frozen=True, eq=False)
class Replay:
    """Some tokens of a run, through its experts once more with other choices.

    Attributes:
        key: of a run that stops before them.
        rows: [n] indices of tokens.
        ids: [n, k] experts.
        weights: [n, k] of them.
    """

    key: Key
    rows: Tensor
    ids: Tensor
    weights: Tensor


@dataclass
class Results:
    """What came of the runs.

    Attributes:
        outputs: of runs that gave one.
        errors: of those that did not.
        routed: what a run gave its experts, where it stopped before them.
        experts: what the experts made of it, [tokens, hidden].
        replayed: what they made of replays, [n, hidden], by name, where the side did not fail.
        nonfinite: parameters with NaN or infinity -> how many.
    """

    outputs: dict[Key, Call] = field(default_factory=dict)
    errors: dict[Key, Day0Error] = field(default_factory=dict)
    routed: dict[Key, Paused] = field(default_factory=dict)
    experts: dict[Key, Tensor] = field(default_factory=dict)
    replayed: dict[str, Tensor] = field(default_factory=dict)
    nonfinite: dict[str, int] = field(default_factory=dict)


Replays = Callable[[Results], Mapping[str, Replay]]
"""What is to be replayed, told from where the runs' routers sent their tokens."""


class NodeRun:
    """The runs of one node.

    Args:
        node: of the skeleton.
        sides: who runs.
        weights: of the node, without the experts' where these are handed out.
        whole: with them, for a target that takes the node only as one; None where it is not needed.
        chunk: experts that are in memory at a time.
    """

    def __init__(
        self, node: Node, sides: Sides, weights: NodeWeights, whole: NodeWeights | None, chunk: int
    ) -> None:
        self._node, self.sides, self._weights, self._whole = node, sides, weights, whole
        self._chunk = chunk
        self.results = Results()
        scratch = Scratch()
        self._quick = {
            side: quick_around(torch_dtype(arm.dtype), scratch)
            for side, arm in (("reference", sides.reference), ("noise", sides.noise))
            # In fp32 the noise arm's roundings are to be those of torch's own kernels.
            if arm is not None and arm.plain and (side == "reference" or arm.dtype != "fp32")
        }
        self._experts_of = {
            side: _QuickExperts(self._runner(side), quick) for side, quick in self._quick.items()
        }

    def run(self, asks: Sequence[Ask], replays: Replays = lambda results: {}) -> Results:
        """Runs everything that is asked.

        Args:
            asks: in their order.
            replays: asked when all runs have come to their experts, so that these are read once.

        Raises:
            ArmError: the reference failed on the main pass.
            CheckpointError: weights cannot be read.
        """
        with ExitStack() as loaded:
            for side, streams in (("reference", REFERENCE), ("noise", NOISE), ("target", TARGET)):
                wanted = [ask for ask in asks if ask.stream in streams]
                if not wanted:
                    continue
                with ExitStack() as own:
                    self._start(side, wanted, own)
                    if any(key[0] in streams for key in self.results.routed):
                        loaded.push(own.pop_all())
            self._experts(replays)
        return self.results

    def _start(self, side: str, asks: Sequence[Ask], loaded: ExitStack) -> None:
        if side == "target":
            self._start_target(asks)
            return
        arm = self.sides.reference if side == "reference" else self.sides.noise
        assert arm is not None, "an arm is asked only where there is one"
        arm.load(self._node, self._weights.exact() if side == "reference" else self._weights.lowered())
        loaded.callback(arm.free, self._node)
        if side == "reference":
            self.results.nonfinite = nonfinite_weights(arm.parameters(self._node))
        for ask in asks:
            try:
                around = self._quick.get(side, nullcontext)
                self._keep(ask.key, arm.start(self._node, ask.call, state=ask.state, around=around))
            except ArmError as error:
                if side == "reference" and ask.step.name == MAIN:
                    raise
                self.results.errors[ask.key] = error

    def _start_target(self, asks: Sequence[Ask]) -> None:
        """After an error on the main pass nothing else is tried: it would only fail, or hang, again."""
        target = self.sides.target
        assert target is not None, "the target is asked only where there is one"
        expressions = (self._whole or self._weights).sent()
        failed: Day0Error | None = None
        for ask in asks:
            before = self.results.errors.get((ask.stream, MAIN))
            if failed is not None or (ask.step.cached and before is not None):
                self.results.errors[ask.key] = failed or before  # type: ignore[assignment]  # one of both is there
                continue
            try:
                answer = target.start(self._node, expressions, ask.call, mode=ask.step.mode, state=ask.state)
                self._keep(ask.key, answer)
            except (WorkerError, UnsupportedError) as error:
                self.results.errors[ask.key] = error
                if ask.key == ("local", MAIN):
                    failed = error

    def _keep(self, key: Key, step: Call | Answer | Paused) -> None:
        if isinstance(step, Paused):
            self.results.routed[key] = step
        else:
            self.results.outputs[key] = step.outputs if isinstance(step, Answer) else step

    def _experts(self, replays: Replays) -> None:
        """Through the experts and on, until no run stops any more."""
        pending = dict(self.results.routed)
        others = replays(self.results) if pending else {}
        while pending:
            waiting = [self._waiting(key, paused) for key, paused in pending.items()]
            waiting += [self._waiting(one.key, self._replayed(one)) for one in others.values()]
            outputs = through_experts(
                self._node,
                waiting,
                self._weights.experts,
                chunk=self._chunk,
                prefetch=self._weights.prefetch_experts,
                look=self._count_nonfinite,
            )
            replayed = dict(zip(others, outputs[len(pending) :], strict=True))
            self.results.replayed |= {name: one for name, one in replayed.items() if isinstance(one, Tensor)}
            further: dict[Key, Paused] = {}
            for (key, paused), output in zip(pending.items(), outputs[: len(pending)], strict=True):
                step = self._resumed(key, paused, output)
                if isinstance(step, Paused):
                    further[key] = step
                elif step is not None:
                    self.results.outputs[key] = step
            pending, others = further, {}

    def _replayed(self, replay: Replay) -> Paused:
        paused = self.results.routed[replay.key]
        weights = replay.weights.to(paused.weights.dtype)
        return Paused(key=paused.key, hidden=paused.hidden[replay.rows], ids=replay.ids, weights=weights)

    def _waiting(self, key: Key, paused: Paused) -> Waiting:
        side = self._side(key)
        runner = self._experts_of.get(side, self._runner(side))
        return Waiting(runner, paused, _WHICH[side])  # type: ignore[arg-type]  # three known words

    def _resumed(self, key: Key, paused: Paused, output: Tensor | Day0Error) -> Call | Paused | None:
        if isinstance(output, Day0Error):
            self.results.errors[key] = output
            return None
        self.results.experts.setdefault(key, output)
        try:
            step = self._runner(self._side(key)).resume(paused, output)
        except (WorkerError, UnsupportedError, ArmError) as error:
            if key == ("reference", MAIN):
                raise
            self.results.errors[key] = error
            return None
        return step.outputs if isinstance(step, Answer) else step

    def _count_nonfinite(self, stack: ExpertStack) -> None:
        for name, tensor in stack.exact.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor.sum())):
                for parameter, count in nonfinite_weights({f"{self._node.experts}.{name}": tensor}).items():
                    known = self.results.nonfinite.get(parameter, 0)
                    self.results.nonfinite[parameter] = known + count

    def _side(self, key: Key) -> str:
        return "reference" if key[0] in REFERENCE else "noise" if key[0] in NOISE else "target"

    def _runner(self, side: str) -> Any:
        runners: Mapping[str, Any] = {
            "reference": self.sides.reference,
            "noise": self.sides.noise,
            "target": self.sides.target,
        }
        return runners[side]


class _QuickExperts:
    """An arm's experts with quick linear layers; see `day0.tasks.numerics.walk.expert_runs.Side`."""

    def __init__(self, arm: Arm, around: Around) -> None:
        self._arm, self._around = arm, around

    def run_experts(
        self, node: Node, stack: Mapping[str, Any], hidden: Tensor, ids: Tensor, weights: Tensor
    ) -> Tensor:
        """See `day0.tasks.numerics.walk.expert_runs.Side`."""
        with self._around():
            return self._arm.run_experts(node, stack, hidden, ids, weights)

"""Runs in two parts on a target, and what becomes of them when the worker dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from day0.adapters.base.errors import RemoteError, WorkerCrashed, WorkerError, WorkerTimeout
from day0.adapters.base.target import Answer, Call, Paused
from day0.tasks.reference_arm import Arm
from day0.tasks.target_nodes import TargetNodes
from support.in_process_target import InProcessTarget
from support.moe_nodes import MoeNode, moe_node, states
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]


class Mortal(InProcessTarget):
    """Dies, as often as it is told, in the call of that name; then a fresh worker knows nothing."""

    def __init__(self, dies_in: str = "", times: int = 1, error: type[WorkerError] = WorkerCrashed) -> None:
        super().__init__("eager@cpu/fp32?experts=eager")
        self.dies_in, self.times, self.error = dies_in, times, error
        self.calls: list[str] = []

    def _called(self, verb: str) -> None:
        self.calls.append(verb)
        if verb == self.dies_in and self.times:
            self.times -= 1
            self.close()
            self._start()
            raise self.error("the worker is gone")

    def prepare(self, *args: Any, **kwargs: Any) -> str:
        self._called("prepare")
        return super().prepare(*args, **kwargs)

    def start(self, *args: Any, **kwargs: Any) -> Answer | Paused:
        self._called("start")
        return super().start(*args, **kwargs)

    def resume(self, key: str, output: torch.Tensor) -> Answer | Paused:
        self._called("resume")
        return super().resume(key, output)

    def run_experts(self, *args: Any) -> Answer:
        self._called("run_experts")
        return super().run_experts(*args)


@pytest.fixture(scope="module")
def moe(tiny: Tiny) -> MoeNode:
    return moe_node(tiny("qwen3_moe"))


@pytest.fixture(scope="module")
def expected(moe: MoeNode) -> dict[str, torch.Tensor]:
    arm = Arm(moe.skeleton, "fp32", {})
    return {
        phase: states(arm.run(moe.node, moe.weights, moe.calls[phase], state="a"))
        for phase in ("prefill", "decode")
    }


def nodes_of(moe: MoeNode, target: InProcessTarget) -> TargetNodes:
    return TargetNodes(target, moe.skeleton, "fp32")


def start(nodes: TargetNodes, moe: MoeNode, phase: str = "prefill", state: str | None = "a") -> Paused:
    came = nodes.start(moe.node, moe.sent, moe.calls[phase], mode=phase, state=state)
    assert isinstance(came, Paused)
    return came


def finish(nodes: TargetNodes, moe: MoeNode, paused: Paused) -> torch.Tensor:
    stack = moe.stack(range(4)).sent
    output = nodes.run_experts(moe.node, stack, paused.hidden, paused.ids, paused.weights)
    came = nodes.resume(paused, output)
    assert isinstance(came, Answer)
    return states(came.outputs)


def test_prompts_and_their_decode_steps_in_two_parts(moe: MoeNode, expected: dict[str, torch.Tensor]) -> None:
    target = Mortal()
    nodes = nodes_of(moe, target)
    for phase in ("prefill", "decode"):
        paused = [start(nodes, moe, phase, state) for state in ("a", "b")]
        for one in reversed(paused):
            assert torch.equal(finish(nodes, moe, one), expected[phase])
    assert target.calls.count("prepare") == 2
    nodes.forget_all()


def test_weights_are_sent_once_and_those_of_the_experts_not_with_them(moe: MoeNode) -> None:
    sent: list[set[str]] = []

    class Watching(Mortal):
        def start(self, handle: str, node: str, weights: Any, inputs: Call, **more: Any) -> Answer | Paused:
            sent.append(set(weights))
            return super().start(handle, node, weights, inputs, **more)

    nodes = nodes_of(moe, Watching())
    for state in ("a", "b", "c"):
        start(nodes, moe, state=state)
    assert sent == [set(moe.rest), set(), set()]
    nodes.forget_all()


@pytest.mark.parametrize("dies_in", ["start", "run_experts", "resume"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_one_death_is_made_good(
    moe: MoeNode, expected: dict[str, torch.Tensor], dies_in: str, phase: str
) -> None:
    """Both runs that stood still are begun again, with what their caches held."""
    target = Mortal()
    nodes = nodes_of(moe, target)
    if phase == "decode":
        for state in ("a", "b"):
            finish(nodes, moe, start(nodes, moe, "prefill", state))
    first = start(nodes, moe, phase, "a")
    target.dies_in = dies_in
    second = start(nodes, moe, phase, "b")
    for one in (first, second):
        assert torch.equal(finish(nodes, moe, one), expected[phase])
    assert target.times == 0
    nodes.forget_all()


def test_a_death_that_happens_twice_takes_all_runs_with_it(moe: MoeNode) -> None:
    target = Mortal("resume", times=2)
    nodes = nodes_of(moe, target)
    paused = [start(nodes, moe, state=state) for state in ("a", "b", "c")]
    for one in paused:
        with pytest.raises(WorkerCrashed):
            nodes.resume(one, one.hidden)
    assert target.calls.count("resume") == 2  # the others are not tried again
    assert target.calls.count("start") == 4
    finish(nodes, moe, start(nodes, moe, state="d"))
    nodes.forget_all()


def test_a_hang_takes_all_runs_with_it_and_is_not_repeated(moe: MoeNode) -> None:
    target = Mortal("run_experts", times=2, error=WorkerTimeout)
    nodes = nodes_of(moe, target)
    paused = [start(nodes, moe, state=state) for state in ("a", "b")]
    with pytest.raises(WorkerTimeout):
        finish(nodes, moe, paused[0])
    for one in paused:
        with pytest.raises(WorkerTimeout):
            nodes.resume(one, one.hidden)
    again = start(nodes, moe)
    with pytest.raises(WorkerTimeout):
        finish(nodes, moe, again)
    before = len(target.calls)
    with pytest.raises(WorkerTimeout):
        start(nodes, moe)
    assert len(target.calls) == before  # a kind that hung twice is left alone


def test_an_error_of_the_stack_ends_that_run_alone(moe: MoeNode) -> None:
    nodes = nodes_of(moe, Mortal())
    first, second = start(nodes, moe, state="a"), start(nodes, moe, state="b")
    with pytest.raises(RemoteError):
        nodes.run_experts(moe.node, {}, first.hidden, first.ids, first.weights)
    finish(nodes, moe, second)
    finish(nodes, moe, first)
    with pytest.raises(WorkerError, match="no run stands still"):
        nodes.resume(first, first.hidden)


def test_another_node_ends_the_runs_of_the_last(moe: MoeNode) -> None:
    nodes = nodes_of(moe, Mortal())
    paused = start(nodes, moe)
    other = moe.node.model_copy(update={"name": "model.layers.1"})
    nodes.start(other, moe.sent, moe.calls["prefill"], mode="prefill", state="a")
    with pytest.raises(WorkerError, match="no run stands still"):
        nodes.resume(paused, paused.hidden)
    nodes.forget_all()


def test_a_target_that_cannot_stand_still_runs_the_node_as_one(
    moe: MoeNode, expected: dict[str, torch.Tensor]
) -> None:
    target = InProcessTarget("eager@cpu/fp32?experts=eager", capabilities=("fragment",))
    nodes = nodes_of(moe, target)
    assert not nodes.parts
    for phase in ("prefill", "decode"):
        came = nodes.start(moe.node, moe.sent, moe.calls[phase], mode=phase, state="a")
        assert isinstance(came, Answer)
        assert torch.equal(states(came.outputs), expected[phase])


def test_the_answer_is_that_of_the_whole_run(moe: MoeNode) -> None:
    nodes = nodes_of(moe, Mortal())
    paused = start(nodes, moe)
    came = nodes.resume(paused, paused.hidden)
    assert isinstance(came, Answer)
    assert came.seconds == pytest.approx(0.002)
    assert nodes.seconds == pytest.approx(0.002)
    assert came.peak_bytes == nodes.peak_bytes == 1000


@pytest.mark.parametrize("given", [torch.zeros(3), torch.zeros(7, 32), None])
def test_experts_that_answer_something_else_are_told(moe: MoeNode, given: Any) -> None:
    from day0_worker import trees

    class Odd(Mortal):
        def run_experts(self, *args: Any) -> Answer:
            return Answer(Call(*trees.encode(given)), 0.0, 0, {}, ())

    nodes = nodes_of(moe, Odd())
    paused = start(nodes, moe)
    with pytest.raises(WorkerError, match=r"experts of model\.layers\.2 answered"):
        nodes.run_experts(moe.node, {}, paused.hidden, paused.ids, paused.weights)
    nodes.forget_all()

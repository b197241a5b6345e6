"""The experts of waiting runs, chunk by chunk, against the node as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from day0.adapters.base.errors import Day0Error, WorkerCrashed, WorkerError
from day0.adapters.base.target import Call, Paused
from day0.tasks.numerics.walk.expert_runs import Side, Waiting, experts_of, through_experts
from day0.tasks.reference_arm import Arm
from support.moe_nodes import MOE, MoeNode, moe_node, states
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
ALIKE = ("mixtral", "glm4_moe", "qwen3_next")
"""Families whose experts are called as those of another that is tested."""


@pytest.fixture(scope="module")
def deepseek(tiny: Tiny) -> MoeNode:
    return moe_node(tiny("deepseek_v3"))


def by_hand(moe: MoeNode, paused: Paused) -> Tensor:
    """Experts of silu and two products, one token and one choice after the other, in fp64."""
    up, down = (moe.experts[name].double() for name in ("gate_up_proj", "down_proj"))
    output = torch.zeros(paused.hidden.shape, dtype=torch.float64)
    for token, (ids, weights) in enumerate(zip(paused.ids.tolist(), paused.weights.double(), strict=True)):
        for expert, weight in zip(ids, weights, strict=True):
            if expert < len(up):
                gate, wide = (up[expert] @ paused.hidden[token].double()).chunk(2)
                output[token] += weight * (down[expert] @ (torch.nn.functional.silu(gate) * wide))
    return output


def tensor(outcome: Tensor | Day0Error) -> Tensor:
    assert isinstance(outcome, Tensor), outcome
    return outcome


@pytest.mark.parametrize(
    "model_type",
    [pytest.param(name, marks=[pytest.mark.slow] if name in ALIKE else []) for name in MOE],
)
def test_a_node_in_two_parts_is_the_node_as_one(tiny: Tiny, model_type: str) -> None:
    moe, expected = moe_node(tiny(model_type)), {}
    arm = Arm(moe.skeleton, "fp32", {})
    for phase in ("prefill", "decode"):
        expected[phase] = states(arm.run(moe.node, moe.weights, moe.calls[phase], state="whole"))
    arm.load(moe.node, moe.rest)
    for chunk in (64, 3, 1):
        for phase in ("prefill", "decode"):
            paused = arm.start(moe.node, moe.calls[phase], state=f"{chunk}")
            assert isinstance(paused, Paused)
            (output,) = through_experts(moe.node, [Waiting(arm, paused, "exact")], moe.stack, chunk=chunk)
            came = arm.resume(paused, tensor(output))
            assert isinstance(came, Call)
            if chunk == 64:
                assert torch.equal(states(came), expected[phase])
            else:  # rows are summed in the same order, products of fewer rows round otherwise
                assert torch.allclose(states(came), expected[phase], rtol=1e-6, atol=1e-7)


def test_many_runs_meet_each_expert_together(deepseek: MoeNode) -> None:
    moe = deepseek
    arm = Arm(moe.skeleton, "fp32", {})
    arm.load(moe.node, moe.rest)
    first = arm.start(moe.node, moe.calls["prefill"])
    assert isinstance(first, Paused)
    second = replace(first, hidden=first.hidden[:4] * 2, ids=first.ids[4:8], weights=first.weights[:4])
    side = Counted(arm)
    moe.asked.clear()
    ahead: list[Sequence[int]] = []
    outputs = through_experts(
        moe.node,
        [Waiting(side, first, "exact"), Waiting(side, second, "exact")],
        moe.stack,
        chunk=3,
        prefetch=ahead.append,
    )
    met = sorted(set(first.ids.flatten().tolist()))
    assert moe.asked == [tuple(met[start : start + 3]) for start in range(0, len(met), 3)]
    assert ahead == moe.asked[1:]
    assert side.calls == len(moe.asked) > 1
    for output, paused in zip(outputs, (first, second), strict=True):
        assert torch.allclose(tensor(output).double(), by_hand(moe, paused), rtol=1e-4, atol=1e-7)


def test_sides_take_the_weights_in_their_own_form(deepseek: MoeNode) -> None:
    side, low = Counted(Sums()), Counted(Sums())
    paused = routed([[0, 1], [1, 0]])
    bf16 = replace(paused, hidden=paused.hidden.bfloat16(), weights=paused.weights.bfloat16())
    waiting = [Waiting(side, paused, "exact"), Waiting(low, bf16, "lowered"), Waiting(side, paused, "sent")]
    moe = replace(deepseek, dtype="bf16")
    first, second, third = map(tensor, through_experts(deepseek.node, waiting, moe.stack, chunk=8))
    assert (first.dtype, second.dtype, third.dtype) == (torch.float32, torch.bfloat16, torch.float32)
    assert (side.calls, low.calls) == (2, 1)
    assert {value.dtype for value in low.stacks[0].values()} == {torch.bfloat16}
    assert [type(value) for value in side.stacks[1].values()] == [dict, dict]


def test_tokens_without_an_expert_get_nothing(deepseek: MoeNode) -> None:
    moe, arm = deepseek, Arm(deepseek.skeleton, "fp32", {})
    total = experts_of(moe.node)
    torch.manual_seed(3)
    ids = torch.tensor([[0, total], [total, total], [5, 2], [7, total], [1, 6]])
    paused = Paused("k", torch.randn(5, 32), ids, torch.rand(5, 2))
    for chunk in (8, 2):
        (output,) = through_experts(moe.node, [Waiting(arm, paused, "exact")], moe.stack, chunk=chunk)
        assert torch.allclose(tensor(output).double(), by_hand(moe, paused), rtol=1e-4, atol=1e-7)
        assert not tensor(output)[1].any()
    nobody = replace(paused, ids=torch.full((5, 2), total))
    (output,) = through_experts(moe.node, [Waiting(arm, nobody, "exact")], moe.stack, chunk=8)
    assert torch.equal(tensor(output), torch.zeros(5, 32))


def test_an_expert_that_is_not_there_fails_its_own_run_alone(deepseek: MoeNode) -> None:
    side = Sums()
    waiting = [Waiting(side, routed([[9, 0]]), "exact"), Waiting(side, routed([[-1, 0]]), "exact")]
    waiting.append(Waiting(side, routed([[3, 0]]), "exact"))
    wrong, negative, right = through_experts(deepseek.node, waiting, deepseek.stack, chunk=8)
    assert isinstance(wrong, WorkerError)
    assert "expert 9 of 8" in wrong.message
    assert isinstance(negative, WorkerError)
    assert tensor(right).tolist() == [[4.0, 4.0]]


def test_a_side_that_fails_ends_its_own_runs(deepseek: MoeNode) -> None:
    good, bad = Sums(), Counted(Sums(), dies_at=1)
    one, other = routed([[0, 1]]), routed([[6, 7]])
    waiting = [Waiting(bad, one, "sent"), Waiting(good, one, "exact"), Waiting(bad, other, "sent")]
    first, second, third = through_experts(deepseek.node, waiting, deepseek.stack, chunk=2)
    assert isinstance(first, WorkerCrashed)
    assert tensor(second).tolist() == tensor(third).tolist() == [[4.0, 4.0]]


def test_low_precision_is_summed_in_fp32(deepseek: MoeNode) -> None:
    """Eight choices of one token: a sum in bf16 would lose the small ones behind the large one."""
    weights = torch.tensor([[1.0] + [small := 2.0**-9] * 7]).bfloat16()
    paused = Paused("k", torch.ones(1, 2).bfloat16(), torch.arange(8)[None], weights)
    (output,) = through_experts(deepseek.node, [Waiting(Sums(), paused, "lowered")], deepseek.stack, chunk=1)
    exact = torch.tensor(1 + 7 * small).bfloat16()
    assert tensor(output)[0, 0] == exact
    assert exact > 1


def test_runs_of_other_widths_and_dtypes_on_one_side_are_not_mixed(deepseek: MoeNode) -> None:
    side = Counted(Sums())
    narrow, wide = routed([[0]]), routed([[0, 1]])
    double = replace(wide, hidden=wide.hidden.double())
    waiting = [Waiting(side, one, "exact") for one in (narrow, wide, double, wide)]
    outputs = list(map(tensor, through_experts(deepseek.node, waiting, deepseek.stack, chunk=8)))
    assert side.calls == 3
    assert [output[0, 0].item() for output in outputs] == [2.0, 4.0, 4.0, 4.0]
    assert outputs[2].dtype == torch.float64


def routed(ids: list[list[int]]) -> Paused:
    chosen = torch.tensor(ids)
    return Paused("k", torch.full((len(ids), 2), 2.0), chosen, torch.ones(chosen.shape))


class Sums:
    """Experts that give what they are given; the module's own sum over k."""

    def run_experts(
        self, node: Any, stack: Mapping[str, Any], hidden: Tensor, ids: Tensor, weights: Tensor
    ) -> Tensor:
        return (hidden[:, None] * weights[..., None]).sum(1).to(hidden.dtype)


class Counted:
    """A side whose calls are counted, and which dies at one of them."""

    def __init__(self, side: Side, dies_at: int = 0) -> None:
        self.side, self.calls, self.dies_at = side, 0, dies_at
        self.stacks: list[Mapping[str, Any]] = []

    def run_experts(
        self, node: Any, stack: Mapping[str, Any], hidden: Tensor, ids: Tensor, weights: Tensor
    ) -> Tensor:
        self.calls += 1
        self.stacks.append(stack)
        if self.calls == self.dies_at:
            raise WorkerCrashed("the worker died by signal 11")
        return self.side.run_experts(node, stack, hidden, ids, weights)

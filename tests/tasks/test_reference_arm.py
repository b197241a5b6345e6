"""The reference in one precision: runs in two parts, one load for several, what the router chose from."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch

from day0.adapters.base.target import Call, Paused
from day0.adapters.models import narrow_weights
from day0.adapters.models.weights import resolve_weights
from day0.tasks.reference_arm import Arm, ArmError, read_weights
from day0_worker.trees import encode_arguments
from support.moe_nodes import MoeNode, moe_node, states
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]


@pytest.fixture(scope="module")
def deepseek(tiny: Tiny) -> MoeNode:
    return moe_node(tiny("deepseek_v3"))


@pytest.fixture(scope="module")
def arm(deepseek: MoeNode) -> Arm:
    return Arm(deepseek.skeleton, "fp32", {})


def through(arm: Arm, moe: MoeNode, paused: Paused) -> torch.Tensor:
    stack = moe.stack(range(len(moe.experts["down_proj"]))).exact
    return arm.run_experts(moe.node, stack, paused.hidden, paused.ids, paused.weights)


def test_one_load_serves_many_runs(arm: Arm, deepseek: MoeNode) -> None:
    moe = deepseek
    expected = arm.run(moe.node, moe.weights, moe.calls["prefill"])
    arm.load(moe.node, moe.weights)
    for _ in range(2):
        assert torch.equal(states(arm.run(moe.node, None, moe.calls["prefill"])), states(expected))
    assert set(arm.parameters(moe.node)) == set(moe.weights)
    arm.free(moe.node)
    assert not arm.parameters(moe.node)
    with pytest.raises(ArmError):
        arm.run(moe.node, None, moe.calls["prefill"])


def test_a_run_in_two_parts_tells_what_the_router_chose_from(arm: Arm, deepseek: MoeNode) -> None:
    """Groups of two best, the best group, the experts of that group: sigmoid scores with a correction."""
    moe = deepseek
    arm.load(moe.node, moe.rest)
    assert set(arm.parameters(moe.node)) == set(moe.rest)
    paused = arm.start(moe.node, moe.calls["prefill"])
    assert isinstance(paused, Paused)
    assert [(tuple(choice.scores.shape), choice.k) for choice in paused.scores] == [
        ((10, 2, 4), 2), ((10, 2), 1), ((10, 8), 2),
    ]  # fmt: skip
    last = paused.scores[-1]
    assert torch.equal(last.ids, paused.ids)
    best = last.scores.topk(3).values
    assert (best[:, 1] >= best[:, 2]).all()
    gate, bias = moe.rest["mlp.gate.weight"], moe.rest["mlp.gate.e_score_correction_bias"]
    own = (paused.hidden @ gate.float().T).sigmoid() + bias.float()
    chosen = last.scores.gather(1, last.ids)
    assert torch.allclose(chosen, own.gather(1, last.ids), atol=1e-6)
    output = through(arm, moe, paused)
    given = arm.resume(paused, output)
    assert isinstance(given, Call)
    expected = Arm(moe.skeleton, "fp32", {}).run(moe.node, moe.weights, moe.calls["prefill"])
    assert torch.equal(states(given), states(expected))
    with pytest.raises(ArmError, match="no run stands still"):
        arm.resume(paused, output)
    arm.free(moe.node)


def standing() -> int:
    """Threads of runs in this process, whatever others there are."""
    return sum(thread.name == "day0-part" for thread in threading.enumerate())


def test_runs_that_stand_still_end_with_the_weights(arm: Arm, deepseek: MoeNode) -> None:
    moe, before = deepseek, standing()
    ends: tuple[Callable[[], None], ...] = (partial(arm.free, moe.node), arm.forget_all)
    for end in ends:
        arm.load(moe.node, moe.rest)
        paused = [arm.start(moe.node, moe.calls["prefill"], state=f"{number}") for number in range(3)]
        assert standing() == before + 3
        end()
        assert standing() == before
        assert isinstance(paused[0], Paused)
        with pytest.raises(ArmError):
            arm.resume(paused[0], paused[0].hidden)
    assert arm.cache("0").get_seq_length(2) == 0


def test_a_node_without_experts_of_its_own_runs_as_one(arm: Arm, deepseek: MoeNode) -> None:
    """Such as one whose experts are modules of their own, in a list."""
    moe = deepseek
    node = moe.node.model_copy(update={"experts": ""})
    arm.load(node, moe.weights)
    given = arm.start(node, moe.calls["prefill"])
    assert isinstance(given, Call)
    assert torch.equal(states(given), states(arm.run(moe.node, moe.weights, moe.calls["prefill"])))
    arm.free(node)


def test_a_failure_in_either_part_is_the_nodes(arm: Arm, deepseek: MoeNode) -> None:
    moe = deepseek
    arm.load(moe.node, moe.rest)
    call = moe.calls["prefill"]
    broken = replace(call, tensors={name: value[..., :-1] for name, value in call.tensors.items()})
    with pytest.raises(ArmError, match=moe.node.name):
        arm.start(moe.node, broken)
    paused = arm.start(moe.node, call)
    assert isinstance(paused, Paused)
    with pytest.raises(ArmError, match=moe.node.name):
        arm.resume(paused, torch.ones(3, 5))
    with pytest.raises(ArmError, match="down_proj"):
        arm.run_experts(moe.node, {}, paused.hidden, paused.ids, paused.weights)
    arm.free(moe.node)


def test_the_arm_says_in_which_dtypes_it_holds_parameters(deepseek: MoeNode) -> None:
    dtypes = Arm(deepseek.skeleton, "bf16", {}).dtypes(deepseek.node)
    assert set(dtypes) == set(deepseek.weights)
    assert dtypes["mlp.experts.down_proj"] == torch.bfloat16
    assert dtypes["mlp.gate.e_score_correction_bias"] == torch.float32


def test_large_matrices_stay_as_they_are_stored(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a head in bf16 the fp32 arm holds no second copy, and computes what it would with one."""
    model = tiny("llama")
    node = next(node for node in model.skeleton.nodes if node.role == "head")
    weight = next(iter(read_weights(node, resolve_weights(node, model.release.checkpoint)).values()))
    stored = {"weight": weight.to(torch.bfloat16)}
    call = Call(*encode_arguments([torch.randn(1, 4, weight.shape[1])], {}))
    arm = Arm(model.skeleton, "fp32", {})
    whole = arm.run(node, stored, call)
    monkeypatch.setattr(narrow_weights, "LARGE", 1)
    arm.load(node, stored)
    assert arm.parameters(node)["weight"].data_ptr() == stored["weight"].data_ptr()
    found = arm.run(node, None, call)
    arm.free(node)
    torch.testing.assert_close(found.tensors, whole.tensors, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(narrow_weights, "LARGE", 2**62)
    again = arm.run(node, stored, call)
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in whole.tensors.items())

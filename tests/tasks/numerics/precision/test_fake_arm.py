"""The fake-quantised arm on nodes of tiny models: whole, in two parts, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from day0.adapters.base.target import Call, Paused
from day0.adapters.models.walk import Glue, Walk
from day0.adapters.models.weights import resolve_weights
from day0.tasks.numerics.precision.fake_arm import FakeArm
from day0.tasks.numerics.precision.fake_noise import carried
from day0.tasks.numerics.precision.lowerings import LOWERINGS
from day0.tasks.numerics.walk.expert_runs import Waiting, through_experts
from day0.tasks.reference_arm import Arm, read_weights
from support.moe_nodes import MoeNode, moe_node, states
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]


@pytest.fixture(scope="module")
def moe(tiny: Tiny) -> MoeNode:
    return moe_node(tiny("qwen3_moe"), "bf16")


def _arm(moe: MoeNode, dtype: str = "fp8_e4m3") -> FakeArm:
    return FakeArm(moe.skeleton, "bf16", {}, LOWERINGS[dtype])


def _through(moe: MoeNode, arm: Arm, chunk: int) -> Tensor:
    arm.load(moe.node, moe.rest)
    try:
        paused = arm.start(moe.node, moe.calls["prefill"])
        assert isinstance(paused, Paused)
        waiting = [Waiting(arm, paused, "lowered")]
        (output,) = through_experts(moe.node, waiting, moe.stack, chunk=chunk)
        assert isinstance(output, Tensor)
        came = arm.resume(paused, output)
        assert isinstance(came, Call)
        return states(came)
    finally:
        arm.free(moe.node)


def test_a_node_in_two_parts_and_its_experts_in_chunks_are_the_node_as_one(moe: MoeNode) -> None:
    arm = _arm(moe)
    whole = states(arm.run(moe.node, moe.weights, moe.calls["prefill"]))
    plain = states(Arm(moe.skeleton, "bf16", {}).run(moe.node, moe.weights, moe.calls["prefill"]))
    assert torch.equal(_through(moe, arm, 64), whole)
    assert torch.allclose(_through(moe, arm, 1).float(), whole.float(), rtol=2**-7, atol=2**-7)
    apart = float((whole - plain).float().norm() / plain.float().norm())
    assert 0.002 < apart < 0.1


def _fp8(rows: Tensor) -> Tensor:
    """Each row to the nearest multiples of its largest magnitude over 448 that e4m3 holds."""
    scale = rows.float().abs().amax(-1, keepdim=True) / 448
    return (rows.float() / scale).to(torch.float8_e4m3fn).float() * scale


def test_experts_are_rounded_as_written_out_by_hand(moe: MoeNode) -> None:
    drawn = torch.Generator().manual_seed(5)
    hidden = torch.randn(6, 32, generator=drawn).bfloat16()
    ids = torch.tensor([[0, 1], [1, 2], [0, 2], [2, 1], [1, 0], [2, 0]])
    weights = torch.rand(6, 2, generator=drawn).bfloat16()
    stack = {name: value[:3].bfloat16() for name, value in moe.experts.items()}
    output = _arm(moe).run_experts(moe.node, stack, hidden, ids, weights)

    def by_hand(numbers: Callable[[Tensor], Tensor]) -> Tensor:
        held = {name: numbers(value).bfloat16().float() for name, value in stack.items()}
        total = torch.zeros(6, 32)
        for token, choices in enumerate(ids.tolist()):
            for slot, expert in enumerate(choices):
                up = (numbers(hidden[token, None]) @ held["gate_up_proj"][expert].T).bfloat16()
                gate, linear = up.chunk(2, -1)
                down = (numbers(silu(gate) * linear) @ held["down_proj"][expert].T).bfloat16()
                total[token] += (down * weights[token, slot]).float()[0]
        return total

    wanted, plain = by_hand(_fp8), by_hand(Tensor.float)
    # A number that another order of sums puts across a step of fp8 moves the result by that step.
    assert float((output.float() - wanted).norm() / wanted.norm()) < 0.01
    assert float((output.float() - plain).norm() / plain.norm()) > 0.03


def test_routers_norms_embedding_and_head_are_left_as_they_are(tiny: Tiny) -> None:
    model = tiny("qwen3_moe")
    skeleton = model.skeleton
    fake, plain = FakeArm(skeleton, "bf16", {}, LOWERINGS["fp8_e4m3"]), Arm(skeleton, "bf16", {})
    same: dict[str, bool] = {}
    with Walk(skeleton, [list(range(3, 19))], "bf16", glue=Glue(skeleton, "bf16", plain.options)) as walk:
        for call in walk:
            node = skeleton.node(call.node)
            weights = read_weights(node, resolve_weights(node, model.release.checkpoint))
            output = plain.run(node, weights, call.call)
            other = fake.run(node, weights, call.call)
            same[node.name] = all(
                torch.equal(value, other.tensors[name]) for name, value in output.tensors.items()
            )
            call.reply(output)
    layers = {node.name for node in skeleton.nodes if node.role == "layer"}
    assert {name for name, equal in same.items() if not equal} == layers


def test_what_the_noise_depends_on_is_in_its_identity(moe: MoeNode) -> None:
    blocks = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    lowerings = [LOWERINGS["fp8_e4m3"], LOWERINGS["fp8_e5m2"], LOWERINGS["int8"]]
    stated = carried("fp8_e4m3", "bf16", blocks)
    assert stated is not None
    assert stated.fake is not None
    arms: Sequence[Arm] = [
        Arm(moe.skeleton, "bf16", {}),
        *(FakeArm(moe.skeleton, "bf16", {}, one) for one in [*lowerings, stated.fake]),
    ]
    assert len({str(arm.identity) for arm in arms}) == len(arms)

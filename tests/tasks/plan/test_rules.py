"""Rules r1 to r3, against what engines were seen to refuse and to take."""

from __future__ import annotations

import pytest

from day0.tasks.inventory.record import Quantization
from day0.tasks.plan.rules import BlockWeight, block_weights, check_r1, check_r2, check_r3
from day0.tasks.plan.sharding import Heads, Layout
from support.synthetic_inventory import make_pattern

FP8 = Quantization(scheme="fp8_block", bits=8, group=(128, 128))


def gqa(kv: int, query: int = 64) -> Heads:
    return Heads(query=query, kv=kv, latent=False, experts=128)


def latent(query: int) -> Heads:
    return Heads(query=query, kv=query, latent=True, experts=256)


@pytest.mark.parametrize(
    ("heads", "tensor", "holds", "arithmetic"),
    [(128, 8, True, "128 heads % 8 = 0"), (9, 2, False, "9 heads % 2 = 1"), (9, 3, True, "9 heads % 3 = 0")],
)
def test_r1(heads: int, tensor: int, holds: bool, arithmetic: str) -> None:
    check = check_r1(heads, tensor)
    assert (check.rule, check.holds, check.arithmetic) == ("r1", holds, arithmetic)


@pytest.mark.parametrize(
    ("kv", "tensor", "holds", "arithmetic"),
    [
        (8, 4, True, "8 KV heads % 4 = 0"),
        (3, 2, False, "3 KV heads % 2 = 1"),
        (4, 8, True, "8 % 4 KV heads = 0, each KV head on 2 ranks"),
        (3, 8, False, "8 % 3 KV heads = 2"),
    ],
)
def test_r2(kv: int, tensor: int, holds: bool, arithmetic: str) -> None:
    check = check_r2(gqa(kv), tensor)
    assert (check.rule, check.holds, check.arithmetic) == ("r2", holds, arithmetic)


def test_r2_does_not_apply_to_a_latent_cache() -> None:
    assert check_r2(latent(128), 7).holds


def weights(
    *named: tuple[str, str, tuple[int, int]], quantization: Quantization = FP8, dtype: str = "fp8_e4m3"
) -> tuple[BlockWeight, ...]:
    return block_weights(
        [make_pattern(name, role, shape, dtype) for name, role, shape in named], quantization
    )


DEEPSEEK = (
    ("model.layers.{l}.mlp.down_proj.weight", "dense_mlp", (7168, 18432)),
    ("model.layers.{l}.mlp.gate_proj.weight", "dense_mlp", (18432, 7168)),
    ("model.layers.{l}.self_attn.kv_a_proj_with_mqa.weight", "attention", (576, 7168)),
    ("model.layers.{l}.self_attn.o_proj.weight", "attention", (7168, 16384)),
    ("model.layers.{l}.mlp.experts.{e}.up_proj.weight", "expert", (2048, 7168)),
)


@pytest.mark.parametrize(("tensor", "holds"), [(1, True), (8, True), (16, True), (32, False)])
def test_r3_on_deepseek_v3(tensor: int, holds: bool) -> None:
    check = check_r3(weights(*DEEPSEEK), FP8, Layout(tensor), latent(128))
    assert check.holds is holds
    if not holds:
        assert "18432 / 32 = 576, 576 % 128 = 64" in check.arithmetic


def test_r3_still_bites_the_dense_layers_under_expert_parallelism() -> None:
    assert not check_r3(weights(*DEEPSEEK), FP8, Layout(32, 1, 32), latent(128)).holds


def test_r3_leaves_routed_experts_alone_that_stay_whole() -> None:
    minimax = weights(("model.layers.{l}.block_sparse_moe.experts.{e}.w1.weight", "expert", (1536, 3072)))
    broken = check_r3(minimax, FP8, Layout(8), gqa(8))
    assert not broken.holds
    assert "1536 / 8 = 192, 192 % 128 = 64" in broken.arithmetic
    assert check_r3(minimax, FP8, Layout(8, 1, 8), gqa(8)).holds
    assert check_r3(minimax, FP8, Layout(4), gqa(8)).holds


def test_r3_splits_keys_over_no_more_ranks_than_heads() -> None:
    keys = weights(("model.layers.{l}.self_attn.k_proj.weight", "attention", (512, 4096)))
    assert check_r3(keys, FP8, Layout(8), gqa(4)).holds
    assert not check_r3(keys, FP8, Layout(8), gqa(8)).holds


def test_r3_does_not_apply_to_bf16_channels_and_mxfp4() -> None:
    for scheme in ("none", "fp8_channel", "fp8_tensor", "mxfp4"):
        quantization = Quantization(scheme=scheme, bits=4, group=32)
        found = weights(*DEEPSEEK, quantization=quantization)
        assert check_r3(found, quantization, Layout(32), latent(128)).holds


@pytest.mark.parametrize(
    ("scheme", "name", "shape"),
    [
        ("int4_group", "down_proj.weight_packed", (4096, 1536 // 8)),
        ("gptq", "down_proj.qweight", (1536 // 8, 4096)),
        ("awq", "down_proj.qweight", (1536, 4096 // 8)),
    ],
)
def test_r3_wants_whole_groups_along_the_inputs_however_they_are_packed(
    scheme: str, name: str, shape: tuple[int, int]
) -> None:
    quantization = Quantization(scheme=scheme, bits=4, group=128)
    (weight,) = weights(
        (f"model.layers.{{l}}.mlp.experts.{{e}}.{name}", "expert", shape),
        quantization=quantization,
        dtype="int32",
    )
    assert (weight.rows, weight.columns) == (4096, 1536)
    assert check_r3([weight], quantization, Layout(4), gqa(4)).holds
    broken = check_r3([weight], quantization, Layout(8), gqa(4))
    assert not broken.holds
    assert "192 % 128 = 64" in broken.arithmetic

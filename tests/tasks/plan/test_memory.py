"""Bytes per device against sums made from the tensor lists themselves and against published figures."""

from __future__ import annotations

from fractions import Fraction

import pytest

from day0.adapters.base.dtypes import num_bytes
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.parallel import split_kind, stage_layers
from day0.tasks.plan import memory
from day0.tasks.plan.memory import Stage, parse_indices, reserve_bytes, stages_of
from day0.tasks.plan.sharding import Heads, Layout, device_share
from support.layouts import expand_layout
from support.synthetic_inventory import Model, make_inventory, make_pattern

GIB = 2**30
R1 = "deepseek-ai--DeepSeek-R1"
KEPT_WHOLE = ("norm", "kv_a_proj", "q_a_proj", "mlp.gate.")
TINY = Model(
    "tiny", layers=4, hidden=64, heads=8, kv_heads=2, head_dim=8, vocabulary=640, dense_width=128, tied=True
)


@pytest.mark.parametrize("tensor", [8, 16])
def test_weights_of_a_rank_are_those_of_its_shards(deepseek: InventoryRecord, tensor: int) -> None:
    expected = Fraction(0)
    for name, dtype, shape in expand_layout(R1):
        if name.startswith("model.layers.61."):  # multi-token prediction is not served
            continue
        elements = 1
        for dim in shape:
            elements *= dim
        whole = any(part in name for part in KEPT_WHOLE)
        expected += Fraction(num_bytes(dtype, elements), 1 if whole else tensor)
    (stage,) = stages_of(deepseek.facts, Layout(tensor))
    assert 0 <= stage.weights - expected < 10_000  # rounding up, pattern by pattern and layer by layer


def test_a_latent_cache_is_whole_on_every_rank(deepseek: InventoryRecord) -> None:
    for tensor in (1, 8, 32):
        (stage,) = stages_of(deepseek.facts, Layout(tensor))
        assert stage.kv_per_token == 61 * 576 * 2 == 70_272


def test_the_first_stage_of_four_is_the_published_one(deepseek: InventoryRecord) -> None:
    stages = stages_of(deepseek.facts, Layout(8, 4))
    assert 16.5 < stages[0].weights / GIB < 16.96  # measured: 16.96 GiB a rank, everything included
    assert max(stage.weights for stage in stages) / GIB > 20.0  # the others: 20.1 to 21.4


def test_a_context_of_kimi_k2_5_costs_what_was_reported() -> None:
    kimi = make_inventory(
        Model(
            "k", 61, 7168, 64, 64, 192, 163840, latent=512, query_latent=1536, rope_dim=64, dense_width=18432
        )
    )
    (stage,) = stages_of(kimi.facts, Layout(8), kv_scale=0.5)
    assert round(stage.sequence_bytes(262_144) / GIB, 3) == 8.578


def test_a_context_of_gpt_oss_120b_costs_what_was_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "PLAN_BATCHED_TOKENS", 1024)
    stage = Stage(weights=0, growing=18 * 2048, windows={128: 18 * 2048}, state=0)
    assert stage.sequence_bytes(131_072) == 18 * 2048 * 131_072 + 18 * 2048 * (1152 + 16)
    assert round(stage.sequence_bytes(131_072) / GIB, 2) == 4.54


def test_the_longest_context_is_the_inverse_of_its_bytes() -> None:
    stage = Stage(weights=0, growing=100, windows={64: 50}, state=1000)
    for tokens in (16, 160, 8192, 50_000):
        need = stage.sequence_bytes(tokens)
        assert stage.longest(need, 100_000) >= tokens
        assert stage.sequence_bytes(stage.longest(need, 100_000)) <= need
        assert stage.longest(need - 1, 100_000) < tokens
    assert stage.longest(0, 100) == 0
    assert Stage(0, 0, {}, 0).longest(0, 100) == 100


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"),
    [
        (61, 4, [15, 15, 16, 15]),
        (61, 2, [31, 30]),
        (30, 4, [7, 8, 8, 7]),
        (8, 1, [8]),
        (62, 8, [7, 8, 8, 8, 8, 8, 8, 7]),
    ],
)
def test_layers_are_spread_as_vllm_spreads_them(layers: int, stages: int, sizes: list[int]) -> None:
    spread = stage_layers(layers, stages)
    assert [len(span) for span in spread] == sizes
    assert [index for span in spread for index in span] == list(range(layers))


def test_keys_and_values_are_replicated_beyond_their_heads() -> None:
    heads = Heads(query=64, kv=4, latent=False, experts=0)
    key = make_pattern("model.layers.{l}.self_attn.k_proj.weight", "attention", (512, 64))
    query = make_pattern("model.layers.{l}.self_attn.q_proj.weight", "attention", (4096, 64))
    fused = make_pattern("model.layers.{l}.attention.qkv_proj.weight", "attention", (72 * 64, 64))
    assert [device_share(key, Layout(n), heads) for n in (1, 2, 4, 8)] == [
        1,
        Fraction(1, 2),
        Fraction(1, 4),
        Fraction(1, 4),
    ]
    assert device_share(query, Layout(8), heads) == Fraction(1, 8)
    assert device_share(fused, Layout(8), heads) == Fraction(64 // 8 + 2, 72)


def test_experts_are_counted_whole_on_the_fullest_rank() -> None:
    heads = Heads(query=64, kv=8, latent=False, experts=10)
    expert = make_pattern("model.layers.{l}.mlp.experts.{e}.down_proj.weight", "expert", (64, 64))
    assert device_share(expert, Layout(4, 1, 4), heads) == Fraction(3, 10)
    assert device_share(expert, Layout(4), heads) == Fraction(1, 4)


@pytest.mark.parametrize(
    ("name", "role", "shape", "kind"),
    [
        ("model.layers.{l}.mlp.experts.gate_up_proj_blocks", "expert", (32, 5760, 90, 16), "column"),
        ("model.layers.{l}.mlp.experts.down_proj_bias", "expert", (32, 2880), "replicated"),
        ("model.layers.{l}.self_attn.o_proj.bias", "attention", (2880,), "replicated"),
        ("model.layers.{l}.self_attn.q_proj.bias", "attention", (4096,), "column"),
        ("model.layers.{l}.self_attn.sinks", "attention", (64,), "column"),
        ("model.layers.{l}.self_attn.q_a_proj.weight_scale_inv", "attention", (12, 56), "replicated"),
        ("model.layers.{l}.input_layernorm.weight", "norm", (64,), "replicated"),
        ("model.layers.{l}.mlp.gate.weight", "router", (256, 64), "replicated"),
        ("something.else", "unknown", (8, 8), "replicated"),
        ("lm_head.weight", "head", (640, 64), "vocabulary"),
    ],
)
def test_what_is_split_and_what_is_not(name: str, role: str, shape: tuple[int, ...], kind: str) -> None:
    assert split_kind(make_pattern(name, role, shape)) == kind


def test_a_tied_embedding_stands_on_first_and_last_stage() -> None:
    facts = make_inventory(TINY).facts
    embedding = 640 * 64 * 2
    (whole,) = stages_of(facts, Layout())
    first, last = stages_of(facts, Layout(1, 2))
    assert first.weights + last.weights == whole.weights + embedding
    assert first.kv_per_token == last.kv_per_token == whole.kv_per_token // 2


def test_the_vocabulary_is_padded_before_it_is_split() -> None:
    odd = make_inventory(Model("odd", 1, 64, 8, 8, 8, vocabulary=65, dense_width=128)).facts
    (stage,) = stages_of(odd, Layout(2))
    rest = 4 * 64 * 64 * 2 // 2 + 3 * 64 * 128 * 2 // 2
    assert stage.weights == rest + 2 * (128 * 64 * 2 // 2)


def test_converted_weights_take_two_bytes_a_parameter(deepseek: InventoryRecord) -> None:
    (stage,) = stages_of(deepseek.facts, Layout(), bf16_weights=True)
    assert stage.weights == 2 * deepseek.facts.totals.main_params


def test_reserve_grows_with_width_and_shrinks_with_ranks(deepseek: InventoryRecord) -> None:
    known = deepseek.facts.architecture
    assert reserve_bytes(known, Layout(1)) > 2 * GIB
    assert reserve_bytes(known, Layout(16)) < reserve_bytes(known, Layout(2))


def test_index_sets() -> None:
    assert parse_indices("0-2,5,8-12:2") == (0, 1, 2, 5, 8, 10, 12)
    assert parse_indices("") == ()

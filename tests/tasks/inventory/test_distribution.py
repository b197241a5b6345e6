"""The distribution adds up, and its memory per rank is what the layouts give when counted by hand."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import pytest

from day0.adapters.base.dtypes import num_bytes
from day0.adapters.base.errors import InputError
from day0.tasks.inventory.layouts import ParallelLayout, parse_layout
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.record_distribution import Distribution, LayoutMemory, Share
from day0.tasks.inventory.take import take_inventory
from support.layouts import RELEASES, expand_layout, layout_release, make_release
from support.small_releases import MIXTRAL, SMOLLM2, gguf_tensors, mixtral_tensors, smollm2_tensors

LAYOUTS = ("tp=1", "tp=4", "tp=8", "tp=16", "tp=32", "tp=8,ep=8", "tp=8,ep=4", "pp=8", "tp=8,pp=2,sp")


@cache
def taken(name: str) -> InventoryRecord:
    return take_inventory(layout_release(name), layouts=LAYOUTS)


@pytest.fixture(params=RELEASES)
def record(request: pytest.FixtureRequest) -> InventoryRecord:
    return taken(request.param)


@pytest.fixture
def deepseek() -> InventoryRecord:
    return taken(RELEASES[0])


def held(record: InventoryRecord) -> Distribution:
    assert record.facts.distribution is not None
    return record.facts.distribution


def memory(record: InventoryRecord, text: str) -> LayoutMemory:
    wanted = parse_layout(text).text
    return next(item for item in held(record).memory if item.layout == wanted)


def small(config: dict[str, Any], tensors: dict[str, Any], *layouts: str) -> InventoryRecord:
    return take_inventory(make_release(config, tensors), layouts=layouts, expected=False)


def share(record: InventoryRecord, name: str, role: str) -> Share:
    return next(row for row in held(record).rows if (row.name, row.role) == (name, role))


def test_rows_add_up_to_the_totals(record: InventoryRecord) -> None:
    rows, totals = held(record).rows, record.facts.totals
    assert sum(row.params for row in rows) == totals.logical_params
    assert sum(row.bytes for row in rows) == totals.data_bytes
    assert sum(row.tensors for row in rows) == totals.tensors
    assert sum(row.params for row in rows if row.part == "mtp") == totals.mtp_params
    beside = ("vision", "projector")
    assert sum(row.params for row in rows if row.part in beside) == totals.vision_params
    assert sum(row.kv_bytes_per_token for row in rows) == record.facts.kv_bytes_per_token


def test_rows_add_up_to_the_layers(record: InventoryRecord) -> None:
    for layer in record.facts.layers:
        rows = [row for row in held(record).rows if row.name == layer.name]
        assert (sum(row.params for row in rows), sum(row.bytes for row in rows)) == (
            layer.params,
            layer.bytes,
        )


def test_active_parameters_by_three_conventions(record: InventoryRecord) -> None:
    active = {"embedding": 0, "head": 0, "": 0}
    for row in held(record).rows:
        active[row.role if row.role in active else ""] += row.active_params
    told = record.facts.active_params
    assert sum(active.values()) == told.with_embedding_and_head
    assert active["head"] + active[""] == told.without_embedding
    assert active[""] == told.without_embedding_and_head


@pytest.mark.parametrize("stored_head", [False, True])
def test_active_parameters_of_one_matrix_for_both_ends(stored_head: bool) -> None:
    tensors = smollm2_tensors()
    if stored_head:
        tensors["lm_head.weight"] = ("bf16", (49152, 576))
    found = small(SMOLLM2, tensors)
    active = sum(row.active_params for row in held(found).rows)
    assert active == found.facts.active_params.with_embedding_and_head == 134_515_008


def test_uneven_experts_still_add_up() -> None:
    """A layer that lacks an expert's matrix: top-k over the number is no whole number there."""
    tensors = mixtral_tensors()
    del tensors["model.layers.0.block_sparse_moe.experts.3.w2.weight"]
    tensors["model.layers.1.block_sparse_moe.experts.0.w1.bias"] = ("bf16", (63,))
    found = small({**MIXTRAL, "num_experts_per_tok": 3}, tensors)
    active = sum(row.active_params for row in held(found).rows)
    assert active == found.facts.active_params.with_embedding_and_head


def test_shapes_of_latent_attention_and_experts(deepseek: InventoryRecord) -> None:
    attention = share(deepseek, "model.layers.5", "attention")
    assert attention.input == attention.output == "[B, T, 7168]"
    assert attention.inner == "q [B, T, 128, 192], latent [B, T, 576], heads [B, T, 128, 128]"
    assert (attention.kv_bytes_per_token, attention.state_bytes_per_sequence) == (1152, 0)
    expert = share(deepseek, "model.layers.5", "expert")
    assert (expert.input, expert.inner) == ("[B*T*8, 7168]", "[B*T*8, 2048]")
    assert share(deepseek, "lm_head", "head").output == "[B, T, 129280]"
    assert share(deepseek, "model.layers.5", "router").output == "[B, T, 256]"


def test_primitives_of_deepseek(deepseek: InventoryRecord) -> None:
    found = {
        (item.role, item.parallel): (item.primitive, item.payload_bytes_per_token, item.sent)
        for item in held(deepseek).primitives
    }
    assert found["attention", "tp"] == ("all-reduce", 7168 * 2, "2(p-1)/p")
    assert found["expert", "ep"] == ("all-to-all", 8 * 7168 * 2, "(p-1)/p")
    assert found["head", "tp"] == ("all-gather", 129_280 * 2, "(p-1)/p")
    assert found["dense_mlp", "pp"] == ("send/recv", 7168 * 2, "1")
    assert share(deepseek, "model.layers.5", "attention").communication == {
        "tp": ["all-reduce"],
        "sp": ["all-gather", "reduce-scatter"],
    }
    assert share(deepseek, "model.layers.5", "router").communication == {}


def kept_whole(tensor: str) -> bool:
    """What every rank of DeepSeek's and Kimi's text model keeps, and what belongs to images."""
    names = ("norm", "q_a_proj", "kv_a_proj", "mlp.gate.", "vision_tower", "mm_projector", "weight_shape")
    return any(name in tensor for name in names)


@pytest.mark.parametrize("name", RELEASES[:2])
def test_weights_of_a_rank_counted_by_hand(name: str) -> None:
    whole = 0
    by_tensors = by_experts = by_both = 0.0
    for tensor, dtype, shape in expand_layout(name):
        if ".layers.61." in tensor:  # multi-token prediction, told apart
            continue
        size = num_bytes(dtype, prod(shape))
        part = size if kept_whole(tensor) else size / 8
        whole += size
        by_tensors += part
        by_experts += size / 8 if ".experts." in tensor else part
        by_both += size / 4 if "weight_shape" in tensor else part
    for text, expected in (("tp=8", by_tensors), ("tp=8,ep=8", by_experts), ("tp=8,ep=4", by_both)):
        told = memory(taken(name), text)
        assert told.weights_bytes_min == told.weights_bytes_max == expected, text
    one = memory(taken(name), "tp=1")
    assert one.weights_bytes_max == whole
    assert whole + one.mtp_bytes_max == taken(name).facts.totals.data_bytes


def test_a_latent_cache_is_whole_on_every_rank(deepseek: InventoryRecord) -> None:
    told = memory(deepseek, "tp=8")
    assert told.kv_bytes_per_token_max == deepseek.facts.kv_bytes_per_token
    assert told.notes == ["the latent cache and the projections to it are whole on every rank"]


def test_kv_heads_fewer_than_ranks_are_replicated() -> None:
    found = taken(RELEASES[2])
    sixteen, four = memory(found, "tp=16"), memory(found, "tp=4")
    assert sixteen.kv_bytes_per_token_max == 24 * 2 * 64 * 2  # one of eight heads, keys and values, bf16
    assert sixteen.notes[0] == "each of 8 KV heads lies on 2 ranks"
    assert four.kv_bytes_per_token_max == found.facts.kv_bytes_per_token // 4


def test_stages_hold_embedding_first_and_head_last(deepseek: InventoryRecord) -> None:
    told = memory(deepseek, "pp=8")
    layers = {layer.index: layer.bytes for layer in deepseek.facts.layers}
    end = 129_280 * 7168 * 2
    assert [stage.layers for stage in told.stages] == [
        "0-6", "7-13", "14-21", "22-29", "30-37", "38-45", "46-53", "54-60",
    ]  # fmt: skip
    assert told.stages[0].weights_bytes_max == sum(layers[index] for index in range(7)) + end
    last = sum(layers[index] for index in range(54, 61))
    assert told.stages[7].weights_bytes_max == last + end + 7168 * 2
    assert told.stages[7].mtp_bytes == sum(row.bytes for row in held(deepseek).rows if row.part == "mtp")
    assert sum(stage.kv_bytes_per_token for stage in told.stages) == deepseek.facts.kv_bytes_per_token
    assert told.notes == ["61 layers over 8 stages: one more on 5 of them"]


def test_a_tied_embedding_lies_on_both_ends() -> None:
    told = memory(small(SMOLLM2, smollm2_tensors(), "pp=3"), "pp=3")
    embedding, layer = 49152 * 576 * 2, 3_540_096 * 2
    assert [stage.weights_bytes_max for stage in told.stages] == [
        embedding + 10 * layer,
        10 * layer,
        embedding + 10 * layer + 576 * 2,
    ]


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ("tp=2", "9 heads % 2 = 1"),
        ("tp=27", "9 heads % 27 = 9"),
        ("pp=31", "31 stages for 30 layers"),
        ("tp=3,ep=3", "ep=3 for a model without routed experts"),
    ],
)
def test_what_cannot_be_split_says_why(layout: str, reason: str) -> None:
    found = small(SMOLLM2, smollm2_tensors(), layout)
    told = memory(found, layout)
    assert (told.possible, told.reason, told.weights_bytes_max) == (False, reason, 0)
    (finding,) = [item for item in found.findings if item.code == "INV090"]
    assert reason in finding.message


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ("tp=8,ep=8", "8 ranks of experts for 4 experts"),
        ("tp=4,ep=3", "4 ranks (tp x dp) % ep 3 = 1"),
        ("tp=4", "4 % 2 KV heads = 0"),
    ],
)
def test_what_experts_can_be_split_by(layout: str, reason: str) -> None:
    told = memory(small(MIXTRAL, mixtral_tensors(), layout), layout)
    assert told.possible is not bool(told.reason)
    if not told.possible:
        assert told.reason.startswith(reason)
    if told.possible:
        assert told.notes == ["each of 2 KV heads lies on 2 ranks"]


def test_experts_that_do_not_divide_lie_unevenly() -> None:
    told = memory(small(MIXTRAL, mixtral_tensors(), "dp=3,ep=3"), "dp=3,ep=3")
    expert = 2 * 3 * 64 * 32 * 2
    assert told.possible
    assert told.weights_bytes_max - told.weights_bytes_min == expert
    assert told.notes == ["4 experts over 3 ranks: one more on 1 of them"]


def test_a_shard_holds_whole_blocks(deepseek: InventoryRecord) -> None:
    assert memory(deepseek, "tp=16").possible
    assert "blocks % 32" in memory(deepseek, "tp=32").reason


def padded_share(tensor: str, ranks: int, blocks: int) -> float:
    """Part of a tensor of gpt-oss that each rank holds."""
    if ".experts." in tensor and not tensor.endswith("down_proj_bias"):
        return blocks / 90
    if ".k_proj." in tensor or ".v_proj." in tensor:
        return max(1, 8 // ranks) / 8
    if "embed_tokens" in tensor or "lm_head" in tensor:
        return -(-201_088 // ranks) / 201_088
    whole = any(mark in tensor for mark in ("norm", ".router.", "o_proj.bias", "down_proj_bias"))
    return 1 if whole else 1 / ranks


@pytest.mark.parametrize(
    ("ranks", "blocks", "note"),
    [
        (2, 45, ""),
        (8, 12, "90 blocks of 32 % 8 = 2: engines pad, every rank holds 12"),
        (64, 2, "90 blocks of 32 % 64 = 26: engines pad, every rank holds 2, 19 of them nothing but padding"),
    ],
)
def test_mxfp4_blocks_are_padded_by_headers_and_by_the_config(ranks: int, blocks: int, note: str) -> None:
    release, layout = layout_release(RELEASES[2]), f"tp={ranks}"
    expected = sum(
        num_bytes(dtype, prod(shape)) * padded_share(name, ranks, blocks)
        for name, dtype, shape in expand_layout(RELEASES[2])
    )
    for one in (release, make_release(dict(release.config), {})):
        told = memory(take_inventory(one, layouts=[layout]), layout)
        assert told.weights_bytes_min == pytest.approx(expected, rel=1e-6)
        assert told.weights_bytes_max == pytest.approx(expected, rel=1e-6)
        said = [text.partition("expert's ")[2] for text in told.notes if "blocks" in text]
        assert said == ([note] if note else [])


def test_traffic_of_a_token(deepseek: InventoryRecord) -> None:
    stream = 7168 * 2
    assert memory(deepseek, "tp=8").sent_bytes_per_token == {"tp": 2 * 61 * stream * 2 * 7 // 8}
    experts = memory(deepseek, "tp=8,ep=8").sent_bytes_per_token["ep"]
    assert experts == 2 * 58 * 8 * stream * 7 // 8
    assert memory(deepseek, "tp=8,pp=2,sp").sent_bytes_per_token == {
        "sp": 2 * 61 * stream * 2 * 7 // 8,
        "pp": stream,
    }


def test_recurrent_state_is_split_by_heads() -> None:
    config = {"model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 4, "state_size": 128,
              "num_heads": 128, "head_dim": 64, "n_groups": 8, "conv_kernel": 4, "expand": 2}  # fmt: skip
    found = small(config, {}, "tp=1", "tp=4", "tp=3")
    whole, four = memory(found, "tp=1"), memory(found, "tp=4")
    assert whole.state_bytes_per_sequence_max == found.facts.state_bytes_per_sequence
    assert four.state_bytes_per_sequence_max == whole.state_bytes_per_sequence_max // 4
    assert memory(found, "tp=3").reason == "128 state-space heads % 3 = 2"
    assert share(found, "model.layers.0", "attention").inner == "x [B, T, 8192], state [B, 8192, 128]"


def test_linear_attention_beside_full_attention() -> None:
    config = {"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 8, "head_dim": 256,
              "num_attention_heads": 16, "num_key_value_heads": 2, "full_attention_interval": 4,
              "linear_num_value_heads": 32, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
              "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4}  # fmt: skip
    found = small(config, {}, "tp=4")
    linear, full = (share(found, f"model.layers.{index}", "attention") for index in (0, 3))
    assert linear.inner == "q and k [B, T, 16, 128], v [B, T, 32, 128], state [B, 32, 128, 128]"
    assert (linear.kv_bytes_per_token, full.kv_bytes_per_token) == (0, 2 * 2 * 256 * 2)
    assert memory(found, "tp=4").kv_bytes_per_token_max == 2 * 2 * 256 * 2  # two layers, one of two KV heads


def test_usual_layouts_where_none_is_asked_for() -> None:
    found = [item.layout for item in held(small(MIXTRAL, mixtral_tensors())).memory]
    assert found == [parse_layout(text).text for text in ("tp=1", "tp=8", "tp=8,ep=8", "pp=8")]
    dense = small(SMOLLM2, smollm2_tensors())
    assert [item.possible for item in held(dense).memory] == [True, False, True]
    assert not [item for item in dense.findings if item.code == "INV090"]


def test_gguf_layers_bear_the_names_of_all_rooms() -> None:
    config = {**SMOLLM2, "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
              "num_key_value_heads": 2, "vocab_size": 128, "intermediate_size": 128}  # fmt: skip
    found = small(config, gguf_tensors(2))
    assert share(found, "model.layers.1", "attention").kv_bytes_per_token == 2 * 2 * 16 * 2


def test_nothing_known_at_all() -> None:
    found = held(small({}, {}, "tp=8,ep=2"))
    assert (found.basis, list(found.rows), list(found.memory)) == ("config", [], [])


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("tp=8", ParallelLayout(tp=8)),
        ("TP=8, EP=8,pp=2,dp=1,SP", ParallelLayout(8, 8, 2, 1, sp=True)),
        ("sp", ParallelLayout(sp=True)),
    ],
)
def test_layouts_are_read(text: str, layout: ParallelLayout) -> None:
    assert parse_layout(text) == layout
    assert parse_layout(layout.text) == layout


@pytest.mark.parametrize(
    "text",
    ["", "tp", "tp=0", "tp=-1", "tp=8,tp=8", "xp=2", "tp=9999999", "sp=1", "tp=²", "tp=8,,sp", "sp,sp"],
)
def test_layouts_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InputError, match="E165"):
        parse_layout(text)

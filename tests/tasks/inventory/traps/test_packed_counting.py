"""Traps 13 to 18: packed weights, side tensors, the total of an index, memory and compute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.checkpoints.release import open_release
from day0.tasks.inventory.take import take_inventory
from support.packed_releases import (
    CONFIG,
    EXPERTS,
    HIDDEN,
    INNER,
    LOGICAL,
    ROUTED,
    VOCABULARY,
    Layout,
    Pack,
    awq,
    bnb,
    deepseek_v4,
    fp4_int8,
    gptq,
    mixture,
    mlx,
    mxfp4_packed,
    nvfp4,
    plain,
    words,
)
from support.raw_checkpoints import write_release, write_sharded
from support.trap_quantisation import MXFP4_GROUP, QUANTISATION, Take, compressed, of


@pytest.mark.parametrize(
    ("section", "pack", "bits"),
    [
        (compressed(4, 32), words(4), 4),
        (compressed(3, 32), words(3), 3),
        (compressed(8, 32), words(8), 8),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "mxfp4-pack-quantized",
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": MXFP4_GROUP}},
                "ignore": ["lm_head", "re:.*self_attn.*"],
            },
            mxfp4_packed,
            4,
        ),
        (None, fp4_int8, 4),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": True}, gptq(4), 4),
        ({"quant_method": "gptq", "bits": 3, "group_size": 32, "desc_act": False, "sym": False}, gptq(3), 3),
        ({"quant_method": "gptq", "bits": 2, "group_size": 32, "sym": True}, gptq(2, order=False), 2),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32, "sym": True}, gptq(8), 8),
        ({"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}, awq, 4),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "W4A16_NVFP4",
                "exclude_modules": ["lm_head", "*self_attn*"],
            },
            nvfp4,
            4,
        ),
        ({"group_size": 32, "bits": 3}, mlx(3), 3),
        ({"group_size": 32, "bits": 6}, mlx(6), 6),
        (
            {
                "quant_method": "bitsandbytes",
                "load_in_4bit": True,
                "bnb_4bit_quant_type": "nf4",
                "bnb_4bit_use_double_quant": True,
            },
            bnb,
            4,
        ),
    ],
)
def test_trap_13_packed_weights_are_counted_by_the_ratio_of_bits(
    take: Take, section: dict[str, Any] | None, pack: Pack, bits: int
) -> None:
    config = CONFIG if section is None else {**CONFIG, "quantization_config": section}
    record = take(config, mixture(pack))
    totals = record.facts.totals
    assert totals.routed_expert_params == ROUTED
    assert totals.logical_params == LOGICAL
    row = next(row for row in record.facts.patterns if row.packing)
    assert row.params == row.tensors * HIDDEN * INNER
    raw = row.tensors
    for size in row.shape:
        raw *= size
    assert raw < row.params  # both counts are there to be seen
    assert list(row.logical_shape) in ([INNER, HIDDEN], [])
    if section is not None:
        assert record.facts.quantization.bits == bits
        assert of(record, *QUANTISATION) == []


def test_trap_13_bits_come_from_the_tensors_where_the_config_is_wrong(take: Take) -> None:
    section = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True}
    record = take({**CONFIG, "quantization_config": section}, mixture(gptq(3)))
    assert record.facts.totals.routed_expert_params == ROUTED
    (contradiction, *_) = of(record, "INV022")
    assert "4 bits are declared, the shapes show 3" in contradiction.message


V4 = {
    **CONFIG,
    "model_type": "deepseek_v4",
    "quantization_config": {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "fmt": "e4m3",
        "scale_fmt": "ue8m0",
        "activation_scheme": "dynamic",
    },
}


@pytest.mark.parametrize("key", [None, "fp4"])
def test_trap_14_fp4_experts_are_seen_with_and_without_the_key_outside_the_section(
    take: Take, key: str | None
) -> None:
    record = take(V4 if key is None else {**V4, "expert_dtype": key}, deepseek_v4())
    facts = record.facts
    assert facts.totals.routed_expert_params == ROUTED
    assert facts.totals.aux_elements == ROUTED // 32 + 2 * 4 * 2 * 1
    assert facts.quantization.scheme == "mixed"
    assert {(part.scheme, part.bits) for part in facts.quantization.parts} == {("fp8_block", 8), ("mxfp4", 4)}
    assert of(record, "INV023", "INV051") == []
    found = of(record, "INV022")
    if key is None:
        assert "the tensors also show mxfp4 in 24 tensors" in found[0].message
    else:
        assert found == []
        assert "config.json#/expert_dtype" in [source.source for source in facts.quantization.sources]


def test_trap_15_side_tensors_are_told_by_role_and_not_by_suffix(take: Take) -> None:
    layout = mixture(bnb) | {
        "model.layers.0.self_attn.q_norm.scale": ("BF16", (16,)),  # learnable, beside no low-precision weight
        "model.layers.0.self_attn.layer_scale": ("BF16", (HIDDEN,)),
        "model.layers.1.self_attn.rotary_emb.inv_freq": ("F32", (8,)),
    }
    section = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    record = take({**CONFIG, "quantization_config": section}, layout)
    facts = record.facts
    assert facts.totals.logical_params == LOGICAL + 16 + HIDDEN
    per_weight = HIDDEN * INNER // 64 + -(-HIDDEN * INNER // 64 // 256) + 256 + 16 + 90
    assert facts.totals.aux_elements == 2 * EXPERTS * 3 * per_weight + 8
    roles = {row.pattern.rpartition(".")[2]: row.role for row in facts.patterns}
    assert {roles[name] for name in ("absmax", "quant_map", "bitsandbytes__nf4")} == {"aux"}
    assert roles["inv_freq"] == "buffer"
    assert roles["scale"] == "norm"
    owners = {row.owner for row in facts.patterns if row.role == "aux"}
    assert owners == {"expert"}


def test_trap_16_blocks_of_gpt_oss(tmp_path: Path) -> None:
    record = take_inventory(open_release(str(write_release(tmp_path / "gpt-oss", "openai--gpt-oss-20b"))))
    rows = {row.pattern.rpartition(".")[2]: row for row in record.facts.patterns}
    blocks = rows["gate_up_proj_blocks"]
    assert list(blocks.shape) == [32, 5760, 90, 16]
    assert list(blocks.logical_shape) == [32, 5760, 2880]
    assert blocks.params == 24 * 32 * 5760 * 2880
    assert rows["gate_up_proj_scales"].role == "aux"
    quantization = record.facts.quantization
    assert quantization.checks.weights == quantization.checks.with_scale == 48
    assert [(item.pattern, item.modules) for item in quantization.exclusions] == [
        ("model.layers.*.self_attn", 24 * 9),
        ("model.layers.*.mlp.router", 24 * 2),
        ("model.embed_tokens", 1),
        ("lm_head", 1),
    ]
    assert quantization.checks.excluded_quantized == 0
    assert of(record, *QUANTISATION) == []


def test_trap_16_a_block_without_its_row_of_scales_is_an_error(take: Take) -> None:
    layout: Layout = {
        "model.layers.0.mlp.experts.down_proj_blocks": ("U8", (4, 64, 2, 16)),
        "model.layers.0.mlp.experts.down_proj_scales": ("U8", (4, 64, 3)),
    }
    record = take({"quantization_config": {"quant_method": "mxfp4"}}, layout)
    (wrong,) = of(record, "INV051")
    assert wrong.severity == "error"
    assert "expected [4, 64, 2]" in wrong.message
    assert record.facts.totals.logical_params == 4 * 64 * 64


@pytest.mark.parametrize("total", [0, 17_000_000])
def test_trap_17_the_total_of_the_index_is_shown_and_never_used(tmp_path: Path, total: int) -> None:
    write_sharded(tmp_path, mixture(plain), 2)
    index = tmp_path / "model.safetensors.index.json"
    stated = json.loads(index.read_text())
    index.write_text(json.dumps({**stated, "metadata": {"total_size": total}}))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    record = take_inventory(open_release(str(tmp_path)))
    assert record.facts.totals.data_bytes == 2 * LOGICAL
    (finding,) = of(record, "INV011")
    assert f"{total:,}" in finding.message
    assert f"{2 * LOGICAL:,}" in finding.message


def test_trap_17_the_total_may_be_that_of_the_files(tmp_path: Path) -> None:
    paths = write_sharded(tmp_path, mixture(plain), 2)
    index = tmp_path / "model.safetensors.index.json"
    stated = json.loads(index.read_text())
    index.write_text(
        json.dumps({**stated, "metadata": {"total_size": sum(path.stat().st_size for path in paths)}})
    )
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    record = take_inventory(open_release(str(tmp_path)))
    assert record.facts.totals.data_bytes == 2 * LOGICAL
    assert of(record, "INV011") == []


def test_trap_18_memory_follows_from_the_total_and_compute_from_the_active(take: Take) -> None:
    record = take(CONFIG, mixture(plain))
    facts = record.facts
    assert facts.totals.data_bytes == 2 * LOGICAL
    body = LOGICAL - ROUTED - 2 * VOCABULARY * HIDDEN
    assert facts.active_params.with_embedding_and_head == body + ROUTED // 2 + 2 * VOCABULARY * HIDDEN
    assert facts.active_params.without_embedding == body + ROUTED // 2 + VOCABULARY * HIDDEN
    assert facts.active_params.without_embedding_and_head == body + ROUTED // 2
    assert sum(layer.bytes for layer in facts.layers) > 2 * ROUTED

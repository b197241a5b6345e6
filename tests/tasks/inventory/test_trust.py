"""Code that configs name, licence and lineage, precision of what the publisher kept wide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from day0.adapters.checkpoints.release import open_release
from day0.tasks.inventory.code_references import code_references
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.layouts import make_release
from support.raw_checkpoints import write_filled
from support.small_releases import MIXTRAL


def take(folder: Path, config: dict[str, Any] | None = None, **files: str) -> InventoryRecord:
    """The inventory of one small tensor beside these files, `a__b` standing for `a.b`."""
    write_filled(folder / "model.safetensors", {"model.embed_tokens.weight": ("BF16", (100, 32))})
    (folder / "config.json").write_text(json.dumps(MIXTRAL | (config or {})))
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return take_inventory(open_release(str(folder)))


def codes(record: InventoryRecord) -> set[tuple[str, str]]:
    return {
        (finding.code, finding.severity)
        for finding in record.findings
        if "INV067" <= finding.code <= "INV079"
    }


def test_references_at_any_depth() -> None:
    config = {
        "auto_map": {"AutoConfig": "conf.C", "AutoTokenizer": ["tok.Slow", None, "tok.Fast"]},
        "text_config": {"auto_map": {"AutoModel": "acme/base--model.M"}, "attn_implementation": "sdpa"},
        "custom_pipelines": {"x": {"impl": "pipe.P"}},
        "a": {"b": {"_attn_implementation": {"vision": "acme/kernel:f", "text": "flash_attention_2"}}},
        "_experts_implementation": "acme/moe@v1",
        "_attn_implementation": "paged|acme/paged",
    }
    found = {(item.key, item.target, item.repository) for item in code_references({"config.json": config})}
    assert found == {
        ("config.json#/auto_map/AutoConfig", "conf.C", ""),
        ("config.json#/auto_map/AutoTokenizer", "tok.Slow", ""),
        ("config.json#/auto_map/AutoTokenizer", "tok.Fast", ""),
        ("config.json#/text_config/auto_map/AutoModel", "model.M", "acme/base"),
        ("config.json#/custom_pipelines/x/impl", "pipe.P", ""),
        ("config.json#/a/b/_attn_implementation/vision", "acme/kernel:f", "acme/kernel"),
        ("config.json#/_experts_implementation", "acme/moe@v1", "acme/moe"),
        ("config.json#/_attn_implementation", "paged|acme/paged", "acme/paged"),
    }


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("class Net: ...", set()),
        ("from .base import Net", {("INV069", "warning")}),
        ("class Net:", {("INV069", "warning")}),
        ("import triton\n@triton.jit\ndef k(): pass\nclass Net: ...", {("INV068", "info")}),
        ("import torch\ntorch.load('x')\nclass Net: ...", {("INV067", "warning")}),
        ("open('x', 'w')\nclass Net: ...", {("INV067", "info")}),
    ],
)
def test_code_of_an_unknown_type(tmp_path: Path, code: str, expected: set[tuple[str, str]]) -> None:
    config = {"model_type": "acme", "auto_map": {"AutoModel": "net.Net"}}
    assert codes(take(tmp_path, config, net__py=code)) == {("INV075", "info"), *expected}


def test_code_is_a_remark_where_transformers_has_its_own(tmp_path: Path) -> None:
    assert codes(take(tmp_path, {"auto_map": {"AutoModel": "net.Net"}})) == {("INV069", "info")}


def test_binaries_are_named(tmp_path: Path) -> None:
    record = take(tmp_path, kernel__so="\x7fELF")
    assert [(call.kind, call.file) for call in record.facts.code.calls] == [("native", "kernel.so")]
    assert codes(record) == {("INV067", "warning")}


def test_licence_and_lineage(tmp_path: Path) -> None:
    card = "---\nlicense: other\nlicense_name: acme\nbase_model: [acme/base]\ndatasets:\n- a/b\n---\n# Net\n"
    record = take(tmp_path, {"_name_or_path": "/home/x/net"}, README__md=card, LICENSE="terms")
    held = record.facts.provenance
    assert (held.licence, held.licence_name, list(held.base_models)) == ("other", "acme", ["acme/base"])
    assert (list(held.datasets), list(held.licence_files)) == (["a/b"], ["LICENSE"])
    assert (held.name_or_path, held.gated) == ("/home/x/net", None)
    assert not codes(record)
    assert codes(take(tmp_path / "other", README__md="# Net")) == {("INV078", "info")}


@pytest.mark.parametrize(
    ("name", "dtype", "need", "severity"),
    [
        ("model.layers.0.linear_attn.A_log", "bf16", "fp32", "info"),
        ("model.layers.0.linear_attn.A_log", "fp32", "fp32", ""),
        ("backbone.layers.0.mixer.D", "bf16", "fp32", "info"),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", "bf16", "fp32", "info"),
        ("model.layers.0.mlp.moe_statics.e_score_correction_bias", "bf16", "fp32", "warning"),
        ("layers.0.ffn.gate.bias", "bf16", "fp32", "warning"),
        ("model.layers.0.hc_attn_fn", "fp32", "fp32", ""),
        ("model.layers.0.self_attn.sinks", "fp32", "fp32", ""),
        ("model.layers.0.self_attn.sinks", "bf16", "", ""),
        ("model.layers.0.mlp.gate.weight", "bf16", "", ""),
        ("model.layers.0.mlp.gate.weight", "fp32", "fp32", ""),
        ("vision_tower.layers.0.mlp.fc1.weight", "fp32", "", ""),
    ],
)
def test_precision_by_role(name: str, dtype: str, need: str, severity: str) -> None:
    tensors = {"model.embed_tokens.weight": ("bf16", (100, 32)), name: (dtype, (32,)),
               "model.layers.0.mlp.experts.0.up_proj.weight": ("bf16", (64, 32))}  # fmt: skip
    record = take_inventory(make_release(MIXTRAL | {"topk_method": "noaux_tc"}, tensors))
    assert [item.need for item in record.facts.precision] == ([need] if need else [])
    assert [finding.severity for finding in record.findings if finding.code == "INV071"] == (
        [severity] if severity else []
    )


def test_scales_are_exponents_or_wide() -> None:
    tensors = {
        "model.layers.0.mlp.up_proj.weight": ("fp8_e4m3", (128, 128)),
        "model.layers.0.mlp.up_proj.weight_scale_inv": ("fp32", (1, 1)),
        "model.layers.0.mlp.down_proj.weight": ("fp8_e4m3", (128, 128)),
        "model.layers.0.mlp.down_proj.weight_scale_inv": ("e8m0", (1, 1)),
    }
    record = take_inventory(make_release(MIXTRAL, tensors))
    assert [(item.role, item.stored, item.need) for item in record.facts.precision] == [
        ("aux", "fp32", "fp32"),
        ("aux", "e8m0", "e8m0"),
    ]


_KEYS = st.sampled_from([
    "bos_token", "eos_token_id", "pad_token_id", "added_tokens_decoder", "chat_template", "content",
    "template", "name", "auto_map", "1", "_attn_implementation", "rope_parameters", "rope_scaling",
    "mrope_section", "no_rope_layers", "custom_pipelines", "impl", "text_config", "moe", "num_experts",
    "linear_attn_config", "full_attn_layers",
])  # fmt: skip
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**60) | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | _KEYS, inner, max_size=4)
    ),
    max_leaves=15,
)


@settings(max_examples=40, deadline=5000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(_KEYS, _JSON, max_size=6),
    st.dictionaries(
        st.sampled_from(["tokenizer_config__json", "special_tokens_map__json", "added_tokens__json",
                         "chat_template__json", "generation_config__json", "tokenizer__json", "net__py",
                         "README__md", "tokenizer__model"]),
        _JSON.map(json.dumps) | st.text(max_size=60), max_size=5,
    ),
)  # fmt: skip
def test_any_small_files_end_in_a_record(
    tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any], files: dict[str, str]
) -> None:
    record = take(tmp_path_factory.mktemp("any"), config, **files)
    assert json.loads(record.model_dump_json())["facts"]["totals"]["tensors"] == 1

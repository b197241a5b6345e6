"""Sections and files of nobody's making: none ends in a traceback."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from day0.tasks.inventory.quantization import declared_quantization
from day0.tasks.inventory.take import take_inventory
from support.layouts import make_release
from support.small_releases import MIXTRAL, mixtral_tensors

_WORDS = st.sampled_from(
    [
        "fp8",
        "compressed-tensors",
        "modelopt",
        "quark",
        "gptq",
        "awq",
        "mxfp4",
        "torchao",
        "hqq",
        "auto-round",
        "bitsandbytes",
        "aqlm",
        "FP8",
        "NVFP4",
        "MIXED_PRECISION",
        "re:(a+)+$",
        "re:(",
        "*",
        "Linear",
        "lm_head",
        "model.layers.0",
        "int",
        "float",
        "block",
        "W8A8",
        "FLOAT",
        "[",
        "re:\\1",
        "",
    ]
)
_KEYS = st.sampled_from(
    [
        "quant_method",
        "bits",
        "group_size",
        "weights",
        "targets",
        "config_groups",
        "group_0",
        "ignore",
        "num_bits",
        "type",
        "strategy",
        "block_structure",
        "input_activations",
        "quant_algo",
        "quantized_layers",
        "exclude_modules",
        "modules_to_not_convert",
        "global_quant_config",
        "layer_quant_config",
        "weight",
        "dtype",
        "kv_cache_scheme",
        "quant_type",
        "default",
        "_type",
        "_data",
        "dynamic",
        "extra_config",
        "quantization",
        "weight_block_size",
        "quant_config",
        "expert_dtype",
        "model.layers.0.mlp",
        "lm_head.weight",
        "model_quant_type",
        "exclude",
    ]
)
_LEAF = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 2**66),
    _WORDS,
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
)
_SECTION = st.recursive(
    st.dictionaries(_KEYS, _LEAF, max_size=6),
    lambda inner: st.dictionaries(
        _KEYS, st.one_of(_LEAF, inner, st.lists(st.one_of(_LEAF, inner), max_size=3)), max_size=6
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(section=_SECTION, other=_SECTION)
def test_any_section_ends_in_a_record(section: dict[str, Any], other: dict[str, Any]) -> None:
    config = {**MIXTRAL, "quantization_config": section, "text_config": {"quantization": other}}
    record = take_inventory(make_release(config, mixtral_tensors()))
    assert record.facts.totals.tensors == 41
    assert record.model_dump_json()


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(["hf_quant_config.json", "quantize_config.json", "quant_model_description_x.json"]),
    data=st.one_of(st.binary(max_size=40), _SECTION.map(lambda value: json.dumps(value).encode())),
)
def test_any_file_ends_in_a_declaration(name: str, data: bytes) -> None:
    declared_quantization({}, {name: data})

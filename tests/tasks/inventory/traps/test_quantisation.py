"""Traps 25 to 29: scales, and declarations of every dialect."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.checkpoints.release import open_release
from day0.tasks.inventory.take import take_inventory
from day0.tasks.verdict import Verdict
from support.packed_releases import (
    CONFIG,
    HIDDEN,
    LOGICAL,
    ROUTED,
    VOCABULARY,
    Layout,
    blocks,
    float_head,
    fp8,
    mixture,
    modelslim,
    modelslim_dynamic,
    nvfp4,
    nvfp4_static,
    words,
)
from support.raw_checkpoints import write_filled
from support.trap_quantisation import QUANTISATION, Take, compressed, of

BLOCK = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}


def attention(scale: str, shape: Sequence[int], dtype: str = "F32") -> Layout:
    """DeepSeek's compressed key-value projection: 576 rows, which 128 does not divide."""
    at = "model.layers.0.self_attn.kv_a_proj_with_mqa"
    return {f"{at}.weight": ("F8_E4M3", (576, 7168)), f"{at}.{scale}": (dtype, shape)}


@pytest.mark.parametrize(
    ("section", "layout"),
    [
        (BLOCK, attention("weight_scale_inv", (5, 56))),
        (BLOCK, attention("scale", (5, 56), "F8_E8M0")),
        (None, attention("weight_scale_inv", (5, 56))),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, attention("weight_scale", ())),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, attention("scale_weight", (1,))),
        ({"quant_method": "fbgemm_fp8"}, attention("weight_scale", (576, 1), "BF16")),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel"}},
            },
            attention("weight_scale", (576,)),
        ),
    ],
)
def test_trap_25_every_name_and_grain_of_fp8_scales(
    take: Take, section: dict[str, Any] | None, layout: Layout
) -> None:
    record = take({} if section is None else {"quantization_config": section}, layout)
    checks = record.facts.quantization.checks
    assert (checks.weights, checks.with_scale, checks.orphans) == (1, 1, 0)
    assert of(record, "INV023", "INV051") == []
    assert record.facts.totals.logical_params == 576 * 7168


@pytest.mark.parametrize("shape", [(4, 56), (5, 55), (56, 5), (5,), (1,), (576, 1)])
def test_trap_25_a_scale_of_any_other_shape_is_an_error(take: Take, shape: Sequence[int]) -> None:
    record = take({"quantization_config": BLOCK}, attention("weight_scale_inv", shape))
    (wrong,) = of(record, "INV051")
    assert "[5, 56] (blocks of 128 x 128)" in wrong.message
    assert record.facts.quantization.checks.wrong_shape == 1
    assert record.verdict is Verdict.FAIL


def test_trap_25_renamed_scales_are_orphans_on_both_sides(take: Take) -> None:
    layout = mixture(fp8("weight_scale_inv", lambda rows, columns: blocks(rows, columns, 128)))
    for expert in (1, 3):  # a rename that lost the experts' names
        name = f"model.layers.1.mlp.experts.{expert}.down_proj.weight_scale_inv"
        layout[name.replace("down_proj", "w2")] = layout.pop(name)
    record = take({**CONFIG, "quantization_config": BLOCK}, layout)
    found = {finding.subject.name: finding for finding in of(record, "INV023")}
    at = "model.layers.{l}.mlp.experts.{e}"
    assert set(found) == {f"{at}.down_proj.weight", f"{at}.w2.weight_scale_inv"}
    assert "has no scale, in 2 of 8 tensors (layer 1: 1,3)" in found[f"{at}.down_proj.weight"].message
    assert "has no weight, in 2 of 2 tensors (layer 1: 1,3)" in found[f"{at}.w2.weight_scale_inv"].message
    assert all(finding.severity == "error" for finding in found.values())
    checks = record.facts.quantization.checks
    assert (checks.weights, checks.without_scale, checks.orphans) == (24, 2, 2)


def test_trap_26_weight_only_blocks_of_modelopt(take: Take) -> None:
    section = {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO", "exclude_modules": ["lm_head", "*gate"]}

    def shape(rows: int, columns: int) -> Sequence[int]:
        high, wide = blocks(rows, columns, 128)
        return (high, 1, wide, 1)

    pack = fp8("weight_scale", shape)
    record = take({**CONFIG, "quantization_config": section}, mixture(pack, attention=pack))
    assert record.facts.quantization.scheme == "fp8_block"
    assert list(record.facts.quantization.group) == [128, 128]  # type: ignore[arg-type]  # not an integer here
    assert record.facts.quantization.activations is None
    assert of(record, *QUANTISATION) == []


def test_trap_26_activation_scales_are_asked_for_only_where_activations_are_quantised(take: Take) -> None:
    excluded = ["lm_head", "*self_attn*", "*mlp.gate"]
    weight_only = {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "exclude_modules": excluded}
    record = take({**CONFIG, "quantization_config": weight_only}, mixture(nvfp4))
    assert of(record, *QUANTISATION) == []
    both = {**weight_only, "quant_algo": "NVFP4"}
    record = take({**CONFIG, "quantization_config": both}, mixture(nvfp4_static))
    assert of(record, *QUANTISATION) == []
    assert record.facts.quantization.activations is not None
    layout = mixture(nvfp4_static)
    del layout["model.layers.0.mlp.experts.2.up_proj.input_scale"]
    (missing,) = of(take({**CONFIG, "quantization_config": both}, layout), "INV059")
    assert "in 1 of 8 tensors (layer 0: 2)" in missing.message


def test_trap_26_excluded_but_quantised(take: Take) -> None:
    section = {
        "quant_method": "modelopt",
        "quant_algo": "W4A16_NVFP4",
        "exclude_modules": ["lm_head", "*self_attn*", "*mlp.gate"],
    }
    record = take({**CONFIG, "quantization_config": section}, mixture(nvfp4, head=nvfp4))
    (finding,) = of(record, "INV054")
    assert finding.severity == "error"
    assert finding.subject.name == "lm_head.weight"
    assert record.facts.quantization.checks.excluded_quantized == 1
    head = next(item for item in record.facts.quantization.exclusions if item.pattern == "lm_head")
    assert (head.modules, head.quantized) == (1, 1)
    assert record.facts.totals.logical_params == LOGICAL


def test_trap_26_scales_of_a_plain_head_are_an_orphan(take: Take) -> None:
    layout = mixture(nvfp4) | {"lm_head.weight_scale": ("F8_E4M3", (VOCABULARY, HIDDEN // 16))}
    section = {
        "quant_method": "modelopt",
        "quant_algo": "W4A16_NVFP4",
        "exclude_modules": ["lm_head", "*self_attn*", "*mlp.gate"],
    }
    (finding,) = of(take({**CONFIG, "quantization_config": section}, layout), "INV023")
    assert "plain precision (bf16)" in finding.message


STATIC_FP8 = fp8("weight_scale", lambda rows, columns: ())


def static_fp8(module: str, rows: int, columns: int) -> Layout:
    return {**STATIC_FP8(module, rows, columns), f"{module}.input_scale": ("F32", ())}


def modelopt_file(**more: Any) -> dict[str, Any]:
    return {
        "producer": {"name": "modelopt", "version": "0.29.0"},
        "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head", "*mlp.gate"], **more},
    }


@pytest.mark.parametrize(
    ("section", "files", "source"),
    [
        (None, {"hf_quant_config": modelopt_file()}, "hf_quant_config.json#/quantization"),
        (
            {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head", "*mlp.gate"]},
            {},
            "config.json#/quantization_config",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "ignore": ["lm_head", "re:.*mlp.gate$"],
                "config_groups": {
                    "group_0": {
                        "targets": ["Linear"],
                        "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"},
                        "input_activations": {
                            "num_bits": 8,
                            "type": "float",
                            "strategy": "tensor",
                            "dynamic": False,
                        },
                    }
                },
            },
            {},
            "config.json#/quantization_config",
        ),
        (
            {
                "quant_method": "fp8",
                "activation_scheme": "static",
                "modules_to_not_convert": ["lm_head", "mlp.gate"],
            },
            {},
            "config.json#/quantization_config",
        ),
    ],
)
def test_trap_27_all_dialects_end_in_one_form(
    take: Take, section: dict[str, Any] | None, files: dict[str, Any], source: str
) -> None:
    config = CONFIG if section is None else {**CONFIG, "quantization_config": section}
    record = take(config, mixture(static_fp8, attention=static_fp8), **files)
    form = record.facts.quantization
    assert (form.scheme, form.bits, form.group) == ("fp8_tensor", 8, 0)
    assert form.activations is not None
    assert (form.activations.bits, form.activations.dtype, form.activations.dynamic) == (8, "fp8_e4m3", False)
    assert record.sources["/quantization"] == source
    assert [item.source for item in form.sources] == [source]
    assert [item.modules for item in form.exclusions] == [1, 2]
    assert (form.checks.excluded_plain, form.checks.excluded_quantized, form.checks.targeted_plain) == (
        3,
        0,
        0,
    )
    assert of(record, *QUANTISATION) == []


KV_DICT = {"num_bits": 8, "type": "float", "dynamic": False, "symmetric": True}


@pytest.mark.parametrize("in_config", [None, "FP8", KV_DICT])
def test_trap_27_kv_cache_declared_as_word_parameters_or_in_one_file_only(take: Take, in_config: Any) -> None:
    section = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head", "*mlp.gate"]}
    if in_config is not None:
        section = {**section, "kv_cache_scheme": in_config}
    layout = mixture(static_fp8, attention=static_fp8)
    for layer in range(2):
        for name in "kv":
            layout[f"model.layers.{layer}.self_attn.{name}_proj.{name}_scale"] = ("F32", ())
    file = modelopt_file(kv_cache_quant_algo="FP8")
    record = take({**CONFIG, "quantization_config": section}, layout, hf_quant_config=file)
    cache = record.facts.quantization.kv_cache
    assert cache is not None
    assert (cache.dtype, cache.scales) == ("fp8_e4m3", 4)
    differing = of(record, "INV053")
    if in_config is None:
        assert list(cache.declared) == ["hf_quant_config.json#/quantization"]
        assert "differ in the KV cache: nothing against fp8_e4m3" in differing[0].message
    else:
        assert len(cache.declared) == 2
        assert differing == []
    assert of(record, "INV056") == []


def test_trap_27_kv_cache_declared_and_no_scales_shipped(take: Take) -> None:
    file = modelopt_file(kv_cache_quant_algo="FP8")
    record = take(CONFIG, mixture(static_fp8, attention=static_fp8), hf_quant_config=file)
    (finding,) = of(record, "INV056")
    assert finding.severity == "warning"
    assert "no k or v scale is stored" in finding.message
    assert record.facts.quantization.kv_cache is not None
    assert record.facts.quantization.kv_cache.scales == 0


def test_trap_27_files_that_leave_out_different_modules(take: Take) -> None:
    section = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head", "*mlp.gate", "*q_proj"]}
    record = take(
        {**CONFIG, "quantization_config": section},
        mixture(static_fp8, attention=static_fp8),
        hf_quant_config=modelopt_file(),
    )
    (differing,) = of(record, "INV053")
    assert "only the first leaves out *q_proj" in differing.message
    assert of(record, "INV054")  # and q_proj is quantised all the same


@pytest.mark.parametrize("place", [("text_config",), ("thinker_config", "text_config"), ("llm_config",)])
def test_trap_28_section_in_the_text_part_only(take: Take, place: Sequence[str]) -> None:
    config: dict[str, Any] = {**CONFIG, "quantization_config": compressed(4, 32)}
    for key in reversed(place):
        config = {"model_type": "kimi_k25", key: config}
    record = take(config, mixture(words(4), root="language_model.model."))
    form = record.facts.quantization
    assert (form.scheme, form.bits, form.group) == ("int4_group", 4, 32)
    assert record.sources["/quantization"] == f"config.json#/{'/'.join(place)}/quantization_config"
    assert record.facts.totals.routed_expert_params == ROUTED
    assert [item.modules for item in form.exclusions] == [1, 8, 2]  # `lm_head` is `language_model.lm_head`
    assert of(record, *QUANTISATION) == []


def test_trap_28_the_same_section_at_the_top_names_no_module(take: Take) -> None:
    config = {**CONFIG, "quantization_config": compressed(4, 32)}
    record = take(config, mixture(words(4), root="language_model.model."))
    (unmatched,) = of(record, "INV052")
    assert "lm_head (would match language_model.lm_head under another prefix)" in unmatched.message
    assert unmatched.severity == "info"


@pytest.mark.parametrize("described", [True, False])
def test_trap_29_ascend_modelslim_without_a_section(tmp_path: Path, described: bool) -> None:
    layout = mixture(modelslim_dynamic, attention=modelslim, head=float_head)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    names = list(layout)
    half = len(names) // 2
    for number, part in enumerate((names[:half], names[half:]), 1):
        write_filled(
            tmp_path / f"quant_model_weights-{number:05}-of-00002.safetensors",
            {name: layout[name] for name in part},
        )
    write_filled(tmp_path / "rot.safetensors", {"rot.global_rotation": ("F32", (HIDDEN, HIDDEN))})
    if described:
        words = {
            name: "FLOAT"
            if kind in ("BF16", "F32") and name.endswith(".weight")
            else "W8A8_DYNAMIC"
            if "experts" in name
            else "W8A8"
            for name, (kind, _) in layout.items()
        }
        (tmp_path / "quant_model_description.json").write_text(
            json.dumps({"model_quant_type": "W8A8", **words})
        )
    record = take_inventory(open_release(str(tmp_path)))
    facts = record.facts
    assert facts.quantization.scheme == "modelslim"
    assert facts.quantization.bits == 8
    assert facts.totals.logical_params == LOGICAL
    assert {
        row.role
        for row in facts.patterns
        if row.pattern.endswith(("deq_scale", "quant_bias", "input_offset", "weight_offset", "rotation"))
    } == {"aux"}
    assert of(record, "INV023", "INV051", "INV054") == []
    if described:
        assert "lm_head" in facts.quantization.excluded
        assert record.sources["/quantization"] == "quant_model_description.json#"
        assert facts.quantization.dialect == "W8A8"
        assert of(record, "INV022") == []
    else:
        assert "declares no quantisation, yet the tensors show modelslim" in of(record, "INV022")[0].message


def test_trap_29_a_description_that_the_tensors_contradict(take: Take) -> None:
    layout = mixture(modelslim_dynamic, attention=modelslim, head=modelslim_dynamic)
    description = {
        "model_quant_type": "W8A8",
        "lm_head.weight": "FLOAT",
        "model.embed_tokens.weight": "FLOAT",
    }
    description |= {
        name: "W8A8" for name, (kind, _) in layout.items() if kind == "I8" and "lm_head" not in name
    }
    record = take(CONFIG, layout, quant_model_description=description)
    (finding,) = of(record, "INV054")
    assert finding.subject.name == "lm_head.weight"

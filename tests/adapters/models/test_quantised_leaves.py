"""Checkpoints in each quantised format: written, mapped, evaluated, held against what they stand for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from day0.adapters.base.checkpoint import TensorInfo
from day0.adapters.base.release import Release
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.quantised_leaves import Unreadable, leaves_of
from day0.adapters.models.skeleton import build_skeleton
from day0.adapters.models.weights import resolve_weights
from day0_worker.weights import evaluate
from support import quantised_weights as formats
from support.quantised_weights import GROUP, Quantised, compressed
from support.tiny_models import TINY
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
Make = Callable[[int, int], Quantised]

SCALAR = compressed(format="float-quantized", num_bits=8, type="float", strategy="tensor")
CHANNEL = compressed(format="float-quantized", num_bits=8, type="float", strategy="channel")
INT4 = {"format": "pack-quantized", "num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP}
FORMATS: dict[str, tuple[Make, dict[str, Any]]] = {
    "fp8_block": (formats.fp8_blocks, {"quant_method": "fp8", "weight_block_size": [8, 16]}),
    "fp8_scalar_inv": (formats.fp8("_scale_inv", lambda rows, columns: ()), {"quant_method": "fp8"}),
    "fp8_scalar": (formats.fp8("_scale", lambda rows, columns: (1,)), SCALAR),
    "fp8_channel": (formats.fp8("_scale", lambda rows, columns: (rows, 1)), CHANNEL),
    "fp8_rows": (formats.fp8("_scale", lambda rows, columns: (rows,)), {"quant_method": "fbgemm_fp8"}),
    "fp8_ct_block": (
        lambda rows, columns: _renamed(formats.fp8_blocks(rows, columns)),
        compressed(
            format="float-quantized", num_bits=8, type="float", strategy="block", block_structure=[8, 16]
        ),
    ),
    "int8": (formats.int8, compressed(format="int-quantized", num_bits=8, type="int", strategy="channel")),
    "int4": (formats.int4(symmetric=True), compressed(**INT4)),
    "int4_zero": (formats.int4(symmetric=False), compressed(**INT4, symmetric=False)),
    "gptq": (formats.gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True}),
    "awq": (formats.awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}),
}


def _renamed(quantised: Quantised) -> Quantised:
    stored = {name.replace("_scale_inv", "_scale"): tensor for name, tensor in quantised.stored.items()}
    return Quantised(stored, quantised.meant)


def write(model: TinyRelease, folder: Path, make: Make, statement: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Writes the model with the matrices of its layers quantised and returns what each tensor stands for."""
    folder.mkdir()
    stored: dict[str, torch.Tensor] = {}
    meant: dict[str, torch.Tensor] = {}
    for name, info in model.release.checkpoint.tensors.items():
        module, _, end = name.rpartition(".")
        whole = len(info.shape) == 2 and not any(size % GROUP for size in info.shape)
        if whole and ".layers." in name and end == "weight" and "gate." not in name:
            quantised = make(*info.shape)
            stored |= {f"{module}.{part}": tensor for part, tensor in quantised.stored.items()}
            meant[name] = quantised.meant
        else:
            stored[name] = torch.randn(info.shape).bfloat16()
            meant[name] = stored[name].float()
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((model.folder / "config.json").read_text())
    config["quantization_config"] = statement
    (folder / "config.json").write_text(json.dumps(config))
    return meant


def evaluated(skeleton: Skeleton, release: Release) -> dict[str, torch.Tensor]:
    return {
        f"{node.name}.{name}": evaluate(expression, {}).float()
        for node in skeleton.nodes
        for name, expression in resolve_weights(node, release.checkpoint).items()
    }


def check(skeleton: Skeleton) -> None:
    assert [node.missing for node in skeleton.nodes if node.missing] == []
    assert skeleton.unused == []
    assert skeleton.anomalies == []


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_dense_model_is_read_as_if_it_were_not_quantised(tiny: Tiny, tmp_path: Path, name: str) -> None:
    meant = write(tiny("llama"), tmp_path / name, *FORMATS[name])
    release = open_release(str(tmp_path / name))
    skeleton = build_skeleton(release)
    check(skeleton)
    ours = evaluated(skeleton, release)
    assert len(meant) == 3 * 9 + 2
    assert [key for key, value in meant.items() if not torch.equal(ours[key], value)] == []


@pytest.mark.parametrize("name", ["fp8_block", "fp8_channel", "int4", "int4_zero", "gptq", "awq"])
def test_quantised_experts_are_stacked_in_order(tiny: Tiny, tmp_path: Path, name: str) -> None:
    meant = write(tiny("deepseek_v3"), tmp_path / name, *FORMATS[name])
    release = open_release(str(tmp_path / name))
    skeleton = build_skeleton(release)
    check(skeleton)
    assert skeleton.node("model.layers.1").experts == "mlp.experts"
    ours = evaluated(skeleton, release)
    at = "model.layers.1.mlp.experts"
    for expert in range(8):
        parts = [meant[f"{at}.{expert}.{half}_proj.weight"] for half in ("gate", "up")]
        assert torch.equal(ours[f"{at}.gate_up_proj"][expert], torch.cat(parts))
        assert torch.equal(ours[f"{at}.down_proj"][expert], meant[f"{at}.{expert}.down_proj.weight"])
    attention = "model.layers.2.self_attn.o_proj.weight"
    assert torch.equal(ours[attention], meant[attention])


def test_the_statement_may_stand_in_the_text_part() -> None:
    stored = {f"a.{name}": tensor for name, tensor in FORMATS["int4"][0](32, 48).stored.items()}
    tensors = {name: _info(name, tensor) for name, tensor in stored.items()}
    found = [
        leaves_of(tensors, config)
        for config in (
            {"quantization_config": FORMATS["int4"][1]},
            {"text_config": {"quantization_config": FORMATS["int4"][1]}},
        )
    ]
    assert found[0] == found[1]
    assert set(found[0]) == {"a.weight"}


def test_mxfp4_bytes_of_compressed_tensors(tmp_path: Path, tiny: Tiny) -> None:
    statement = compressed(
        format="mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=32
    )
    for make in (formats.mxfp4_bytes, _as_deepseek_v4):
        stated = (
            statement
            if make is formats.mxfp4_bytes
            else {"quant_method": "fp8", "weight_block_size": [128, 128]}
        )
        quantised = make(64, 96)
        tensors = {f"a.{name}": _info(f"a.{name}", tensor) for name, tensor in quantised.stored.items()}
        leaf = leaves_of(tensors, {"quantization_config": stated})["a.weight"]
        assert not isinstance(leaf, Unreadable)
        assert leaf.shape == (64, 96)
        assert torch.equal(_evaluated(leaf.expression, {f"a.{k}": v for k, v in quantised.stored.items()}),
                           quantised.meant)  # fmt: skip


def _as_deepseek_v4(rows: int, columns: int) -> Quantised:
    quantised = formats.mxfp4_bytes(rows, columns)
    stored = {
        "weight": quantised.stored["weight_packed"].view(torch.int8),
        "scale": quantised.stored["weight_scale"].view(torch.float8_e8m0fnu),
    }
    return Quantised(stored, quantised.meant)


def _info(name: str, tensor: torch.Tensor) -> TensorInfo:
    from day0_worker.dtypes import short_dtype

    return TensorInfo(
        name=name, dtype=short_dtype(tensor.dtype), shape=list(tensor.shape), file="f", offset=0,
        bytes=tensor.numel() * tensor.element_size(),
    )  # fmt: skip


def _evaluated(expression: Any, stored: dict[str, torch.Tensor]) -> torch.Tensor:
    def named(part: Any) -> Any:
        if isinstance(part, dict):
            if "tensor" in part:
                return {"value": part["tensor"]}
            return {key: named(value) for key, value in part.items()}
        return part

    return evaluate(named(expression), stored)


def test_gpt_oss_is_read_in_the_layout_of_its_experts(tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    values = TINY["gpt_oss"] | {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt_oss", **values), dtype=torch.bfloat16)
    random, stored, meant = np.random.default_rng(3), {}, {}
    for name, value in model.state_dict().items():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, columns, rows = value.shape
            octets = random.integers(0, 256, (experts, rows, columns // 32, 16)).astype(np.uint8)
            exponents = random.integers(110, 125, (experts, rows, columns // 32)).astype(np.uint8)
            stored[f"{name}_blocks"] = torch.from_numpy(octets)
            stored[f"{name}_scales"] = torch.from_numpy(exponents)
            meant[name] = formats.mxfp4_numbers(octets, exponents).transpose(1, 2)
        else:
            stored[name] = torch.randn(value.shape).bfloat16()
            meant[name] = stored[name].float()
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads(model.config.to_json_string()) | {"quantization_config": {"quant_method": "mxfp4"}}
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["GptOssForCausalLM"]}))
    release = open_release(str(tmp_path))
    skeleton = build_skeleton(release)
    check(skeleton)
    ours = evaluated(skeleton, release)
    assert [name for name, value in meant.items() if not torch.equal(ours[name], value)] == []
    stock = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).state_dict()
    assert [name for name, value in stock.items() if not torch.equal(ours[name], value)] == []


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("fp8_block", {"weight_block_size": [8, 8]}),
        ("fp8_block", {"weight_block_size": None}),
        ("fp8_channel", {"quant_method": "torchao"}),
        ("int4", {"config_groups": {}}),
        ("int4_zero", {"quant_method": "other"}),
        ("gptq", {"bits": 3}),
        ("gptq", {"checkpoint_format": "marlin"}),
        ("gptq", {"group_size": 32}),
        ("awq", {"version": "gemv"}),
        ("int8", {"quant_method": "modelslim"}),
    ],
)
def test_what_does_not_fit_the_statement_is_missing_with_a_reason(
    tiny: Tiny, tmp_path: Path, name: str, change: dict[str, Any]
) -> None:
    make, statement = FORMATS[name]
    write(tiny("llama"), tmp_path / "model", make, statement | change)
    skeleton = build_skeleton(open_release(str(tmp_path / "model")))
    assert len(skeleton.node("model.layers.0").missing) == 7
    assert skeleton.unused
    reasons = {anomaly.subject: anomaly.message for anomaly in skeleton.anomalies}
    assert "cannot be dequantised" in reasons["model.layers.0.mlp.up_proj.weight"]
    assert len(reasons) == 21


def test_two_readings_that_both_fit_are_none(tiny: Tiny, tmp_path: Path) -> None:
    statement = compressed(**INT4)
    other = json.loads(json.dumps(statement["config_groups"]["group_0"]))
    other["weights"] |= {"num_bits": 8, "group_size": GROUP // 2}
    statement["config_groups"]["group_1"] = other
    write(tiny("llama"), tmp_path / "model", FORMATS["int4"][0], statement)
    skeleton = build_skeleton(open_release(str(tmp_path / "model")))
    assert "several readings" in skeleton.anomalies[0].message


def test_mixed_groups_are_told_apart_by_what_is_stored(tiny: Tiny, tmp_path: Path) -> None:
    statement = compressed(**INT4)
    statement["config_groups"]["group_1"] = CHANNEL["config_groups"]["group_0"]

    def mixed(rows: int, columns: int) -> Quantised:
        return FORMATS["int4" if rows > columns else "fp8_channel"][0](rows, columns)

    meant = write(tiny("llama"), tmp_path / "model", mixed, statement)
    release = open_release(str(tmp_path / "model"))
    skeleton = build_skeleton(release)
    check(skeleton)
    ours = evaluated(skeleton, release)
    assert [key for key, value in meant.items() if not torch.equal(ours[key], value)] == []

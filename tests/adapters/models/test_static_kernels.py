"""Kernels found by reading; what is expected was looked up in the locked transformers by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from day0.adapters.base.operator_capture import Kernel
from day0.adapters.models.merging import merged_kernels
from day0.adapters.models.static_kernels import (
    kernels_of_code,
    kernels_of_config,
    kernels_of_model,
    kernels_of_type,
)
from support.captured import meta_model

COMMUNITY = "hub:kernels-community/"


def by_name(kernels: list[Kernel]) -> dict[str, Kernel]:
    return {kernel.name: kernel for kernel in merged_kernels(kernels)}


def test_hub_kernels_of_a_models_classes_with_their_devices() -> None:
    found = by_name(kernels_of_model(meta_model("llama")))
    norm = found[f"{COMMUNITY}liger-kernels"]
    assert norm.kind == "hub"
    assert list(norm.required_by) == ["LlamaRMSNorm"]
    assert list(norm.architectures) == ["cuda", "rocm", "npu"]
    assert found[f"{COMMUNITY}mlx-rmsnorm"].architectures == ["mps"]
    rotary = found[f"{COMMUNITY}rotary"]
    assert list(rotary.required_by) == ["LlamaAttention.apply_rotary_pos_emb"]
    assert "torch code" in rotary.fallback


@pytest.mark.parametrize(
    ("model_type", "package", "devices", "asked"),
    [
        ("qwen3_next", "fla", ["cuda", "xpu", "mlu"], "Qwen3NextGatedDeltaNet.torch_chunk_gated_delta_rule"),
        ("qwen3_next", "causal_conv1d", ["cuda", "rocm"], "Qwen3NextGatedDeltaNet.causal_conv1d_fn"),
        ("mamba2", "mamba_ssm", ["cuda", "rocm"], "Mamba2Mixer.mamba2_chunk_scan"),
    ],
)
def test_packages_whose_functions_a_model_calls(
    model_type: str, package: str, devices: list[str], asked: str
) -> None:
    found = by_name(kernels_of_model(meta_model(model_type)))[f"package:{package}"]
    assert (found.kind, list(found.architectures)) == ("package", devices)
    assert asked in found.required_by


def test_a_kernel_for_one_chip_names_it() -> None:
    found = by_name(kernels_of_type("qwen3_5"))["hub:Atlas-Inference/gdn"]
    assert list(found.architectures) == ["cuda sm_121", "rocm 115"]


def test_a_type_is_read_where_no_model_can_be_built() -> None:
    assert list(by_name(kernels_of_type("rwkv"))[f"{COMMUNITY}rwkv"].required_by) == [
        "RwkvSelfAttention.load_wkv_cuda_kernel"
    ]
    assert kernels_of_type("../../etc") == kernels_of_type("no_such_type") == []


@pytest.mark.parametrize(
    ("method", "name", "devices", "falls_back"),
    [
        ("fp8", f"{COMMUNITY}finegrained-fp8", ["cuda sm_89+", "xpu"], True),
        ("fp8", f"{COMMUNITY}deep-gemm", ["cuda sm_90", "cuda sm_100"], True),
        ("mxfp4", f"{COMMUNITY}gpt-oss-triton-kernels", ["cuda sm_75+", "xpu", "cpu"], True),
        ("eetq", f"{COMMUNITY}quantization-eetq", ["cuda"], False),
        ("bitsandbytes", "package:bitsandbytes", ["cuda", "rocm", "xpu", "cpu", "hpu"], False),
    ],
)
def test_kernels_of_the_checkpoints_scheme(
    method: str, name: str, devices: list[str], falls_back: bool
) -> None:
    config = {"quantization_config": {"quant_method": method}}
    found = by_name(kernels_of_config(config))[name]
    assert list(found.required_by) == [f"config.json#/quantization_config/quant_method={method}"]
    assert list(found.architectures) == devices
    assert ("dequantised" in found.fallback) == falls_back
    inside = kernels_of_config({"text_config": config})
    assert {kernel.name for kernel in inside} == {kernel.name for kernel in kernels_of_config(config)}


@pytest.mark.parametrize(
    "config", [{}, {"quantization_config": 3}, {"quantization_config": {"quant_method": ["fp8"]}},
               {"text_config": "x"}, {"quantization_config": {"quant_method": "own"}}]
)  # fmt: skip
def test_schemes_that_are_none(config: dict[str, Any]) -> None:
    assert kernels_of_config(config) == []


def test_implementations_that_are_chosen_bring_their_kernels() -> None:
    found = by_name(kernels_of_config({}, attn="flash_attention_2", experts="deepgemm"))
    assert found["package:flash_attn"].fallback == "hub:kernels-community/flash-attn2"
    assert list(found[f"{COMMUNITY}deep-gemm"].architectures) == ["cuda sm_90", "cuda sm_100"]
    assert [kernel.name for kernel in kernels_of_config({"attn_implementation": "org/own-attention"})] == [
        "hub:org/own-attention"
    ]
    assert kernels_of_config({}, attn="sdpa", experts="grouped_mm") == []


def test_code_of_a_release_is_read() -> None:
    code = (
        b"from fla.ops import chunk\nimport deep_gemm\nfrom kernels import get_kernel\nget_kernel('org/x')\n"
    )
    found = {kernel.name: list(kernel.architectures) for kernel in kernels_of_code({"a.py": code})}
    assert found["package:deep_gemm"] == ["cuda sm_90", "cuda sm_100"]
    assert {"package:fla", "hub:org/x"} <= set(found)


def test_nothing_of_transformers_is_imported() -> None:
    script = (
        "import json, sys; from day0.adapters.models.static_kernels import *; "
        "n = len(kernels_of_type('qwen3_next') + kernels_of_config({'quantization_config': "
        "{'quant_method': 'fp8'}})); print(json.dumps([n > 5, sorted({'torch', 'transformers'} & "
        "set(sys.modules))]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == [True, []]

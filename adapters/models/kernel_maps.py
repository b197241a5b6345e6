"""Which hub kernels transformers knows for which layer on which device, and where packages run at all."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import lru_cache

from .transformers_source import assigned, calls_in, last_name, text_argument, tree_of

_HUB = "integrations/hub_kernels.py"
_AVAILABLE = "utils/import_utils.py"

STATED: Mapping[str, Sequence[str]] = {
    "deep_gemm": ("cuda sm_90", "cuda sm_100"),  # its README: Hopper and Blackwell
    "flash_attn": ("cuda sm_80+", "rocm"),  # its README: Ampere and newer, ROCm by CK or Triton
    "flash_attn_interface": ("cuda sm_90",),  # its README, hopper/
    "mamba_ssm": ("cuda", "rocm"),  # its README
    "causal_conv1d": ("cuda", "rocm"),  # its README
    "flash_mla": ("cuda sm_90", "cuda sm_100"),  # its README
    "deep_ep": ("cuda sm_90", "cuda sm_80"),  # its README
    "sageattention": ("cuda sm_80+",),  # its README
    "bitsandbytes": ("cuda", "rocm", "xpu", "cpu", "hpu"),  # its README
    "torch_npu": ("npu",),
    "torch_mlu": ("mlu",),
}
"""What packages say of themselves, where transformers says nothing or less."""

_REPOSITORIES: Mapping[str, Sequence[str]] = {
    "kernels-community/deep-gemm": STATED[
        "deep_gemm"
    ],  # transformers/integrations/deepgemm.py asks for these
    "kernels-community/sonic-moe": ("cuda sm_90+",),  # transformers/integrations/sonicmoe.py asks for it
}


@lru_cache(maxsize=1)
def layer_kernels() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Name of a layer or function -> repository -> devices; those for training alone are left out."""
    tree = tree_of(_HUB)
    table = assigned(tree, "_KERNEL_MAPPING") if tree else None
    found: dict[str, dict[str, list[str]]] = {}
    if isinstance(table, ast.Dict):
        for key, devices in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(devices, ast.Dict):
                repositories = found.setdefault(str(key.value), {})
                for device, value in zip(devices.keys, devices.values, strict=True):
                    for repository in _repositories(value):
                        repositories.setdefault(repository, []).append(_device(device))
    return found


@lru_cache(maxsize=1)
def named_kernels() -> Mapping[str, str]:
    """Short name that `lazy_load_kernel` takes -> repository."""
    tree = tree_of(_HUB)
    table = assigned(tree, "_HUB_KERNEL_MAPPING") if tree else None
    found: dict[str, str] = {}
    if isinstance(table, ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Dict):
                facts = ast.literal_eval(value)
                found[str(key.value)] = str(facts.get("repo_id", ""))
    return found


@lru_cache(maxsize=64)
def package_devices(package: str) -> Sequence[str]:
    """Devices on which the package runs, as it says itself or as transformers asks before it uses it."""
    if package in STATED:
        return STATED[package]
    tree = tree_of(_AVAILABLE)
    found: list[str] = []
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef):
            calls = list(calls_in(node))
            asks = any(
                name == "_is_package_available" and text_argument(call) == package for name, call in calls
            )
            devices = [name[9:-10] for name, _ in calls if name.startswith("is_torch_") and name[9:-10]]
            found += [device for device in devices if asks and device not in found]
    return found


def repository_devices(repository: str) -> Sequence[str]:
    """Devices that transformers asks for before it loads the repository; empty where it asks for none."""
    return _REPOSITORIES.get(repository, ())


def _repositories(value: ast.expr) -> list[str]:
    if isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        return list(
            dict.fromkeys(
                repository
                for mode, inner in pairs
                if mode is not None and "INFERENCE" in ast.dump(mode)
                for repository in _repositories(inner)
            )
        )
    repository = text_argument(value, "repo_id") if isinstance(value, ast.Call) else ""
    return [repository] if repository else []


def _device(key: ast.expr | None) -> str:
    """`cuda`, or `cuda sm_121` for a device with properties."""
    if isinstance(key, ast.Constant):
        return str(key.value)
    if not isinstance(key, ast.Call) or last_name(key.func) != "Device":
        return "unknown"
    device = text_argument(key, "type")
    least = [
        int(item.value.value)
        for _, call in calls_in(key)
        for item in call.keywords
        if item.arg == "min_capability"
        and isinstance(item.value, ast.Constant)
        and isinstance(item.value.value, int)
    ]
    if not least:
        return device
    return f"{device} sm_{least[0]}" if device == "cuda" else f"{device} {least[0]}"

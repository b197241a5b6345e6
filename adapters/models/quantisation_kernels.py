"""Which kernels a checkpoint's scheme needs, read off transformers' quantisers without importing them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..base.operator_capture import Kernel
from .kernel_maps import named_kernels, package_devices, repository_devices
from .transformers_source import assigned, calls_in, last_name, text_argument, text_of, tree_of

_CAPABILITY = re.compile(r"compute capability >= ?(\d+)\.(\d+)")
_NO_KERNELS = frozenset(
    {"torch", "accelerate", "kernels", "torch_xpu", "torch_cuda", "torch_npu", "torch_hpu", "torch_mps",
     "optimum", "torch_greater_or_equal", "triton"}
)  # fmt: skip
_PACKAGES = {"fbgemm_gpu": "fbgemm_gpu", "auto_awq": "awq", "gptqmodel": "gptqmodel", "flute": "flute"}
_DEQUANTISED = "the weights are dequantised to bf16 when they are loaded"


def quantisation_kernels(config: Mapping[str, Any]) -> list[Kernel]:
    """Kernels that the scheme named in the config (or its text part) needs.

    Args:
        config: config.json as parsed.
    """
    stated = stated_method(config)
    if stated is None:
        return []
    return _of_method(stated.key, f"{stated.where}/quant_method={stated.method}")


class StatedMethod(NamedTuple):
    """A scheme as a config names it.

    Attributes:
        method: its name.
        key: under which transformers has its quantiser.
        where: the section.
    """

    method: str
    key: str
    where: str


def stated_method(config: Mapping[str, Any]) -> StatedMethod | None:
    """The scheme that the config (or its text part) names."""
    for path, part in (("", config), ("/text_config", config.get("text_config"))):
        stated = part.get("quantization_config") if isinstance(part, Mapping) else None
        method = stated.get("quant_method") if isinstance(stated, Mapping) else None
        if isinstance(method, str) and method:
            return StatedMethod(method, _key(method, stated), f"config.json#{path}/quantization_config")
    return None


def _key(method: str, stated: Any) -> str:
    if method != "bitsandbytes":
        return method
    return f"{method}_8bit" if stated.get("load_in_8bit") else f"{method}_4bit"


def _of_method(method: str, where: str) -> list[Kernel]:
    file = quantiser(method)
    tree = tree_of(file) if file else None
    if tree is None:
        return []
    devices, fallback = _gates(file), _fallback(tree)
    found = [
        Kernel(
            name=f"hub:{repository}",
            kind="hub",
            required_by=[where],
            architectures=repository_devices(repository) or devices,
            fallback=fallback,
        )
        for repository in dict.fromkeys(_repositories(_integrations(tree)))
    ]
    for name, _ in calls_in(tree):
        word = name[3:-10] if name.startswith("is_") and name.endswith("_available") else ""
        if word and word not in _NO_KERNELS:
            package = _PACKAGES.get(word, word)
            found.append(
                Kernel(
                    name=f"package:{package}",
                    kind="package",
                    required_by=[where],
                    architectures=list(package_devices(package)) or devices,
                    fallback=fallback,
                )
            )
    return found


def quantiser(method: str) -> str:
    """Path of the file that defines the quantiser of a method; empty for an unknown one."""
    tree = tree_of("quantizers/auto.py")
    table = assigned(tree, "AUTO_QUANTIZER_MAPPING") if tree else None
    if tree is None or not isinstance(table, ast.Dict):
        return ""
    classes = {
        key.value: last_name(value)
        for key, value in zip(table.keys, table.values, strict=True)
        if isinstance(key, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(item.name == classes.get(method) for item in node.names):
            return f"quantizers/{node.module}.py"
    return ""


def _gates(file: str) -> list[str]:
    """Devices that the quantiser's own messages and questions name."""
    text = text_of(file)
    found = [f"cuda sm_{major}{minor}+" for major, minor in _CAPABILITY.findall(text)]
    found = list(dict.fromkeys(found)) or (
        ["cuda"] if "cuda.is_available" in text or "cuda_available" in text else []
    )
    found += ["xpu"] if "xpu" in text else []
    return found + (["cpu"] if '"cuda", "xpu", "cpu"' in text else [])


def _fallback(tree: ast.AST) -> str:
    words = " ".join(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return _DEQUANTISED if "default to dequantizing" in words else ""


def _integrations(tree: ast.AST) -> Iterable[str]:
    """Files under integrations/ that the quantiser takes its modules from, and those that these take from."""
    names = _exports()
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("integrations"):
            module = (node.module or "").partition(".")[2]
            wanted = [module] if module else [names.get(item.name, "") for item in node.names]
            found |= dict.fromkeys(f"integrations/{name.replace('.', '/')}.py" for name in wanted if name)
    for file in list(found):
        inner = tree_of(file)
        for node in ast.walk(inner) if inner else ():
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
                found[f"integrations/{node.module}.py"] = None
    found.pop("integrations/hub_kernels.py", None)
    return found


def _exports() -> Mapping[str, str]:
    tree = tree_of("integrations/__init__.py")
    table = assigned(tree, "_import_structure") if tree else None
    found: dict[str, str] = {}
    if isinstance(table, ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.List):
                found |= {
                    str(item.value): str(key.value) for item in value.elts if isinstance(item, ast.Constant)
                }
    return found


def _repositories(files: Iterable[str]) -> Sequence[str]:
    named = named_kernels()
    found: list[str] = []
    for file in files:
        tree = tree_of(file)
        for name, call in calls_in(tree) if tree else ():
            if name == "get_kernel":
                found.append(text_argument(call, "repo_id"))
            elif name == "lazy_load_kernel":
                found.append(named.get(text_argument(call), ""))
    return [name for name in found if name]

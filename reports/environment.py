"""Versions and host of the process that runs the flow, read without importing what they belong to."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import psutil

_PACKAGES = (
    "day0", "torch", "transformers", "tokenizers", "safetensors", "huggingface_hub", "gguf", "numpy",
    "prefect", "pydantic", "jinja2", "onnx", "onnxruntime", "onnxscript", "openvino",
)  # fmt: skip


def describe_environment() -> Mapping[str, Any]:
    """Python, system, machine, processor, cores, memory in bytes, versions of the packages that matter."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_bytes": psutil.virtual_memory().total,
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()

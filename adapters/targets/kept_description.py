"""A target's description kept in the run store, for as long as nothing that it says can have changed."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target import TargetDescription
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import digest
from day0.adapters.base.worker_environment import worker_environment
from day0.adapters.base.worker_sources import find_module, pack_sources

from .endpoint import STACK as ENDPOINT
from .registry import find_stack

_OWN = "day0.adapters.targets."
_COMPILERS = ("g++", "clang++", "c++")
_IMPORTED = ("torch", "transformers", "onnxruntime", "openvino", "onnx", "onnxscript", "triton")
_HEEDED = re.compile(
    r"(PYTHON|PATH|LD_|VIRTUAL_ENV|CONDA|OMP|GOMP|KMP|MKL|OPENBLAS|DNNL|ONEDNN|ATEN|TORCH|"
    r"PYTORCH|ORT|ONNX|OV_|OPENVINO|TBB|TRITON|CXX|CC$|HF_|TRANSFORMERS)"
)
"""Variables that interpreter, loader, thread pools, kernel libraries and stacks read, by how they begin."""


def described(
    spec: TargetSpec,
    store: RunStore,
    ask: Callable[[], TargetDescription],
    *,
    command: Sequence[str] = (),
    fresh: bool = False,
) -> TargetDescription:
    """What a target is: as an earlier run asked it in this very environment, or asked now.

    Asking starts a worker, which takes seconds for torch alone.

    Args:
        spec: the target.
        store: keeps descriptions under `targets/`.
        ask: asks the target itself.
        command: of the worker, see `open_target`.
        fresh: whether it is asked in any case.

    Raises:
        Day0Error: see `ask`.
    """
    identity = "" if command else environment_of(spec)
    name = f"targets/{spec.slug}-{identity}.json"
    if identity and not fresh and store.exists(name):
        try:
            return TargetDescription.model_validate_json(store.read(name))
        except ValueError:
            store.remove(name)
    text = ask().model_dump_json(indent=1).encode()
    if identity:
        store.write(name, text)
    return TargetDescription.model_validate_json(text)  # the same types as those of a kept one


def environment_of(spec: TargetSpec) -> str:
    """Digest of all that decides what one of Day0's own stacks says of a processor; empty for other targets.

    Only they are known to look at nothing else: versions and files of packages, variables that they read,
    processor, memory, kernel and compilers. What a device other than the processor says depends on drivers,
    on who else holds it and on how it is set up, and a vendor's stack may look anywhere: these are asked.
    """
    if spec.stack == ENDPOINT:
        return ""
    reference = find_stack(spec.stack)
    if spec.device != "cpu" or not reference.startswith(_OWN):
        return ""
    variables = worker_environment(dict(os.environ), "")
    parts = {
        "target": str(spec),
        "sources": digest(pack_sources(reference.partition(":")[0]).hex()),
        "python": [sys.executable, sys.version, sys.prefix],
        "system": list(platform.uname()),
        "boot": _text("/proc/sys/kernel/random/boot_id"),
        "processor": sorted(set(_of_processors())),
        "processors": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "variables": {key: value for key, value in variables.items() if _HEEDED.match(key)},
        "compilers": [shutil.which(name) for name in _COMPILERS],
        "packages": sorted(_packages()),
    }
    return digest(parts)[:24]


def _of_processors() -> Iterator[str]:
    """Lines of `/proc/cpuinfo` that say what a processor is, not how fast it runs just now."""
    for line in _text("/proc/cpuinfo").splitlines():
        if line.partition(":")[0].strip() in ("model name", "flags", "Features", "microcode", "CPU part"):
            yield line


def _packages() -> Iterator[str]:
    """What is installed, and the files from which the packages that stacks import take their versions."""
    for folder in dict.fromkeys(sys.path):
        path = Path(folder or ".")
        if path.is_dir():
            for name in os.listdir(path):
                if name.endswith((".dist-info", ".egg-info", ".egg-link", ".pth")):
                    yield (
                        _state(path / name)
                        + _state(path / name / "METADATA")
                        + _state(path / name / "RECORD")
                    )
    for name in _IMPORTED:
        found = find_module(name)
        if found is not None and found.origin:
            yield _state(Path(found.origin))
            yield _state(Path(found.origin).with_name("version.py"))


def _state(path: Path) -> str:
    try:
        state = path.stat()
    except OSError:
        return ""
    return f"{path} {state.st_size} {state.st_mtime_ns} {state.st_ino};"


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

"""What a torch stack can say of itself quickly: devices, instruction set, versions, dtypes."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from typing import Any, Dict, List, Mapping, Sequence

from day0_worker.dtypes import torch_dtype
from day0_worker.stack import Stack

_OWN = ("day0.adapters.targets.", "day0_worker.")
_TRIED = ("fp32", "bf16", "fp16", "fp64")


def fingerprint(stack: str, version: str, device: str, packages: Sequence[str]) -> Dict[str, Any]:
    """Family and exact versions.

    Args:
        stack: name of what executes, e.g. `torch`.
        version: its version; the family keeps major.minor.
        device: torch device type.
        packages: distributions whose versions belong to the exact fingerprint.

    Returns:
        `family`, and `exact` with the engine's full version under its name, or as `engine` where a package
        of that name has another one.
    """
    import torch

    short = ".".join(version.split("+")[0].split(".")[:2])
    exact = {"python": platform.python_version(), "torch": torch.__version__, "system": platform.release()}
    exact.update(_installed(packages))
    if version not in (exact["torch"], exact.get(stack)):
        exact["engine" if stack in exact else stack] = version
    exact["threads"] = str(torch.get_num_threads())
    if device == "cpu":
        family = f"{stack} {short} {platform.machine()} {instruction_set()}"
        exact["processor"] = processor_name()
    else:
        names = sorted({entry["name"] for entry in devices(device)})
        family = f"{stack} {short} {device} {'+'.join(names)} {_architecture(device)}".rstrip()
        exact.update(_driver(device))
    return {"family": family, "exact": exact}


def description(stack: Stack) -> Dict[str, Any]:
    """What the stack says of itself; code of somebody else's belongs to its exact fingerprint."""
    said = stack.describe()
    sources = source_digest(type(stack))
    if not (sources and isinstance(said, dict) and isinstance(said.get("fingerprint"), dict)):
        return said
    exact = {**(said["fingerprint"].get("exact") or {}), "stack source": sources}
    return {**said, "fingerprint": {**said["fingerprint"], "exact": exact}}


def source_digest(stack: type) -> str:
    """Changes whenever the code of somebody else's stack does, whatever version it says.

    Read are the `.py` files beside the modules of the class and of the classes that it derives from, or a
    module's file alone where it lies in no package. Day0's own do not count: they come with each worker.

    Returns:
        Hexadecimal digits; empty for one of Day0's own stacks.
    """
    names = {base.__module__ for base in stack.__mro__ if issubclass(base, Stack)}
    modules = [sys.modules.get(name) for name in names if not name.startswith(_OWN)]
    files = sorted({path for module in modules for path in _files_beside(module)})
    if not files:
        return ""
    told = hashlib.sha256()
    for path in files:
        with open(path, "rb") as file:
            told.update(f"{os.path.basename(path)} {hashlib.sha256(file.read()).hexdigest()};".encode())
    return told.hexdigest()[:16]


def _files_beside(module: Any) -> List[str]:
    file = getattr(module, "__file__", None)
    if not file or not os.path.exists(file):
        return []
    if not module.__package__:
        return [file]
    folder = os.path.dirname(file)
    beside = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".py")]
    return [file, *beside]


def devices(device: str) -> List[Dict[str, Any]]:
    """Name and memory of each device of that type.

    Raises:
        RuntimeError: torch knows no device of that type.
    """
    if device == "cpu":
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return [{"name": processor_name(), "memory_bytes": pages}]
    module = device_module(device)
    found = []
    for index in range(module.device_count()):
        properties = module.get_device_properties(index) if hasattr(module, "get_device_properties") else None
        name = str(getattr(properties, "name", "") or f"{device}:{index}")
        found.append({"name": name, "memory_bytes": int(getattr(properties, "total_memory", 0))})
    return found


def device_module(device: str) -> Any:
    """Torch's module for a device type, e.g. `torch.cuda`.

    Raises:
        RuntimeError: this torch has none.
    """
    import torch

    module = torch.get_device_module(device)
    if not hasattr(module, "device_count"):
        raise RuntimeError(f"torch {torch.__version__} has no device module for {device!r}")
    return module


def working_dtypes(device: str, tried: Sequence[str] = _TRIED) -> List[str]:
    """Dtypes in which a small matrix product runs on the device."""
    import torch

    working = []
    for short in tried:
        try:
            ones = torch.ones(2, 2, dtype=torch_dtype(short), device=device)
            torch.mm(ones, ones).cpu()
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            continue
        working.append(short)
    return working


def instruction_set() -> str:
    """The widest vector instructions that torch uses on this processor, e.g. `avx512`."""
    import torch

    backends: Any = torch.backends.cpu
    return (
        str(backends.get_cpu_capability()).lower() if hasattr(backends, "get_cpu_capability") else "unknown"
    )


def processor_name() -> str:
    """The processor's name as the system gives it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _installed(packages: Sequence[str]) -> Mapping[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found


def _architecture(device: str) -> str:
    module = device_module(device)
    capability = getattr(module, "get_device_capability", None)
    if capability is None:
        return ""
    value = capability(0)
    return (
        "sm_" + "".join(str(part) for part in value) if isinstance(value, tuple) and device == "cuda" else ""
    )


def _driver(device: str) -> Mapping[str, str]:
    import torch

    versions = {"cuda": torch.version.cuda, "hip": getattr(torch.version, "hip", None),
                "xpu": getattr(torch.version, "xpu", None)}  # fmt: skip
    found = {name: str(value) for name, value in versions.items() if value}
    properties = device_module(device)
    driver = getattr(properties, "driver_version", None) or getattr(properties, "get_driver_version", None)
    if callable(driver):
        found["driver"] = str(driver())
    elif os.path.exists("/proc/driver/nvidia/version") and device == "cuda":
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as version:
            found["driver"] = version.readline().strip()
    return found

"""Kernels that no dispatcher sees, found by reading: model classes, the config, a release's own code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.operator_capture import Kernel
from .code_reading import Reading, read_code
from .kernel_maps import layer_kernels, named_kernels, package_devices, repository_devices
from .module_units import Unit, reachable, units_of
from .quantisation_kernels import quantisation_kernels
from .transformers_source import root

_TORCH_CODE = "transformers' own torch code, correct and slower"
_ATTENTION = {
    "flash_attention_2": ("flash_attn", "kernels-community/flash-attn2"),
    "flash_attention_3": ("flash_attn_interface", "kernels-community/flash-attn3"),
    "flash_attention_4": ("flash_attn", "kernels-community/flash-attn4"),
}
"""Attention implementation -> package, and the repository that transformers takes without it."""
_READ = ("transformers.models.", "transformers.activations")
"""Modules whose classes are asked; the base of all models mentions every package that could quantise it."""
_EXPERTS = {"deepgemm": "deep-gemm", "sonicmoe": "sonic-moe"}
"""Experts implementation -> short name of its hub kernel."""


def kernels_of_config(config: Mapping[str, Any], attn: str = "", experts: str = "") -> list[Kernel]:
    """Kernels for the checkpoint's scheme and for the implementations that are chosen.

    Args:
        config: config.json as parsed.
        attn: attention implementation that is asked for; empty: the one that the config states, if any.
        experts: experts implementation, likewise.
    """
    stated = [str(config.get(name) or "") for name in ("attn_implementation", "_attn_implementation")]
    found = quantisation_kernels(config)
    word = attn or next((name for name in stated if name), "")
    why = f"attn_implementation={word}"
    if word in _ATTENTION:
        package, repository = _ATTENTION[word]
        found.append(
            Kernel(
                name=f"package:{package}",
                kind="package",
                required_by=[why],
                architectures=package_devices(package),
                fallback=f"hub:{repository}",
            )
        )
    elif "/" in word:
        found.append(Kernel(name=f"hub:{word}", kind="hub", required_by=[why]))
    if experts in _EXPERTS:
        repository = named_kernels().get(_EXPERTS[experts], _EXPERTS[experts])
        gates = repository_devices(repository)
        why = f"experts_implementation={experts}"
        found.append(Kernel(name=f"hub:{repository}", kind="hub", required_by=[why], architectures=gates))
    return found


def kernels_of_model(model: Any) -> list[Kernel]:
    """Kernels for the classes that the model is made of, with what the functions ask for that they call."""
    folder = root()
    by_file: dict[str, dict[str, None]] = {}
    for module in model.modules():
        for kind in type(module).__mro__:
            if folder is not None and kind.__module__.startswith(_READ):
                path = kind.__module__.removeprefix("transformers.").replace(".", "/") + ".py"
                by_file.setdefault(path, {})[kind.__name__] = None
    return [kernel for path, names in by_file.items() for kernel in _kernels(units_of(path), names)]


def kernels_of_type(model_type: str) -> list[Kernel]:
    """Kernels for all classes of a model type's file, for a model that cannot be built."""
    word = model_type.replace("-", "_")
    units = units_of(f"models/{word}/modeling_{word}.py") if word.isidentifier() else {}
    return _kernels(units, [name for name, unit in units.items() if unit.is_class])


def kernels_of_code(files: Mapping[str, bytes]) -> list[Kernel]:
    """Kernels that a release's own code asks for; it is read, never run.

    Args:
        files: path in the release -> content.
    """
    readings: Sequence[Reading] = [read_code(path, data, set(files)) for path, data in sorted(files.items())]
    found = []
    for reading in readings:
        for name in sorted(reading.kernels):
            package = name.removeprefix("package:")
            gates = package_devices(package) if package != name else ()
            found.append(
                Kernel(name=name, kind="repository", required_by=[reading.path], architectures=gates)
            )
    return found


def _kernels(units: Mapping[str, Unit], starts: Iterable[str]) -> list[Kernel]:
    found = []
    for start, name, unit in reachable(units, starts):
        where = start if name == start else f"{start}.{name}"
        for layer in sorted(unit.layers):
            for repository, devices in layer_kernels().get(layer, {}).items():
                found.append(_kernel(f"hub:{repository}", "hub", where, devices))
        for package in sorted(unit.packages):
            found.append(_kernel(f"package:{package}", "package", where, package_devices(package)))
        for repository in sorted(unit.repositories):
            found.append(_kernel(f"hub:{repository}", "hub", where, ()))
    return found


def _kernel(name: str, kind: str, where: str, devices: Sequence[str]) -> Kernel:
    return Kernel(
        name=name, kind=kind, required_by=[where], architectures=list(devices), fallback=_TORCH_CODE
    )

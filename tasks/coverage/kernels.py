"""Kernels that torch's dispatcher does not show: those of the model's code, those of its quantisation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from day0.adapters.base.operator_capture import Kernel

_DEQUANTISED = "weights dequantised to the config's dtype"
_BY_METHOD: Mapping[str, tuple[Kernel, ...]] = {
    "fp8": (
        Kernel(
            name="hub:kernels-community/finegrained-fp8",
            kind="hub",
            architectures=("cuda sm_89", "xpu"),
            fallback=_DEQUANTISED,
        ),
        Kernel(
            name="hub:kernels-community/deep-gemm",
            kind="hub",
            architectures=("cuda sm_90",),
            fallback="hub:kernels-community/finegrained-fp8",
        ),
    ),
    "fbgemm_fp8": (
        Kernel(
            name="hub:kernels-community/fp8-fbgemm",
            kind="hub",
            architectures=("cuda sm_90",),
            fallback=_DEQUANTISED,
        ),
    ),
    "mxfp4": (
        Kernel(
            name="hub:kernels-community/gpt-oss-triton-kernels",
            kind="hub",
            architectures=("cuda sm_75", "xpu"),
            fallback=_DEQUANTISED,
        ),
    ),
    "eetq": (Kernel(name="hub:kernels-community/quantization-eetq", kind="hub", architectures=("cuda",)),),
}
"""Quantisation method -> kernels that transformers 5 fetches for it, with the lowest compute capability that it
asks for (transformers/integrations and transformers/quantizers)."""

_AT = "config.json#/quantization_config"


def kernels_of(config: Mapping[str, Any]) -> tuple[Kernel, ...]:
    """The kernels that loading the release as it is stored needs, by name.

    Args:
        config: config.json as parsed.
    """
    method = _method(config) or _method(config.get("text_config"))
    found = [kernel.model_copy(update={"required_by": (_AT,)}) for kernel in _BY_METHOD.get(method, ())]
    return tuple(sorted(found, key=lambda kernel: kernel.name))


def merged(*lists: Iterable[Kernel]) -> tuple[Kernel, ...]:
    """One entry a kernel, by name; who requires it and for what it is made add up."""
    known: dict[str, Kernel] = {}
    for kernel in (kernel for listed in lists for kernel in listed):
        before = known.get(kernel.name)
        if before is None:
            known[kernel.name] = kernel
            continue
        known[kernel.name] = before.model_copy(
            update={
                "required_by": tuple(dict.fromkeys([*before.required_by, *kernel.required_by])),
                "architectures": tuple(dict.fromkeys([*before.architectures, *kernel.architectures])),
                "fallback": before.fallback or kernel.fallback,
            }
        )
    return tuple(known[name] for name in sorted(known))


def made_for(kernel: Kernel, device: str) -> bool | None:
    """Whether a kernel is made for a kind of device; None where that is not known."""
    if not kernel.architectures:
        return None
    return any(architecture.split()[0] == device for architecture in kernel.architectures)


def _method(config: Any) -> str:
    quantization = config.get("quantization_config") if isinstance(config, Mapping) else None
    return str(quantization.get("quant_method", "")) if isinstance(quantization, Mapping) else ""

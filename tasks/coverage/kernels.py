"""Lists of kernels that torch's dispatcher does not show, made one, and held against a kind of device."""

from __future__ import annotations

from collections.abc import Iterable

from day0.adapters.base.operator_capture import Kernel


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

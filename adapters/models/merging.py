"""Parts of a capture put together."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from ..base.operator_capture import Capture, CaptureRequest, Kernel


def merged(request: CaptureRequest, parts: Sequence[Capture]) -> Capture:
    """The parts as one."""
    whole = Capture(request=request, builder=builder())
    for part in parts:
        kept = whole.model_copy(update={"calls": (), "functions": (), "anomalies": ()})
        before = kept if part.restarted else whole
        whole = before.model_copy(
            update={
                "calls": [*before.calls, *part.calls],
                "functions": [*before.functions, *part.functions],
                "kernels": merged_kernels([*before.kernels, *part.kernels]),
                "anomalies": [*before.anomalies, *part.anomalies],
                "captured_dtype": part.captured_dtype,
            }
        )
    return whole


def builder() -> dict[str, str]:
    """Versions on which a capture depends."""
    return {name: version(name) for name in ("torch", "transformers")}


def merged_kernels(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Each name once, with all that ask for it, sorted by name."""
    found: dict[str, Kernel] = {}
    for kernel in kernels:
        known = found.get(kernel.name)
        found[kernel.name] = kernel if known is None else _joined(known, kernel)
    return [found[name] for name in sorted(found)]


def _joined(one: Kernel, other: Kernel) -> Kernel:
    return one.model_copy(
        update={
            "required_by": list(dict.fromkeys([*one.required_by, *other.required_by])),
            "architectures": list(dict.fromkeys([*one.architectures, *other.architectures])),
            "fallback": one.fallback or other.fallback,
        }
    )

"""Schemes that tensors alone cannot tell apart."""

from __future__ import annotations

from .record_quantization import Quantization


def families(found: Quantization) -> set[str]:
    """The families of all parts, plain weights left out."""
    schemes = [part.scheme for part in found.parts] or [found.scheme]
    return {family(scheme) for scheme in schemes} - {"none"}


def family(scheme: str) -> str:
    """Schemes that tensors alone cannot tell apart count as one."""
    if scheme in ("gptq", "awq", "int4_group", "mixed"):  # `mixed` is an integer of an odd number of bits
        return "packed integers"
    if scheme in ("int8", "modelslim"):
        return "int8"
    return "fp8" if scheme.startswith("fp8") else scheme

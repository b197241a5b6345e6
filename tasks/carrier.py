"""In which dtype a target gets weights and activations."""

from __future__ import annotations

WHOLE = ("bf16", "fp16", "fp32", "fp64")
"""Precisions in which everything is computed."""
_HALVES = ("bf16", "fp16")


def carrier_of(precision: str, stored: str) -> str:
    """Short name of the dtype of what is sent to a target and comes back from it.

    A stack that multiplies in fp8, int8 or less is sent 16 bits and quantises by itself (docs/targets.md).

    Args:
        precision: that the target computes in.
        stored: dtype of the release, which is kept where it has 16 bits; else bf16.
    """
    if precision in WHOLE:
        return precision
    return stored if stored in _HALVES else "bf16"

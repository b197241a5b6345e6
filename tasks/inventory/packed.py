"""How many weights a stored tensor stands for: packed formats keep several in one element."""

from __future__ import annotations

from dataclasses import dataclass

# Elements of one E8M0 scale's group in the OCP microscaling formats (OCP MX specification 1.0, section 5.1).
MX_GROUP = 32
# Elements of one FP8 scale's group in NVFP4 (NVIDIA modelopt and compressed-tensors, `nvfp4-pack-quantized`).
NVFP4_GROUP = 16


@dataclass(frozen=True)
class Packing:
    """How a pattern's elements are packed: weights = elements x container_bits / weight_bits.

    Attributes:
        container_bits: of one stored element.
        weight_bits: of one weight.
        reason: what shows it.
    """

    container_bits: int
    weight_bits: int
    reason: str

    def logical(self, elements: int) -> int:
        """Weights in that many stored elements, by the ratio of bits and not by whole weights per element."""
        return elements * self.container_bits // self.weight_bits

    def is_whole(self, elements: int) -> bool:
        """Whether so many elements hold a whole number of weights."""
        return elements * self.container_bits % self.weight_bits == 0

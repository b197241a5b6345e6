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
        along: `columns`, `rows`, `blocks` (the last two dimensions are one), `inputs` (GPTQ: the weight
            stands transposed, packed along its rows), `outputs` (AWQ: transposed, packed along its
            columns), or empty where the packed tensor does not show the weight's shape.
    """

    container_bits: int
    weight_bits: int
    reason: str
    along: str = "columns"

    def logical(self, elements: int) -> int:
        """Weights in that many stored elements, by the ratio of bits and not by whole weights per element."""
        return elements * self.container_bits // self.weight_bits

    def is_whole(self, elements: int) -> bool:
        """Whether so many elements hold a whole number of weights."""
        return elements * self.container_bits % self.weight_bits == 0

    def shape(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the weight, outputs before inputs; empty where the packed tensor does not show it."""
        if not self.along or len(stored) < 2:
            return ()
        lead, (rows, columns) = stored[:-2], stored[-2:]
        if self.along == "blocks":
            return (*lead, rows * self.logical(columns))
        if self.along == "rows":
            return (*lead, self.logical(rows), columns)
        if self.along == "inputs":
            return (*lead, columns, self.logical(rows))
        if self.along == "outputs":
            return (*lead, self.logical(columns), rows)
        return (*lead, rows, self.logical(columns))

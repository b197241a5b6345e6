"""How many weights a stored tensor stands for: packed formats keep several in one element."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from day0.adapters.base.dtypes import BITS

from .patterns import Group
from .roles import LOW_PRECISION

# Elements of one E8M0 scale's group in the OCP microscaling formats (OCP MX specification 1.0, section 5.1).
MX_GROUP = 32
# Elements of one FP8 scale's group in NVFP4 (NVIDIA modelopt and compressed-tensors, `nvfp4-pack-quantized`).
NVFP4_GROUP = 16


@dataclass(frozen=True)
class Packing:
    """How a pattern's elements are packed.

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


class PackedWeights:
    """Finds the packing of each weight from its neighbours' shapes and the declared number of bits.

    Args:
        groups: all tensors of the release.
        declared_bits: of the packed weights by the quantisation config; 0 where it does not say.
    """

    def __init__(self, groups: Iterable[Group], declared_bits: int) -> None:
        self._declared_bits = declared_bits
        self._shapes: dict[tuple[str, int | None], tuple[str, tuple[int, ...]]] = {}
        for group in groups:
            self._shapes.setdefault((group.pattern.text, group.layer), (group.dtype, group.shape))

    def packing(self, group: Group) -> Packing | None:
        """The packing of a weight; None where each element is one weight."""
        if group.dtype not in LOW_PRECISION or group.dtype.startswith(("fp8", "fp4")):
            return None
        module, _, name = group.pattern.text.rpartition(".")
        width = BITS[group.dtype]
        if name.endswith("_blocks"):
            return self._blocks(group, f"{module}.{name.removesuffix('_blocks')}_scales")
        if name.endswith("_packed"):
            return self._compressed_tensors(group, f"{module}.{name.removesuffix('_packed')}_scale", width)
        if name == "qweight" and width == 32:
            return self._declared(width, "32-bit words of `qweight` (GPTQ, AWQ)")
        if name != "weight" and not name.endswith("_proj"):
            return None
        return self._plain_name(group, group.pattern.text, module, width)

    def _plain_name(self, group: Group, text: str, module: str, width: int) -> Packing | None:
        """A weight under its usual name: fp4 in I8 or U8, 4-bit bitsandbytes in U8, MLX in U32."""
        if width == 32:
            return (
                self._declared(width, "32-bit words beside `scales` (MLX)")
                if self._shape(f"{module}.scales", group)
                else None
            )
        scale = self._shape(f"{text}_scale", group) or self._shape(f"{module}.scale", group)
        if self._shape(f"{text}.absmax", group):
            return Packing(8, 4, "4-bit bitsandbytes: two weights a byte beside `absmax`")
        if scale is None or not scale[1] or not group.shape:
            return None
        groups, columns = scale[1][-1], group.shape[-1]
        if scale[0] == "e8m0" and groups * MX_GROUP == columns * 2:
            return Packing(8, 4, f"fp4: {groups} E8M0 scales x {MX_GROUP} = 2 x {columns} columns")
        if scale[0].startswith("fp8") and groups * NVFP4_GROUP == columns * 2:
            return Packing(8, 4, f"nvfp4: {groups} FP8 scales x {NVFP4_GROUP} = 2 x {columns} columns")
        return None

    def _blocks(self, group: Group, scales: str) -> Packing | None:
        found = self._shape(scales, group)
        if found is None or found[1] != group.shape[:-1]:
            return None
        return Packing(8, 4, "mxfp4: two weights a byte in `_blocks`, one scale a block")

    def _compressed_tensors(self, group: Group, scale: str, width: int) -> Packing:
        if width == 8:
            return Packing(8, 4, "two 4-bit weights a byte in `weight_packed`")
        return self._declared(width, f"{width}-bit words of `weight_packed`")

    def _declared(self, width: int, reason: str) -> Packing:
        # Four bits is what every published packed release but a few has; those few declare it.
        bits = self._declared_bits or 4
        stated = f"{bits} bits declared" if self._declared_bits else "4 bits assumed, none declared"
        return Packing(width, bits, f"{reason}, {stated}")

    def _shape(self, text: str, group: Group) -> tuple[str, tuple[int, ...]] | None:
        return self._shapes.get((text, group.layer))

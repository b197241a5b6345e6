"""What a stored format is, and what the formats have in common: neighbours, names of scales, fp4 in bytes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .packed import MX_GROUP, NVFP4_GROUP, Packing
from .patterns import Group
from .record_quantization import QuantizationPart
from .scale_shapes import (
    Fits,
    Need,
    any_shape,
    floating_scale,
    grained_scale,
    grouped_scale,
    one_or_leading,
)


@dataclass(frozen=True)
class WeightFormat:
    """How a group of weights is stored.

    Attributes:
        scheme: word of the design's vocabulary.
        bits: of a weight.
        group: block size; 0 for none.
        packing: None where each element is one weight.
        needs: side tensors, the scale first.
        doubt: what is assumed, or where shapes and declaration differ; empty where all agree.
        zero_points: whether zero points stand beside it.
    """

    scheme: str
    bits: int
    group: int | Sequence[int] = 0
    packing: Packing | None = None
    needs: Sequence[Need] = ()
    doubt: str = ""
    zero_points: bool = False


Grain = tuple[str, tuple[int, int] | None]
"""`fp8_tensor`, `fp8_channel` or `fp8_block`, whatever the dtype, and the block."""

RowWidth = Callable[[Group], int]
"""Weights in a row of a matrix by the numbers of the config; 0 where nothing is known of it."""


class Neighbours:
    """Tensors by name within their layer, and what is known of the release as a whole.

    Args:
        groups: all of the release.
        width: weights in a row.
    """

    def __init__(self, groups: Iterable[Group], width: RowWidth = lambda _: 0) -> None:
        self.width = width
        self._usual: Mapping[Hashable, tuple[int, int]] = {}
        self._grains: Mapping[str, Grain] = {}
        self._at: dict[tuple[str, int | None], list[Group]] = {}
        for group in groups:
            self._at.setdefault((group.pattern.text, group.layer), []).append(group)

    def agree(self, usual: Mapping[Hashable, tuple[int, int]]) -> None:
        """Takes how most weights are stored: what they are alike in (`alike`) -> bits and group."""
        self._usual = usual

    def agreed(self, group: Group, declared: QuantizationPart | None) -> tuple[int, int] | None:
        """Bits and group of most weights that must be stored like this one; None while that is not known."""
        return self._usual.get(alike(group, declared))

    def agree_grains(self, grains: Mapping[str, Grain]) -> None:
        """Takes how most weights of each pattern are scaled."""
        self._grains = grains

    def scaled(self, group: Group, block: tuple[int, int] | None, *, transposed: bool = False) -> Fits:
        """What a scale of single elements must be: of the declared block, else of the pattern's grain."""
        grain = self._grains.get(group.pattern.text)
        if block is not None or grain is None:
            return floating_scale(group.shape, block, transposed=transposed)
        return grained_scale(group.shape, *grain)

    def near(self, text: str, group: Group) -> Sequence[Group]:
        """The groups of that pattern in the same layer; more than one where shapes or dtypes differ."""
        return self._at.get((text, group.layer), ())

    def first(self, group: Group, *texts: str) -> Group | None:
        """The first of these patterns that is there, in the shape that most of its tensors have."""
        found = next((near for text in texts if (near := self.near(text, group))), ())
        return max(found, key=lambda side: side.count, default=None)


def alike(group: Group, declared: QuantizationPart | None) -> Hashable:
    """Weights of one declared form must be stored alike; without a group those of one pattern are."""
    if declared is not None and isinstance(declared.group, int) and declared.group:
        return declared.scheme, declared.bits, declared.group
    return group.pattern.text


def scale_names(text: str) -> tuple[str, ...]:
    """Where the scale of a weight may stand, the most usual first."""
    module, _, name = text.rpartition(".")
    beside = [f"{text}_scale_inv", f"{text}_scale", f"{text}_scales", f"{text}.scale", f"{text}._scale"]
    if name == "weight":
        beside += [f"{module}.scale", f"{module}.scale_weight", f"{module}.qscale_weight", f"{module}.scales",
                   f"{module}.SCB", f"{module}.weight_quantizer.scale"]  # fmt: skip
    return tuple(beside)


def activation_needs(group: Group, declared: QuantizationPart | None) -> tuple[Need, ...]:
    """The stored scale of the activations, where they are declared static."""
    kept = declared.activations if declared else None
    if kept is None or kept.dynamic is not False or not kept.dtype.startswith(("fp", "int8")):
        return ()
    text = group.pattern.text
    module, _, name = text.rpartition(".")
    stem = name.removesuffix("_packed").removesuffix("_blocks")
    names = (f"{module}.input_scale", f"{module}.input_global_scale", f"{module}.activation_scale",
             f"{module}.scale_input", f"{module}.{stem}_input_scale", f"{module}.qscale_act",
             f"{module}.input_quantizer.scale", f"{module}.act_scale",
             f"{module}.{stem}_activation_scale")  # fmt: skip
    return (Need(names, "activation scale", any_shape, wanted="warning"),)


def second_scales(group: Group) -> tuple[Need, ...]:
    """The scale of the scales that nvfp4 needs."""
    text = group.pattern.text
    module, _, name = text.rpartition(".")
    stem = name.removesuffix("_packed")
    names = (f"{module}.{stem}_scale_2", f"{module}.{stem}_global_scale", f"{text}_global_scale",
             f"{module}.global_scale", f"{module}.weight_scale_2")  # fmt: skip
    return (Need(names, "second-level scale", one_or_leading(group.shape), wanted="error"),)


def fp4_bytes(
    group: Group, scale: Group | None, columns: int, agreed: tuple[int, int] | None
) -> WeightFormat | None:
    """Two fp4 weights a byte, told by the number and the dtype of the scales in a row.

    Args:
        group: bytes.
        scale: beside them.
        columns: weights in a row, if it is fp4.
        agreed: bits and group of most weights that must be stored like these; they hold where one scale is
            of a wrong shape.
    """
    if scale is None or not columns:
        return None
    groups, names = scale.shape[-1] if len(scale.shape) > 1 else 0, scale_names(group.pattern.text)
    exponents, eighths = scale.dtype in ("e8m0", "uint8"), scale.dtype.startswith("fp8")
    if exponents and groups == -(-columns // MX_GROUP):
        reason = f"fp4: {groups} E8M0 scales x {MX_GROUP} = 2 x {columns // 2} columns"
        size, scheme = MX_GROUP, "mxfp4"
    elif eighths and groups == -(-columns // NVFP4_GROUP):
        reason = f"nvfp4: {groups} FP8 scales x {NVFP4_GROUP} = 2 x {columns // 2} columns"
        size, scheme = NVFP4_GROUP, "nvfp4"
    elif agreed in ((4, MX_GROUP), (4, NVFP4_GROUP)) and (exponents or eighths):
        size, scheme = (MX_GROUP, "mxfp4") if exponents else (NVFP4_GROUP, "nvfp4")
        reason = f"{scheme}, as most weights of its kind: 2 x {columns // 2} columns"
    else:
        return None
    need = Need(names, "scale", grouped_scale(group.shape, size, 2))
    return WeightFormat(scheme, 4, size, Packing(8, 4, reason), (need,))


def whole_quotient(dividend: int, divisor: int) -> int:
    """The quotient where it is whole; 0 where it is not."""
    return dividend // divisor if divisor and dividend % divisor == 0 else 0

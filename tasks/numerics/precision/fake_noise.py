"""In what a target's numbers are carried, and by which rounding its own precision is modelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from day0.adapters.models.quantisation_statement import statement_of

from ...carrier import WHOLE, carrier_of
from .fake_precision import BLOCK, Scheme
from .lowerings import LOWERINGS, Lowering


@dataclass(frozen=True)
class Carried:
    """What a target in some precision is held against.

    Attributes:
        dtype: short name of the weights and activations that it is sent, and of what nodes give.
        fake: how matrices and their inputs are held where that is narrower; None: in `dtype` as well.
    """

    dtype: str
    fake: Lowering | None = None

    @property
    def precision(self) -> str:
        """Short name of the precision itself."""
        return self.fake.dtype if self.fake is not None else self.dtype


def carried(precision: str, stored: str, config: Mapping[str, Any]) -> Carried | None:
    """How a target in that precision is compared; None where no rounding of it is known.

    Args:
        precision: short name.
        stored: dtype of the release.
        config: config.json, for the size of what shares a scale.
    """
    if precision in WHOLE:
        return Carried(precision)
    if precision not in LOWERINGS:
        return None
    return Carried(carrier_of(precision, stored), _as_stated(LOWERINGS[precision], config))


def _as_stated(lowering: Lowering, config: Mapping[str, Any]) -> Lowering:
    """With scales for as many elements as the release's own quantisation has, if that is of this precision.

    A release in fp8 blocks is multiplied by tokens in groups of as many (DeepSeek-V3 Technical Report, 3.3).
    """
    stated = statement_of(config).weights[0]
    if lowering.dtype == "fp8_e4m3" and stated.block == (BLOCK, BLOCK):
        return replace(
            lowering,
            matrices=Scheme(lowering.dtype, "block"),
            inputs=Scheme(lowering.dtype, "group", BLOCK),
            text=f"weights in blocks of {BLOCK} x {BLOCK}, inputs in groups of {BLOCK}",
        )
    if lowering.dtype == "int4" and stated.bits == 4 and stated.group > 0:
        return replace(
            lowering,
            matrices=Scheme(lowering.dtype, "group", stated.group),
            text=f"weights in groups of {stated.group}, inputs in bf16",
        )
    return lowering

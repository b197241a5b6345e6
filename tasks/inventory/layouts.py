"""Layouts that memory per rank is told for, as people write them: `tp=8,ep=8,pp=2,dp=1,sp`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from day0.adapters.base.errors import InputError

_DEGREES = ("tp", "ep", "pp", "dp")
_MOST = 65_536  # ranks in one direction; no cluster has more


@dataclass(frozen=True)
class ParallelLayout:
    """A way of spreading a model over ranks; `tp` x `pp` x `dp` of them.

    Attributes:
        tp: tensor-parallel degree.
        ep: expert-parallel degree, over the ranks of `tp` x `dp`; 1: experts are split as any other weight.
        pp: pipeline stages.
        dp: replicas.
        sp: whether norms and residuals are split over the sequence among the ranks of `tp`.
    """

    tp: int = 1
    ep: int = 1
    pp: int = 1
    dp: int = 1
    sp: bool = False

    @property
    def ranks(self) -> int:
        """In all."""
        return self.tp * self.pp * self.dp

    @property
    def text(self) -> str:
        """The one way it is written, e.g. `tp=8,ep=8,pp=1,dp=1,sp`."""
        degrees = [f"{name}={getattr(self, name)}" for name in _DEGREES]
        return ",".join([*degrees, "sp"] if self.sp else degrees)


def parse_layout(text: str) -> ParallelLayout:
    """The layout that a text such as `tp=8,pp=2` names; what it leaves out is 1.

    Raises:
        InputError: E165, it does not follow the grammar.
    """
    found: dict[str, int] = {}
    sequence = False
    for part in text.lower().split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name == "sp" and not equals and not sequence:
            sequence = True
            continue
        degree = int(value) if value.isascii() and value.isdigit() and len(value) < 7 else 0
        if name not in _DEGREES or name in found or not 1 <= degree <= _MOST:
            raise InputError(
                f"layout {text[:60]!r} cannot be read at {part[:30]!r}",
                code="E165",
                remedy=f"Write it as tp=8,ep=8,pp=2,dp=1 and sp; each from 1 to {_MOST} and once.",
            )
        found[name] = degree
    return ParallelLayout(**found, sp=sequence)


def usual_layouts(experts: int) -> Sequence[ParallelLayout]:
    """Those that are told where none is asked for: one rank, a node of eight by tensors, experts, stages."""
    by_experts = (ParallelLayout(tp=8, ep=8),) if experts else ()
    return (ParallelLayout(), ParallelLayout(tp=8), *by_experts, ParallelLayout(pp=8))

"""What one visited node's outputs are held against, and by how much some outputs are off."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from day0.adapters.base.target import Call

from ... import thresholds
from ..measures.judge import Judgement, judge_all, shares
from ..measures.metrics import Distance, distance
from ..measures.panel import panel
from ..measures.values import WrongOutput, distances, joined, rows_for
from ..walk.expert_runs import experts_of
from ..walk.routing import Account, Choice, account
from ..walk.visit import PassVisit, Visit
from .bug_runs import Ran

LEFT_OUT = ("long",)
"""Prompts that show no bug that the others do not."""


@dataclass(frozen=True)
class Yardstick:
    """Reference and noise in one precision.

    Attributes:
        dtype: the precision.
        reference: pass -> output of the reference.
        noise: pass -> output of the noise arm.
        choices: pass -> experts and weights that the reference chose, where the visit does not say.
    """

    dtype: torch.dtype
    reference: Mapping[str, Call]
    noise: Mapping[str, Call]
    choices: Mapping[str, Choice] = field(default_factory=dict)

    @property
    def eps(self) -> float:
        """Machine epsilon of the precision."""
        return float(torch.finfo(self.dtype).eps)


def own_yardstick(visit: Visit, dtype: torch.dtype) -> Yardstick:
    """The visit's own, in the target's precision."""
    reference = {step.name: step.reference for step in visit.passes}
    noise = {step.name: step.noise for step in visit.passes if step.noise is not None}
    return Yardstick(dtype, reference, noise)


class VisitJudge:
    """Judges outputs of a visited node as the comparison does, prompt by prompt.

    Args:
        visit: of the node.
        yard: what outputs are held against.

    Attributes:
        groups: prompt -> its passes.
        passes: all of them, in order.
    """

    def __init__(self, visit: Visit, yard: Yardstick) -> None:
        self._visit, self._yard = visit, yard
        self.passes: Sequence[PassVisit] = [
            step for step in visit.passes if step.name in yard.noise and _group(step) not in LEFT_OUT
        ]
        self.groups: dict[str, list[PassVisit]] = {}
        for step in self.passes:
            self.groups.setdefault(_group(step), []).append(step)
        self._steady = {step.name: same for step in self.passes if (same := self._same(step)) is not None}

    def names(self, group: str) -> list[str]:
        """The passes to run for a prompt: steps with a cache need the main one before them."""
        steps = self.groups[group]
        before = [self._visit.passes[0].name] if any(step.cached for step in steps) else []
        return [*before, *(step.name for step in steps)]

    def units(self, clean: Ran, changed: Ran, group: str) -> float:
        """How far changed outputs are from clean ones in units of noise, by the measure that shows most.

        Tokens that noise arm or target route otherwise by rounding alone do not count, nor do those that the
        change sends over a margin which rounding may cross as well: what they show, no comparison would.
        """
        accounts = {step.name: self._account(changed, step) for step in self.groups[group]}
        known = {name: found for name, found in accounts.items() if found is not None}
        kept = self._flat(self._steady, group)
        if not sum(found.facts.unexplained for found in known.values() if found.certain):
            kept = self._flat(
                {name: found.same & self._steady.get(name, found.same) for name, found in known.items()},
                group,
            )
        ours, theirs = self._joined(clean.outputs, group), self._joined(changed.outputs, group)
        reference, noise = self._joined(self._yard.reference, group), self._joined(self._yard.noise, group)
        found = [
            _units(
                distance(t, c, rows=rows_for(kept, c)), distance(n, r, rows=rows_for(kept, r)), self._yard.eps
            )
            for t, c, n, r in zip(theirs, ours, noise, reference, strict=True)
        ]
        return max(found, default=0.0)

    def judged(self, ran: Ran, group: str) -> tuple[Judgement | None, int]:
        """The judgement of a prompt, and how many flips of the router rounding does not explain.

        Raises:
            WrongOutput: the outputs have other parts or shapes.
        """
        accounts = {step.name: self._account(ran, step) for step in self.groups[group]}
        known = {name: found for name, found in accounts.items() if found is not None}
        unexplained = sum(found.facts.unexplained for found in known.values() if found.certain)
        kept = {name: found.same & self._steady.get(name, found.same) for name, found in known.items()}
        flat, node = self._flat(kept, group), self._visit.node
        reference, dtype = self._joined(self._yard.reference, group), self._yard.dtype
        judgement = judge_all(
            distances(self._joined(ran.outputs, group), reference, dtype, rows=flat),
            distances(self._joined(self._yard.noise, group), reference, dtype, rows=flat),
            eps=self._yard.eps,
            routed=node.feed_forward == "moe" or node.layer_kind == "sparse_indexed",
            kept=flat,
        )
        return judgement, unexplained

    def fails(self, ran: Ran, group: str) -> str:
        """The measure by which a prompt falls; empty where it passes."""
        try:
            judgement, unexplained = self.judged(ran, group)
        except WrongOutput:
            return "shape"
        if judgement is not None and judgement.excess is not None:
            return judgement.excess.metric
        return "unexplained flips" if unexplained else ""

    def _account(self, ran: Ran, step: PassVisit) -> Account | None:
        theirs = ran.routed.get(step.name)
        if theirs is None:
            return None
        return self._held(step, Choice(theirs.ids, theirs.weights))

    def _held(self, step: PassVisit, chosen: Choice) -> Account | None:
        """Choices of the node against the reference's; None where these are not known."""
        node, other = self._visit.node, self._yard.choices.get(step.name)
        if other is not None:
            return account(node.name, other, chosen, experts=experts_of(node), rows=step.rows)
        ours = self._visit.routers.get(("reference", step.name))
        if ours is None:
            return None
        noise = self._visit.routers.get(("noise_local", step.name))
        return account(
            node.name,
            ours.choice,
            chosen,
            experts=experts_of(node),
            noise=noise.choice if noise else None,
            reference_scores=ours.scores,
            noise_scores=noise.scores if noise else (),
            rows=step.rows,
        )

    def _same(self, step: PassVisit) -> Tensor | None:
        """Tokens that neither noise arm nor clean target route otherwise; None where that is not known."""
        noise = self._visit.routers.get(("noise_local", step.name))
        if self._yard.choices or noise is None:
            return None
        ours = self._held(step, noise.choice)
        if ours is None:
            return None
        target = self._visit.routed.get(step.name)
        if target is None or target.shape != noise.choice.ids.shape:
            return ours.same
        own = self._held(step, Choice(target, noise.choice.weights))
        return ours.same if own is None else ours.same & own.same

    def _joined(self, outputs: Mapping[str, Call], group: str) -> list[Tensor]:
        steps = self.groups[group]
        return joined([outputs[step.name] for step in steps], [step.rows for step in steps])

    def _flat(self, kept: Mapping[str, Tensor], group: str) -> Tensor | None:
        """One mask for the joined passes; None where some pass's is not known."""
        steps = self.groups[group]
        if any(step.name not in kept for step in steps):
            return None
        return torch.cat(
            [kept[step.name] if step.rows is None else kept[step.name][step.rows] for step in steps]
        )


def _units(effect: Distance, noise: Distance, eps: float) -> float:
    if effect.exact:
        return 0.0
    if effect.nonfinite or (effect.masked and effect.misplaced) or effect.scale == 0.0:
        return math.inf
    known = [share for share in shares(panel(effect, noise, eps=eps)).values() if not math.isnan(share)]
    return thresholds.NUMERICS_RATIO * max(known, default=0.0)


def _group(step: PassVisit) -> str:
    return step.name.partition(".")[0]

"""The router's account: which tokens the target sent to other experts, and whether rounding explains it.

A flip is a token whose set of experts differs from the reference's. For rounding to make it, each expert that
came in must have passed each that went out, so the margin crossed is the best score that went out less the
worst that came in, by the reference. It is a near-tie within `NUMERICS_ROUTER_SIGMA` times the noise: the
noise arm's RMS error of that token's leading scores, at least the typical token's share of them, at least one
ULP. Where a router first chooses groups of experts, the same holds for the groups' scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from day0.adapters.base.values import json_number

from ... import thresholds
from ..record_parts import Routing

_LOADS = 16
NO_SCORES = "the router's scores are not known; margins are told from the weights of the chosen experts"
NO_MARGINS = "neither the router's scores nor the noise arm's weights are known, so no margin is"
INVALID = "the target names experts that there are not"


@dataclass(frozen=True)
class Choice:
    """What one arm's router gave its experts.

    Attributes:
        ids: [tokens, k], the expert of each slot; the number of experts stands for none.
        weights: [tokens, k], its weight.
    """

    ids: Tensor
    weights: Tensor


@dataclass(frozen=True)
class TopK:
    """One choice of the k largest on the way to a router's answer.

    Attributes:
        scores: [..., n], tokens first: of experts, of groups, or of the experts of each group.
        k: how many of the last dimension were chosen.
    """

    scores: Tensor
    k: int


@dataclass(frozen=True)
class Account:
    """One router's account.

    Attributes:
        facts: for the record; the ratios in it are the caller's to fill in.
        same: [tokens] bool, whether the set of experts is the reference's.
        near_tie: [tokens] bool, flips that rounding explains.
        unexplained: [tokens] bool, the other flips.
        certain: whether the margins come from the router's own scores; else a flip that they do not explain
            may be one of a router that chooses by other numbers than the weights it gives.
    """

    facts: Routing
    same: Tensor
    near_tie: Tensor
    unexplained: Tensor
    certain: bool


def account(
    name: str,
    reference: Choice,
    target: Choice,
    *,
    experts: int,
    noise: Choice | None = None,
    reference_scores: Sequence[TopK] = (),
    noise_scores: Sequence[TopK] = (),
    rows: Tensor | None = None,
) -> Account:
    """Holds the target's choices against the reference's, both on the reference's input.

    Args:
        name: of the node.
        reference: its choices.
        target: its choices.
        experts: how many there are.
        noise: the noise arm's choices, on the same input; used where scores are not known.
        reference_scores: what the reference's router chose from, in the order in which it did.
        noise_scores: the same of the noise arm.
        rows: [tokens] bool, the tokens that count; padding is no flip. None: all.

    Raises:
        ValueError: the choices are not [tokens, k] alike.
    """
    for choice in (target, *([] if noise is None else [noise])):
        if choice.ids.shape != reference.ids.shape or choice.weights.shape != reference.ids.shape:
            raise ValueError(
                f"{list(choice.ids.shape)} experts and {list(choice.weights.shape)} weights are chosen, "
                f"the reference chooses {list(reference.ids.shape)}"
            )
    ours, theirs = _members(reference.ids, experts), _members(target.ids, experts)
    counted = torch.ones(len(ours)).bool() if rows is None else rows.reshape(-1).bool().cpu()
    invalid = ((target.ids < 0) | (target.ids > experts)).any(1).cpu() & counted
    same = (ours == theirs).all(1) & ~invalid
    flips = ~same & counted
    explained, certain, reason = _explained(reference, target, noise, reference_scores, noise_scores, ours)
    near_tie = flips & explained & ~invalid
    slots = same & counted & (reference.ids.cpu() != target.ids.cpu()).any(1)
    load, expected = theirs[counted].sum(0), ours[counted].sum(0)
    facts = Routing(
        name=name,
        tokens=int(counted.sum()),
        flips=int(flips.sum()),
        near_tie=int(near_tie.sum()),
        unexplained=int((flips & ~near_tie).sum()) if reason != NO_MARGINS else 0,
        slots=int(slots.sum()),
        load=_busiest(load),
        imbalance=json_number(_imbalance(load)),
        reference_imbalance=json_number(_imbalance(expected)),
        experts=experts,
        reason=INVALID if bool(invalid.any()) else reason if bool(flips.any()) else "",
    )
    return Account(facts, same | ~counted, near_tie, flips & ~near_tie, certain)


def forced_weights(reference: Choice, target: Choice) -> Tensor:
    """[tokens, k] weights for the reference's experts: the target's own where it chose the expert as well.

    Where it did not, it has no weight for it and gets the reference's.

    Args:
        reference: whose experts are forced.
        target: whose weights are wanted.
    """
    alike = reference.ids[:, :, None] == target.ids[:, None, :]
    place = alike.to(torch.int64).argmax(2)
    own = target.weights.gather(1, place)
    return torch.where(alike.any(2), own, reference.weights.to(own.dtype))


def _explained(
    reference: Choice,
    target: Choice,
    noise: Choice | None,
    reference_scores: Sequence[TopK],
    noise_scores: Sequence[TopK],
    ours: Tensor,
) -> tuple[Tensor, bool, str]:
    """Whether rounding explains each token's flip, whether that is certain, and why not."""
    experts = ours.shape[1]
    final = _pair(reference_scores, noise_scores, len(ours), experts)
    if final is not None:
        return _by_scores(final, reference_scores, noise_scores, target, ours), True, ""
    if noise is not None:
        return _by_weights(reference, target, noise, experts), False, NO_SCORES
    return torch.zeros(len(ours)).bool(), False, NO_MARGINS


def _by_scores(
    final: tuple[TopK, TopK],
    reference_scores: Sequence[TopK],
    noise_scores: Sequence[TopK],
    target: Choice,
    ours: Tensor,
) -> Tensor:
    tokens, experts = ours.shape
    theirs = _members(target.ids, experts)
    out, came = ours & ~theirs, theirs & ~ours
    scores = _numbers(final[0])
    allowed = torch.ones_like(ours)
    excused, explained = torch.zeros_like(ours), torch.ones(tokens).bool()
    grouped = _groups(reference_scores, noise_scores, tokens, experts)
    if grouped is not None:
        width = experts // grouped[0].scores.shape[-1]
        chosen, sets = _numbers(grouped[0]), [_best(_numbers(one), one.k) for one in grouped]
        allowed = (sets[0] & sets[1]).repeat_interleave(width, 1)
        entered = came.reshape(tokens, -1, width).any(2) & ~sets[0]
        margin, left = _group_margin(chosen, sets[0], entered)
        every = torch.ones_like(chosen).bool()
        explained = margin <= thresholds.NUMERICS_ROUTER_SIGMA * _noise(grouped, every, chosen.shape[1])
        # Experts of a group that left had to go; those of one that entered had scores that a mask hid.
        excused = (left | entered).repeat_interleave(width, 1)
    margin = _margin(scores, out & ~excused, came & ~excused, came)
    tolerance = thresholds.NUMERICS_ROUTER_SIGMA * _noise(final, allowed, 2 * final[0].k)
    return explained & (margin <= tolerance)


def _margin(scores: Tensor, out: Tensor, came: Tensor, came_at_all: Tensor) -> Tensor:
    """Best score that went out less worst that came in; nothing to cross is minus infinity.

    An expert that went out although none came in its place was not outvoted: no margin explains that.
    """
    best = scores.masked_fill(~out, -math.inf).amax(1)
    worst = scores.masked_fill(~came, math.inf).amin(1)
    margin = torch.where(out.any(1) & came.any(1), best - worst, -math.inf)
    return torch.where(out.any(1) & ~came_at_all.any(1), math.inf, margin)


def _group_margin(scores: Tensor, chosen: Tensor, entered: Tensor) -> tuple[Tensor, Tensor]:
    """Margin that the groups which entered crossed, and [tokens, groups] which had to leave: the lowest."""
    count = entered.sum(1, keepdim=True)
    rank = scores.masked_fill(~chosen, math.inf).argsort(1).argsort(1)
    left = chosen & (rank < count)
    best = scores.masked_fill(~left, -math.inf).amax(1)
    worst = scores.masked_fill(~entered, math.inf).amin(1)
    return torch.where(entered.any(1), best - worst, -math.inf), left


def _noise(pair: tuple[TopK, TopK], allowed: Tensor, leading: int) -> Tensor:
    """[tokens] error of the noise arm's leading scores."""
    scores, theirs = _numbers(pair[0]), _numbers(pair[1])
    allowed = allowed & torch.isfinite(scores) & torch.isfinite(theirs)
    best = _best(scores.masked_fill(~allowed, -math.inf), min(leading, scores.shape[1])) & allowed
    count = best.sum(1).clamp_min(1)
    clean = torch.where(best, scores, 0.0)
    errors = ((torch.where(best, theirs, 0.0) - clean).square().sum(1) / count).sqrt()
    scale = (clean.square().sum(1) / count).sqrt()
    known = best.any(1) & (scale > 0)
    typical = float((errors[known] / scale[known]).median()) if bool(known.any()) else 0.0
    ulp = torch.finfo(pair[1].scores.dtype).eps * torch.exp2(torch.floor(torch.log2(scale.clamp_min(1e-300))))
    return torch.maximum(torch.maximum(errors, typical * scale), ulp)


def _by_weights(reference: Choice, target: Choice, noise: Choice, experts: int) -> Tensor:
    """A near-tie goes out with the least weight and comes in with the same, but for rounding."""
    ours, theirs, other = (_dense(choice, experts) for choice in (reference, target, noise))
    chosen, out = ours > -math.inf, (ours > -math.inf) & (theirs == -math.inf)
    came = (theirs > -math.inf) & ~chosen
    both = chosen & (other > -math.inf)
    count = both.sum(1).clamp_min(1)
    difference = torch.where(both, other, 0.0) - torch.where(both, ours, 0.0)
    errors = (difference.square().sum(1) / count).sqrt()
    scale = (torch.where(chosen, ours, 0.0).square().sum(1) / chosen.sum(1).clamp_min(1)).sqrt()
    known = scale > 0
    typical = float((errors[known] / scale[known]).median()) if bool(known.any()) else 0.0
    allowed = torch.maximum(errors, typical * scale)
    allowed = torch.maximum(allowed, torch.finfo(noise.weights.dtype).eps * scale)
    best = ours.masked_fill(~out, -math.inf).amax(1)
    least = torch.minimum(
        ours.masked_fill(~chosen, math.inf).amin(1), theirs.masked_fill(~came, math.inf).amin(1)
    )
    return (best - least <= thresholds.NUMERICS_ROUTER_SIGMA * allowed) & came.any(1)


def _members(ids: Tensor, experts: int) -> Tensor:
    """[tokens, experts] which were chosen; ids of experts that there are not count for none."""
    ids = ids.to("cpu", torch.int64)
    members = torch.zeros(ids.shape[0], experts + 1).bool()
    members.scatter_(1, torch.where((ids < 0) | (ids >= experts), experts, ids), True)
    return members[:, :experts]


def _dense(choice: Choice, experts: int) -> Tensor:
    """[tokens, experts] weights, minus infinity where not chosen."""
    ids = choice.ids.to("cpu", torch.int64)
    dense = torch.full((ids.shape[0], experts + 1), -math.inf, dtype=torch.float64)
    place = torch.where((ids < 0) | (ids >= experts), experts, ids)
    return dense.scatter_(1, place, choice.weights.to("cpu", torch.float64))[:, :experts]


def _numbers(choice: TopK) -> Tensor:
    """[tokens, n] what was chosen from."""
    return choice.scores.reshape(-1, choice.scores.shape[-1]).to("cpu", torch.float64)


def _best(scores: Tensor, k: int) -> Tensor:
    """[tokens, n] which are among the k largest."""
    return torch.zeros_like(scores).bool().scatter_(1, scores.topk(min(k, scores.shape[1]), 1).indices, True)


def _pair(
    reference: Sequence[TopK], noise: Sequence[TopK], tokens: int, width: int
) -> tuple[TopK, TopK] | None:
    """The last choice from so many numbers a token, in both arms."""
    found = [[one for one in arm if _fits(one, tokens, width)] for arm in (reference, noise)]
    return (found[0][-1], found[1][-1]) if all(found) else None


def _groups(
    reference: Sequence[TopK], noise: Sequence[TopK], tokens: int, experts: int
) -> tuple[TopK, TopK] | None:
    """The choice of groups: of fewer things than experts, which share the experts out among them."""
    widths = [one.scores.shape[-1] for one in reference if _fits(one, tokens, one.scores.shape[-1])]
    fitting = [width for width in widths if 1 < width < experts and experts % width == 0]
    return _pair(reference, noise, tokens, fitting[-1]) if fitting else None


def _fits(choice: TopK, tokens: int, width: int) -> bool:
    return choice.scores.shape[-1] == width and choice.scores.numel() == tokens * width


def _busiest(load: Tensor) -> dict[str, int]:
    order = sorted(range(len(load)), key=lambda expert: (-int(load[expert]), expert))
    return {str(expert): int(load[expert]) for expert in order[:_LOADS] if load[expert]}


def _imbalance(load: Tensor) -> float:
    total = int(load.sum())
    return float(load.max()) * len(load) / total if total else math.nan

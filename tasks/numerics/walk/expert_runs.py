"""The routed experts of a node, a chunk at a time, with the rows of all runs that wait for them.

Each expert's weights are asked for once. Where all runs that meet a chunk need no expert beyond it, their
calls go through the experts' module as the node made them, with the experts' places in the stack for their
numbers. Where one of them does, each choice of a token is a row of its own with k = 1, and what comes out
is summed for each token in fp32 (fp64 in fp64), then cast, as `batched_mm_experts_forward` of transformers
5.24 sums over the k choices; here in ascending order of the experts, as its eager experts add them, so that
no [T, k, H] has to be held. Each term is rounded to the output's dtype before, as in the eager experts.

Bound: one chunk's weights, its rows, and one accumulator [T, H] for each run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from day0.adapters.base.errors import Day0Error, WorkerError
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Paused

Which = Literal["exact", "lowered", "sent"]


class Stack(Protocol):
    """Some experts' weights, in each form that a side may take; `day0.adapters.models.node_weights`."""

    @property
    def exact(self) -> Mapping[str, Tensor]:
        """Parameter -> [n, ...] as stored or dequantised."""
        ...

    @property
    def lowered(self) -> Mapping[str, Tensor]:
        """Parameter -> [n, ...] in the target's dtypes."""
        ...

    @property
    def sent(self) -> Mapping[str, Any]:
        """Parameter -> expression of the same for a target."""
        ...


class Side(Protocol):
    """Who runs experts: an `Arm`, or `TargetNodes`."""

    def run_experts(
        self, node: Node, stack: Mapping[str, Any], hidden: Tensor, ids: Tensor, weights: Tensor
    ) -> Tensor:
        """The experts' output [T, H] for ids out of 0 to n - 1 of a stack of n; n stands for none."""
        ...


@dataclass(frozen=True, eq=False)
class Waiting:
    """A run that waits for its experts.

    Attributes:
        side: that runs them.
        paused: what they are given.
        which: form of the weights that the side takes.
    """

    side: Side
    paused: Paused
    which: Which


def through_experts(
    node: Node,
    waiting: Sequence[Waiting],
    stacks: Callable[[Sequence[int]], Stack],
    *,
    chunk: int,
    prefetch: Callable[[Sequence[int]], None] | None = None,
    look: Callable[[Any], None] | None = None,
) -> list[Tensor | Day0Error]:
    """What the experts make of each run.

    Args:
        node: with `experts`.
        waiting: any number of runs on any sides; a side gets all its rows of a chunk in one call.
        stacks: gives the weights of experts, in ascending order of their numbers.
        chunk: experts that are in memory at a time, at least one.
        prefetch: told the experts of the next chunk before the present one is run.
        look: shown each stack before it is run.

    Returns:
        For each run [T, H] in the dtype that the side gave; or the error that its side raised, which ends no
        other run than those in the same call.
    """
    total = experts_of(node)
    outcomes = [_begun(one.paused, total) for one in waiting]
    chunks = _chunks([one.paused for one in waiting], outcomes, total, max(1, chunk))
    for place, ids in enumerate(chunks):
        meets = _meets(waiting, outcomes, ids)
        stack = stacks(ids) if any(meets) else None
        # After the present chunk was asked for, which takes what was read ahead for it.
        if prefetch is not None and place + 1 < len(chunks):
            prefetch(chunks[place + 1])
        if stack is not None:
            if look is not None:
                look(stack)
            _run_chunk(node, waiting, outcomes, meets, stack, ids, total)
    return [
        outcome if isinstance(outcome, Day0Error) else _finished(outcome, one.paused)
        for outcome, one in zip(outcomes, waiting, strict=True)
    ]


def experts_of(node: Node) -> int:
    """How many experts the node stacks.

    Raises:
        ValueError: it has none, or its recipes do not agree.
    """
    sizes = {
        recipe.shape[0]
        for name, recipe in node.weights.items()
        if name.startswith(f"{node.experts}.") and len(recipe.shape) > 2
    }
    if not node.experts or len(sizes) != 1:
        raise ValueError(f"{node.name} does not stack its experts: first sizes {sorted(sizes)}")
    return sizes.pop()


@dataclass
class _Sum:
    """What a run has so far: the module's own output, or a sum over rows."""

    output: Tensor | None = None
    dtype: torch.dtype | None = None


_Outcomes = list["_Sum | Day0Error"]


def _begun(paused: Paused, total: int) -> _Sum | Day0Error:
    wrong = paused.ids[(paused.ids < 0) | (paused.ids > total)]
    if wrong.numel():
        return WorkerError(f"a token was sent to expert {int(wrong[0])} of {total}", code="E607")
    return _Sum()


def _chunks(runs: Sequence[Paused], outcomes: _Outcomes, total: int, chunk: int) -> list[Sequence[int]]:
    met = [
        paused.ids.reshape(-1)
        for paused, outcome in zip(runs, outcomes, strict=True)
        if isinstance(outcome, _Sum)
    ]
    if not met:
        return []
    ids = [one for one in torch.unique(torch.cat([one.long() for one in met])).tolist() if one < total]
    return [tuple(ids[start : start + chunk]) for start in range(0, len(ids), chunk)]


def _meets(waiting: Sequence[Waiting], outcomes: _Outcomes, ids: Sequence[int]) -> list[bool]:
    """Which of the runs that have not failed have a token for one of these experts."""
    chunk = torch.tensor(ids)
    return [
        isinstance(outcome, _Sum) and bool(torch.isin(one.paused.ids, chunk).any())
        for one, outcome in zip(waiting, outcomes, strict=True)
    ]


def _run_chunk(
    node: Node,
    waiting: Sequence[Waiting],
    outcomes: _Outcomes,
    meets: Sequence[bool],
    stack: Stack,
    ids: Sequence[int],
    total: int,
) -> None:
    """One call for each side (and width and dtype, which are the same but for odd targets)."""
    chunk = torch.tensor(ids)
    runs = [index for index, met in enumerate(meets) if met]
    # All sides alike, so that a run and the noise it is held against are summed in the same way.
    whole = all(_within(waiting[index].paused.ids, chunk, total) for index in runs)
    groups: dict[Any, list[int]] = {}
    for index in runs:
        groups.setdefault(_group(waiting[index]), []).append(index)
    for members in groups.values():
        rows = [
            _whole(waiting[index].paused, chunk) if whole else _pairs(waiting[index].paused, chunk)
            for index in members
        ]
        side, weights = waiting[members[0]].side, getattr(stack, waiting[members[0]].which)
        try:
            output = side.run_experts(node, weights, *_joined(rows))
        except Day0Error as error:
            for index in members:
                outcomes[index] = error
            continue
        parts = torch.split(output, [len(one.ids) for one in rows])
        for index, part, own in zip(members, parts, rows, strict=True):
            _add(outcomes[index], part, own, waiting[index].paused)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of one run in one chunk.

    Attributes:
        tokens: [R] of the run that they are; None: all tokens, each once.
        hidden: [R, H].
        ids: [R, k], in the stack.
        weights: [R, k].
    """

    tokens: Tensor | None
    hidden: Tensor
    ids: Tensor
    weights: Tensor


def _group(one: Waiting) -> tuple[Any, ...]:
    paused = one.paused
    return (
        id(one.side), one.which, paused.hidden.shape[1], paused.hidden.dtype, paused.ids.shape[1],
        paused.ids.dtype, paused.weights.dtype,
    )  # fmt: skip


def _within(ids: Tensor, chunk: Tensor, total: int) -> bool:
    return bool((torch.isin(ids, chunk) | (ids == total)).all())


def _whole(paused: Paused, chunk: Tensor) -> _Rows:
    """The call as it is; an expert's number becomes its place in the stack, that of none the stack's size."""
    places = torch.searchsorted(chunk, paused.ids.long().contiguous()).to(paused.ids.dtype)
    return _Rows(None, paused.hidden, places, paused.weights)


def _pairs(paused: Paused, chunk: Tensor) -> _Rows:
    """One row for each choice of an expert of the chunk, in ascending order of the experts."""
    tokens, choices = torch.isin(paused.ids, chunk).nonzero(as_tuple=True)
    places = torch.searchsorted(chunk, paused.ids[tokens, choices].long())
    order = torch.argsort(places, stable=True)
    tokens, choices = tokens[order], choices[order]
    return _Rows(
        tokens,
        paused.hidden[tokens],
        places[order, None].to(paused.ids.dtype),
        paused.weights[tokens, choices][:, None],
    )


def _joined(rows: Sequence[_Rows]) -> tuple[Tensor, Tensor, Tensor]:
    if len(rows) == 1:
        return rows[0].hidden, rows[0].ids, rows[0].weights
    return (
        torch.cat([one.hidden for one in rows]),
        torch.cat([one.ids for one in rows]),
        torch.cat([one.weights for one in rows]),
    )


def _add(outcome: _Sum | Day0Error, part: Tensor, rows: _Rows, paused: Paused) -> None:
    assert isinstance(outcome, _Sum), "a run that failed has no rows"
    outcome.dtype = part.dtype
    if rows.tokens is None:
        outcome.output = part
        return
    wide = torch.promote_types(part.dtype, torch.float32)
    if outcome.output is None:
        outcome.output = torch.zeros(len(paused.hidden), part.shape[1], dtype=wide)
    # Row after row, so the order is that of the rows.
    outcome.output.index_add_(0, rows.tokens, part.to(wide))


def _finished(outcome: _Sum, paused: Paused) -> Tensor:
    if outcome.output is None:
        return torch.zeros_like(paused.hidden)
    return outcome.output if outcome.dtype is None else outcome.output.to(outcome.dtype)

"""The experts of a node over a compacted stack: the parameters of some of them, one behind the other."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Mapping, Optional, Tuple

from day0_worker.parts import own_forward
from day0_worker.stack import StackError

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def compacted(
    experts: torch.nn.Module, weights: Mapping[str, torch.Tensor], device: str
) -> Iterator[Callable[..., Any]]:
    """The experts' forward over a stack of some of them: parameters [n, ...], and what counts experts says n.

    Args:
        experts: module with stacked parameters [E, ...].
        weights: parameter -> tensor [n, ...]; one that is not stacked is as the module has it.
        device: that they are put on.

    Raises:
        StackError: `key_mismatch`, a name is unknown or missing, or a shape does not fit.
    """
    from day0_worker.modules import place

    before = dict(experts.state_dict(keep_vars=True))
    unknown, missing = sorted(set(weights) - set(before)), sorted(set(before) - set(weights))
    if unknown or missing:
        raise StackError(
            f"experts lack weights for {missing} and have no place for {unknown}", "key_mismatch"
        )
    total = expert_count(experts)
    counters = _counters(experts, total)
    count: Optional[int] = None
    try:
        # One at a time, since weights may be evaluated as they are asked for; the first is surely stacked.
        for name in sorted(before, key=lambda name: before[name].dim() < 3):
            value = weights[name].detach()
            if count is None:
                count = int(value.shape[0]) if value.dim() else 0
            _check_shape(name, value, before[name], total, count)
            place(experts, name, value.to(device, before[name].dtype))
        for part, name in counters:
            setattr(part, name, count)
        yield own_forward(experts)
    finally:
        for name, value in before.items():
            place(experts, name, value.detach())
        for part, name in counters:
            setattr(part, name, total)


def expert_count(experts: torch.nn.Module) -> int:
    """How many experts the module stacks: the first size of its parameters of three dimensions.

    Raises:
        StackError: `unsupported`, it has none, or they do not agree.
    """
    counts = {int(value.shape[0]) for value in experts.parameters() if value.dim() > 2}
    if len(counts) != 1:
        raise StackError(
            f"{type(experts).__name__} does not stack its experts: first sizes {sorted(counts)}",
            "unsupported",
        )
    return counts.pop()


def _check_shape(name: str, value: torch.Tensor, place: torch.Tensor, total: int, count: int) -> None:
    """Whether it is as its place is, or its place cut down to `count` experts."""
    whole = list(place.shape)
    compact = [count, *whole[1:]] if whole and whole[0] == total else whole
    if list(value.shape) not in (whole, compact):
        raise StackError(f"{name}: {list(value.shape)} was given, {compact} is needed", "key_mismatch")


def _counters(experts: torch.nn.Module, total: int) -> List[Tuple[torch.nn.Module, str]]:
    """Attributes such as `num_experts` that say how many experts there are."""
    return [
        (part, name)
        for part in experts.modules()
        for name, value in vars(part).items()
        if type(value) is int and value == total and "expert" in name
    ]

"""Whether what one operator does wrong explains what its module does wrong."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .operator_faults import Change
from .operator_replay import Replay, ReplayError
from .operator_trace import Trace


def with_changes(noise: Trace, changes: Sequence[Change]) -> list[Tensor] | None:
    """The floating tensors of the module's result had the noise arm made these errors too.

    Args:
        noise: what it dispatched.
        changes: of one suspect.

    Returns:
        In order; None where the operators cannot be run again.
    """
    replay = Replay(noise.operators, wide=False, keep=noise.result)
    try:
        for place in range(len(noise.operators)):
            replay.inputs(place)
            _apply(replay, [one for one in changes if one.place == place and not one.after])
            replay.run(place)
            _apply(replay, [one for one in changes if one.place == place and one.after])
            replay.done(place)
    except ReplayError:
        return None
    values = [replay.value(slot) for slot in noise.result]
    return (
        None if any(value is None for value in values) else [value for value in values if value is not None]
    )


def _apply(replay: Replay, changes: Sequence[Change]) -> None:
    for change in changes:
        value = replay.value(change.slot)
        if value is None or value.shape != change.delta.shape:
            continue
        finite = torch.isfinite(change.delta) if change.delta.numel() else change.delta.bool()
        wide = value.to(change.delta.dtype)
        replay.put(change.slot, torch.where(finite, wide + change.delta, change.delta).to(value.dtype))

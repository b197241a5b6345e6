"""A forward of the whole model with some roles in a lower precision, and what it costs at the output."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from day0.adapters.base.target import Call
from day0.adapters.models.walk import NodeCall, Walk

from ..measures.outputs import compare_logits


@dataclass(frozen=True)
class Cost:
    """What a forward loses at the output.

    Attributes:
        kl: nats per position from the oracle; NaN where its logits are not finite.
        top1: agreement with the oracle.
    """

    kl: float
    top1: float


class Stream:
    """One forward; `end` it.

    Args:
        walk: of the model, not begun.

    Attributes:
        call: that waits for an output; None: it has ended.
        against: logits of the oracle; None: there are none yet, or this is the oracle.
        logits: kept where `against` is None.
        cost: once it has ended and where there are logits.
    """

    def __init__(self, walk: Walk) -> None:
        self.against: Tensor | None = None
        self.logits: Tensor | None = None
        self.cost: Cost | None = None
        self._walk: Walk | None = walk
        self.call: NodeCall | None = next(walk, None)

    def reply(self, output: Call) -> None:
        """Goes on to the next node, or to the end, where the logits are compared and dropped."""
        assert self.call is not None, "a forward that has ended takes no output"
        assert self._walk is not None, "a forward that has not ended has a walk"
        self.call.reply(output)
        self.call = next(self._walk, None)
        if self.call is not None:
            return
        logits = getattr(self._walk.output, "logits", None)
        self.end()
        if logits is None:  # a model without a head
            return
        if self.against is None:
            self.logits = logits.flatten(0, -2)
        else:
            self.cost = _cost(logits.flatten(0, -2), self.against)

    def end(self) -> None:
        """Ends it, wherever it stands; nothing happens where it has ended."""
        self.call = None
        if self._walk is not None:
            self._walk.close()
        self._walk = None


def _cost(logits: Tensor, reference: Tensor) -> Cost:
    found = compare_logits(logits, reference, reference)
    return Cost(float(found.kl), float(found.top1))


def information(logits: Tensor) -> float:
    """Mean over positions of log V less the entropy: KL from an even distribution, nats."""
    total, vocabulary = 0.0, logits.shape[1]
    for row in logits:
        log = row.double().log_softmax(0)
        total += math.log(vocabulary) + float((log.exp() * log).sum())
    return total / logits.shape[0]

"""What is run at one node of a sweep over roles and precisions, and what it says of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from day0.adapters.base.errors import Day0Error, SkeletonError
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Call
from day0.adapters.models.casting import cast_like

from ..measures.metrics import Distance
from ..measures.panel import panel
from ..measures.values import distances, float_tensors, same_call
from .lowered_node import Job, LoweredNode
from .lowered_stream import Cost, Stream

Single = tuple[str, str]
"""Role and precision."""
ORACLE, BASE = "oracle", "base"
"""Names of the streams of the reference, and of the reference in the target's precision."""


@dataclass
class Local:
    """What a role loses at its nodes, on the oracle's input.

    Attributes:
        rel_l2: the largest; infinite where an output is not finite; NaN where nothing could be measured.
        ratio: the largest in units of the noise of the target's own precision.
        worst: node of the former.
        bytes: of the role's weights.
    """

    rel_l2: float = math.nan
    ratio: float = math.nan
    worst: str = ""
    bytes: int = 0


@dataclass
class Swept:
    """What one sweep found.

    Attributes:
        local: of each role in each precision.
        costs: of each role in each precision at the output; empty where these forwards were not made.
        base: cost of the target's own precision; None where it cannot run, or there are no logits.
        information: nats per position by which the oracle's output differs from an even one; NaN likewise.
        logits: [positions, vocabulary] of the oracle; None where the model has none.
    """

    local: dict[Single, Local]
    costs: dict[Single, Cost] = field(default_factory=dict)
    base: Cost | None = None
    information: float = math.nan
    logits: Tensor | None = None


class SweepStep:
    """All runs of one call of a node.

    Args:
        node: of the skeleton.
        roles: of its weights.
        streams: by name: the oracle's, that of the target's precision, and those of roles in precisions.
        swept: takes what is found.
        dtype: of the target.
    """

    def __init__(
        self,
        node: Node,
        roles: frozenset[str],
        streams: Mapping[str, Stream],
        swept: Swept,
        dtype: torch.dtype,
    ) -> None:
        self._node, self._streams, self._swept, self._dtype = node, streams, swept, dtype
        self._singles = [single for single in swept.local if single[0] in roles]
        self._reference: list[Tensor] = []
        self._noise: list[Distance] | None = None

    def run(self, lowered: LoweredNode) -> None:
        """Runs them; the oracle comes first and then the target's precision, as others are held to these."""
        oracle = self._streams[ORACLE].call
        assert oracle is not None, "there is a call to answer"
        for name, stream in self._streams.items():
            if stream.call is not None and stream.call.node != oracle.node:
                raise SkeletonError(f"the forward of {name} calls {stream.call.node} for {oracle.node}")
        jobs = [Job({}, oracle.call, self._take_oracle), *self._base_jobs(oracle.call)]
        for single in self._singles:
            jobs += self._single_jobs(single, oracle.call)
        for stream in self._others():
            if stream.call is not None and not same_call(stream.call.call, oracle.call):
                jobs.append(Job({}, stream.call.call, stream.reply))
        lowered.run(jobs)

    def _others(self) -> list[Stream]:
        """Streams in which nothing of this node is lowered, that of the oracle apart."""
        own = {ORACLE, BASE, *(stream_name(single) for single in self._singles)}
        return [stream for name, stream in self._streams.items() if name not in own]

    def _take_oracle(self, output: Call) -> None:
        self._reference = float_tensors(output)
        oracle = self._streams[ORACLE]
        assert oracle.call is not None, "it waits for this output"
        exact = oracle.call.call
        oracle.reply(output)
        for name, stream in self._streams.items():
            if oracle.call is None and name != ORACLE:
                stream.against = oracle.logits
        for stream in self._others():
            if stream.call is not None and same_call(stream.call.call, exact):
                stream.reply(output)

    def _base_jobs(self, exact: Call) -> list[Job]:
        base = self._streams[BASE]
        if base.call is None:
            return []
        local = cast_like(exact, base.call.call)
        shared = same_call(local, base.call.call)

        def measured(output: Call) -> None:
            self._noise = distances(float_tensors(output), self._reference, self._dtype)
            if shared:
                base.reply(output)

        def failed(error: Day0Error) -> None:
            base.end()

        jobs = [Job({}, local, measured, failed, base=True)]
        return jobs if shared else [*jobs, Job({}, base.call.call, base.reply, failed, base=True)]

    def _single_jobs(self, single: Single, exact: Call) -> list[Job]:
        choice = dict([single])
        stream = self._streams.get(stream_name(single))
        call = stream.call if stream is not None else None
        shared = call is not None and same_call(call.call, exact)

        def measured(output: Call) -> None:
            self._measure(single, output)
            if stream is not None and shared:
                stream.reply(output)

        jobs = [Job(choice, exact, measured)]
        if stream is not None and call is not None and not shared:
            jobs.append(Job(choice, call.call, stream.reply))
        return jobs

    def _measure(self, single: Single, output: Call) -> None:
        local, dtype = self._swept.local[single], self._dtype
        found = distances(float_tensors(output), self._reference, dtype)
        for index, distance in enumerate(found):
            error = math.inf if distance.nonfinite else distance.rel_l2
            if not error <= local.rel_l2 and not math.isnan(error):
                local.rel_l2, local.worst = error, self._node.name
            if self._noise is None:
                continue
            in_noise = panel(distance, self._noise[index], eps=torch.finfo(dtype).eps)
            ratio = math.inf if distance.nonfinite else in_noise.ratio
            if not ratio <= local.ratio and not math.isnan(ratio):
                local.ratio = ratio


def stream_name(single: Single) -> str:
    """Names the stream of a role in a precision."""
    return f"{single[0]} in {single[1]}"

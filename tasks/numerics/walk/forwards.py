"""The model's own forward on every stream of every pass, all of them at the same node at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from day0.adapters.base.errors import Day0Error, SkeletonError
from day0.adapters.base.target import Call
from day0.adapters.models.cache_lengths import cache_of_length
from day0.adapters.models.casting import cast_like
from day0.adapters.models.walk import Glue, NodeCall, Walk

from ..prompts.passes import Pass
from .case import Case

REFERENCE, NOISE, OWN = "reference", "noise", "own"


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call of a node on each stream.

    Attributes:
        reference: on the reference's.
        noise: on the noise arm's, in the target's precision; None where only the reference runs.
        own: on the target's own; None once it has ended.
    """

    reference: Call
    noise: Call | None
    own: Call | None

    @property
    def lowered(self) -> Call:
        """The reference's arguments with the dtypes and masks that the target's precision has there."""
        return cast_like(self.reference, self.noise) if self.noise is not None else self.reference


class Forward:
    """One pass on its three streams.

    Args:
        case: whose model runs.
        step: the pass.
        glues: precision -> glue of the walks.
        stack: closes the walks.
        own: whether the target has a stream of its own.

    Attributes:
        step: the pass.
        outputs: stream -> what the function that `skeleton.entry` names returned on it, once it has ended;
            empty for a forward on tokens, whose output is that of its last node.
    """

    def __init__(
        self, case: Case, step: Pass, glues: Mapping[str, Glue], stack: ExitStack, *, own: bool
    ) -> None:
        self.step = step
        self.outputs: dict[str, Any] = {}
        self._apart = bool(case.skeleton.entry)
        dtypes = {REFERENCE: case.reference_dtype}
        if not step.alone:
            dtypes |= {NOISE: case.dtype} | ({OWN: case.dtype} if own else {})
        self._walks = {
            stream: stack.enter_context(
                Walk(
                    case.skeleton,
                    step.ids,
                    dtype,
                    glue=glues[dtype],
                    cache=_cache(glues[dtype], step),
                    mask=step.mask,
                    positions=step.positions if glues[dtype].takes("position_ids") else None,
                    given=step.given,
                )
            )
            for stream, dtype in dtypes.items()
        }
        self._calls: dict[str, NodeCall] = {}

    def next(self) -> tuple[str, Inputs] | None:
        """The next node and its arguments; None at the end.

        Raises:
            SkeletonError: the reference's or the noise arm's forward between nodes failed.
        """
        self._calls = {}
        for stream, walk in list(self._walks.items()):
            try:
                call = next(walk, None)
            except SkeletonError:
                if stream != OWN:
                    raise
                call = None
            if call is None and self._apart and walk.output is not None:
                self.outputs[stream] = walk.output
            if call is not None:
                self._calls[stream] = call
            elif stream == OWN:
                self.end_own()
        if REFERENCE not in self._calls or (NOISE in self._walks and NOISE not in self._calls):
            return None
        own = self._calls.get(OWN)
        names = {call.node for call in self._calls.values()}
        if own is not None and len(names) > 1:
            self.end_own()
            own = None
        first, noise = self._calls[REFERENCE], self._calls.get(NOISE)
        return first.node, Inputs(
            first.call, noise.call if noise else None, own.call if own is not None else None
        )

    def reply(self, stream: str, output: Call | None) -> None:
        """Lets a stream go on with a node's output; the target's own ends where there is none."""
        if stream in self._calls and output is not None:
            self._calls[stream].reply(output)
        elif stream == OWN:
            self.end_own()

    def end_own(self) -> None:
        """Ends the target's own stream; the others go on."""
        self._calls.pop(OWN, None)
        walk = self._walks.pop(OWN, None)
        if walk is not None:
            walk.close()

    @property
    def has_own(self) -> bool:
        """Whether the target's own stream still goes on."""
        return OWN in self._walks

    def close(self) -> None:
        """Ends all streams."""
        for walk in self._walks.values():
            walk.close()
        self._walks = {}


class Forwards:
    """All passes in lockstep.

    Args:
        case: whose model runs, on its passes.
        glues: precision -> glue.
        stack: closes the walks.
        own: whether the target has streams of its own.

    Attributes:
        dropped: pass -> why it does not go on.
    """

    def __init__(self, case: Case, glues: Mapping[str, Glue], stack: ExitStack, *, own: bool = True) -> None:
        self.dropped: dict[str, str] = {}
        self.forwards: dict[str, Forward] = {}
        for step in case.passes:
            try:
                self.forwards[step.name] = Forward(case, step, glues, stack, own=own)
            except SkeletonError as error:
                self._drop(step, error)

    def next(self) -> tuple[str, Mapping[str, Inputs]] | None:
        """The next node and its arguments in each pass that goes on; None at the end of the main pass.

        Raises:
            SkeletonError: the main pass fails between nodes.
        """
        found: dict[str, tuple[str, Inputs]] = {}
        for name, forward in list(self.forwards.items()):
            try:
                step = forward.next()
            except SkeletonError as error:
                self._drop(forward.step, error)
                continue
            if step is not None:
                found[name] = step
        if not found:
            return None
        node = next(iter(found.values()))[0]
        for name in [name for name, (other, _) in found.items() if other != node]:
            self.drop(name, f"its forward calls {found.pop(name)[0]} where the main one calls {node}")
        return node, {name: inputs for name, (_, inputs) in found.items()}

    def drop(self, name: str, reason: str) -> None:
        """Ends one pass; steps of decoding that build on it end with it."""
        forward = self.forwards.pop(name, None)
        if forward is not None:
            forward.close()
            self.dropped[name] = reason

    def _drop(self, step: Pass, error: Day0Error) -> None:
        if not self.forwards or step.name == next(iter(self.forwards)):
            raise error
        self.dropped[step.name] = error.message
        forward = self.forwards.pop(step.name, None)
        if forward is not None:
            forward.close()


def _cache(glue: Glue, step: Pass) -> Any:
    return cache_of_length(glue.model, len(step.ids), step.cached) if step.cached else None


def glues_of(case: Case, options: Mapping[str, str], loose: Mapping[str, Any]) -> Mapping[str, Glue]:
    """The glue of the walks in each precision that they need."""
    wanted: Sequence[str] = sorted({case.reference_dtype, case.dtype})
    return {dtype: Glue(case.skeleton, dtype, options, loose) for dtype in wanted}

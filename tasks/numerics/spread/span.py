"""A part of a comparison as it is handed to another process or kept in a file."""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.values import Value

from ..prompts.passes import Pass


class SpanPass(Value):
    """One forward on tokens, see `day0.tasks.numerics.prompts.passes.Pass`."""

    name: str
    ids: Sequence[Sequence[int]]
    mask: Sequence[Sequence[int]] | None = None
    positions: Sequence[Sequence[int]] | None = None
    cached: int = 0
    alone: bool = False

    @classmethod
    def of(cls, step: Pass) -> SpanPass:
        """The description of a pass."""
        return cls(**{name: getattr(step, name) for name in cls.model_fields})

    def as_pass(self) -> Pass:
        """The pass that it describes."""
        return Pass(**self.model_dump())


class SpanCall(Value):
    """One call of a node whose reference is in the store."""

    node: str
    passes: Sequence[str]
    reference: str
    local: str


class Span(Value):
    """What one worker is given.

    Attributes:
        model: as named.
        revision: pinned; empty for a folder.
        store: root of the run store.
        target: with the ways around that were chosen.
        timeout: seconds of one call.
        memory: bytes that this worker may take.
        command: argv of the target's Python; empty: this one.
        passes: every forward.
        calls: what it runs.
    """

    model: str
    revision: str
    store: str
    target: str
    timeout: float
    memory: int
    command: Sequence[str]
    passes: Sequence[SpanPass] = ()
    calls: Sequence[SpanCall] = ()

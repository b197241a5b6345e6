"""What the numerics stage is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.release import Release
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.target import Target
from day0.adapters.base.workaround import Chosen

from .. import thresholds
from ..job import NumericsOptions
from ..spreading import Spread
from .bundles.bundle import Bundle
from .spread.span import Span


@dataclass(frozen=True)
class Question:
    """One comparison, as a person or a flow asks for it.

    Attributes:
        release: whose weights count.
        skeleton: of it.
        store: for finished nodes.
        prompt: continued by both sides.
        salt: empty; or the run's id, where stored answers of the target do not count.
        progress: told of each node.
        chosen: ways around with which the target was opened.
        bundle: that stands for the reference; None: the reference itself runs.
        open_wide: opens the same target in fp32, for bugs that its own precision hides; None: it cannot.
        asked: what is done beyond the comparison itself.
        spread: how local comparisons are spread before the walk; None: they are not.
        span: what each of its workers is given, but for the calls; None likewise.
        tokens: of the main prompt.
        memory: bytes that this process and its workers may take together.
    """

    release: Release
    skeleton: Skeleton
    store: RunStore
    prompt: str
    salt: str = ""
    progress: Progress = silent
    chosen: Sequence[Chosen] = ()
    bundle: Bundle | None = None
    open_wide: Callable[[], AbstractContextManager[Target]] | None = None
    spread: Spread | None = None
    span: Span | None = None
    asked: NumericsOptions = field(default_factory=NumericsOptions)
    tokens: int = thresholds.NUMERICS_TOKENS
    memory: int = 8 * 2**30

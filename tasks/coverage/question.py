"""What the coverage stage is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from day0.adapters.base.operator_capture import Capture
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.target import TargetDescription
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.registries.registry import Registry

from .alternatives import CaptureAll
from .kind_rows import KindRows
from .knowledge import Keep, KeepKinds, OpenTarget, ReadRows
from .low_precision import Stored


@dataclass(frozen=True)
class Question:
    """What the stage is asked.

    Attributes:
        spec: the target as named.
        description: of the target.
        capture: of the model, as the target makes it.
        registry: what is known of `STACK@DEVICE`.
        config: config.json as parsed.
        config_digest: of it.
        open_target: opens the target, also with other options.
        capture_all: captures the model with other implementations; None: there are none to try.
        budget: seconds for trying operators.
        keep: receives new rows as they come.
        progress: told of each row tried.
        skeleton: builds the model's structure; None: no node can be run.
        scheme: of the stored weights, word of the design's vocabulary.
        group: their block size, an integer or [rows, columns].
        stored: patterns of the release's tensors.
        seconds: that the capture took.
        known_rows: what earlier runs have kept, by name; None: nothing.
        kind_rows: what is known of kinds of nodes.
        keep_kinds: receives what is learnt of them.
        memory: bytes that a worker of the target may take.
    """

    spec: TargetSpec
    description: TargetDescription
    capture: Capture
    registry: Registry
    config: Mapping[str, Any]
    config_digest: str
    open_target: OpenTarget
    capture_all: CaptureAll | None = None
    budget: float = 60.0
    keep: Keep | None = None
    progress: Progress = silent
    skeleton: Callable[[], Skeleton] | None = None
    scheme: str = "none"
    group: int | Sequence[int] = 0
    stored: Sequence[Stored] = ()
    seconds: float = 0.0
    known_rows: ReadRows | None = None
    kind_rows: KindRows = field(default_factory=lambda: KindRows(""))
    keep_kinds: KeepKinds | None = None
    memory: int = 8 * 2**30

    @property
    def runs_nodes(self) -> bool:
        """Whether the target claims to run nodes."""
        return "fragment" in self.description.capabilities

"""One node as the walk comes to it, for whatever looks at it beyond the plain comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Call
from day0.adapters.models.node_weights import ExpertStack

from .router import Kept


@dataclass(frozen=True)
class PassVisit:
    """One forward at one node.

    Attributes:
        name: of the pass.
        mode: `prefill` or `decode`.
        exact: the reference's inputs.
        lowered: the same in the target's dtypes and masks: what the target gets as its local input.
        reference: the reference's output.
        noise: the noise arm's output on `lowered`; None where it failed.
        local: the target's output on `lowered`; None where it gave none.
        rows: which tokens are no padding, [batch * length] bool; None: all.
        cached: whether the call reads a cache that an earlier pass filled.
    """

    name: str
    mode: str
    exact: Call
    lowered: Call
    reference: Call
    noise: Call | None
    local: Call | None
    rows: Tensor | None = None
    cached: bool = False


@dataclass(frozen=True)
class Visit:
    """One node with everything that was made of it.

    Attributes:
        node: of the skeleton.
        weights: parameter -> tensor as stored or dequantised; may be read anew at each access.
        expressions: the same as a target takes them.
        passes: the main one first.
        experts: some of the node's experts, compacted; None where it has none that are handed out. `weights`
            and `expressions` are then without them.
        routers: arm (`reference`, `noise_local`) and pass -> what that arm's router chose on the reference's
            input; empty where that is not known.
        routed: pass -> the experts that the target sent its tokens to on the reference's input, [tokens, k];
            empty where that is not known.
    """

    node: Node
    weights: Mapping[str, Tensor]
    expressions: Mapping[str, Any]
    passes: Sequence[PassVisit]
    experts: Callable[[Sequence[int]], ExpertStack] | None = None
    routed: Mapping[str, Tensor] = field(default_factory=dict)
    routers: Mapping[tuple[str, str], Kept] = field(default_factory=dict)

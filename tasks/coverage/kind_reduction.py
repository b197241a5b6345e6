"""Models of which one node is too large to be made up whole: fewer experts, a smaller vocabulary."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from day0.adapters.base.skeleton import Node

from .size_cases import changed, integers

Shapes = Mapping[str, tuple[Sequence[int], int]]
"""Parameter of a node -> its shape, and bytes of one element."""

_NO_COUNT = r"_per_|shared|top|group|active|size|dim|layer|freq|step|rank|capacity|zero|share"
_EXPERTS = rf"(?!.*({_NO_COUNT})).*experts?"
_GROUPS = r"n_groups?|num_expert_groups?"
_GROUPS_USED = r"topk_groups?|num_limited_groups"
_EACH_TOKEN = r"(num_)?experts_per_tok(en)?|(moe|router)_(\w+_)?top_?k|num_selected_experts"
_ONE_EXPERT = re.compile(r"(^|\.)experts\.\d+\.")
_TOKENS_STEP, _FEWEST_TOKENS = 64, 1024


@dataclass(frozen=True)
class Reduction:
    """A config whose nodes are smaller than the model's.

    Attributes:
        config: that is built.
        experts: `32 of 256 experts`, or empty.
        tokens: `65536 of 129280 tokens of the vocabulary`, or empty.
    """

    config: Mapping[str, Any]
    experts: str = ""
    tokens: str = ""

    def of(self, node: Node) -> str:
        """How a node differs from the model's; empty where it does not."""
        if node.role in ("embedding", "head"):
            return self.tokens
        return self.experts if node.feed_forward == "moe" else ""


def bytes_of(shapes: Shapes) -> int:
    """Of all parameters of a node."""
    return sum(math.prod(shape) * width for shape, width in shapes.values())


def reduced(config: Mapping[str, Any], nodes: Mapping[str, Shapes], limit: int) -> Reduction:
    """The config with as few experts and tokens as it takes for each node to stay within a limit.

    Experts are halved: what they are grouped by still divides them, and a token still finds as many as it
    takes. All other sizes stay, and so does what already fits.

    Args:
        config: of the model.
        nodes: node -> shapes of its parameters.
        limit: bytes of one node.
    """
    fewer, experts = _fewer_experts(config, nodes, limit)
    shorter, tokens = _fewer_tokens(config, nodes, limit)
    return Reduction(changed(config, {**fewer, **shorter}), experts, tokens)


def _fewer_experts(
    config: Mapping[str, Any], nodes: Mapping[str, Shapes], limit: int
) -> tuple[dict[str, int], str]:
    counts = integers(config, _EXPERTS)
    most = max(counts.values(), default=0)
    kept = most
    while _largest(nodes, lambda name, shape: _of_experts(name, shape, most), kept / max(1, most)) > limit:
        if kept % 2 or kept // 2 < _fewest_experts(config) or (kept // 2) % _groups(config):
            break
        kept //= 2
    if kept == most:
        return {}, ""
    return {path: kept for path, value in counts.items() if value == most}, f"{kept} of {most} experts"


def _fewer_tokens(
    config: Mapping[str, Any], nodes: Mapping[str, Shapes], limit: int
) -> tuple[dict[str, int], str]:
    counts = integers(config, "vocab_size")
    most = max(counts.values(), default=0)
    largest = _largest(nodes, lambda name, shape: most in shape, 1.0)
    if largest <= limit or not most:
        return {}, ""
    kept = max(_FEWEST_TOKENS, int(most * limit / largest) // _TOKENS_STEP * _TOKENS_STEP)
    known = {path: kept - 1 for path, value in integers(config, r"\w+_token_id").items() if value >= kept}
    return (
        {**{path: kept for path in counts}, **known},
        f"{kept} of {most} tokens of the vocabulary",
    )


def _largest(nodes: Mapping[str, Shapes], varies: Any, share: float) -> float:
    """Bytes of the largest of the nodes that hold anything that varies, a share of that left."""
    sizes = [0.0]
    for shapes in nodes.values():
        moved = {name: of for name, of in shapes.items() if varies(name, of[0])}
        if moved:
            sizes.append(bytes_of(shapes) - (1 - share) * bytes_of(moved))
    return max(sizes)


def _of_experts(name: str, shape: Sequence[int], count: int) -> bool:
    return bool(_ONE_EXPERT.search(name)) or (len(shape) > 1 and shape[0] == count)


def _groups(config: Mapping[str, Any]) -> int:
    return max(integers(config, _GROUPS).values(), default=1)


def _fewest_experts(config: Mapping[str, Any]) -> int:
    """As many as a token takes, in as many groups as it may take them from; two at least in each group."""
    groups = _groups(config)
    used = max(integers(config, _GROUPS_USED).values(), default=groups)
    each = max(integers(config, _EACH_TOKEN).values(), default=1)
    return max(2 * groups, -(-each * groups // used))

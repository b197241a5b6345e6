"""The keys under which finished nodes are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from day0.adapters.base.skeleton import Node
from day0.adapters.base.values import digest

from ...reference_arm import Arm
from ..measures.values import tensor_bytes
from ..prompts.passes import Pass
from .case import Case
from .units import chain, node_identity

UNIT_VERSION = 6
"""Raised whenever a unit may hold other values or facts for the same inputs."""


@dataclass(frozen=True)
class NodeKeys:
    """Of one call of a node.

    Attributes:
        reference: its outputs on the reference and the noise arm.
        local: what a target gives on the reference's input; depends on no other node's answer.
        own: everything known of the target there, its own stream included.
    """

    reference: str
    local: str
    own: str


class Keys:
    """Chained from node to node: one changed tensor changes all from its node on.

    Args:
        start: see `start_key`.
        case: what is compared.
    """

    def __init__(self, start: str, case: Case) -> None:
        self._case = case
        self._reference = start
        self._own = chain(start, case.target)

    def at(self, node: Node, passes: Sequence[str]) -> NodeKeys:
        """The keys of the next call, which is of that node and of those passes."""
        identity = digest([node_identity(node, self._case.checkpoint), list(passes)])
        self._reference = chain(self._reference, identity)
        self._own = chain(self._own, self._reference)
        return NodeKeys(self._reference, digest(["local", self._reference, self._case.target]), self._own)


def start_key(case: Case, arms: Sequence[Arm]) -> str:
    """The key before the first node: what all units depend on."""
    return digest(
        {
            "version": UNIT_VERSION,
            "builder": dict(case.skeleton.builder),
            "config": digest(dict(case.skeleton.config)),
            "passes": [[*_of(step), *_given(case, step)] for step in case.passes],
            "said": [case.tokens.prompt, case.tokens.said],
            "arms": [arm.identity for arm in arms],
        }
    )


def _of(step: Pass) -> list[Any]:
    return [step.name, step.ids, step.mask, step.positions, step.cached]


def _given(case: Case, step: Pass) -> list[Any]:
    """What a pass that is no sequence of tokens feeds, and to which function."""
    if step.given is None:
        return []
    bits = {
        name: [str(tensor.dtype), list(tensor.shape), hashlib.sha256(tensor_bytes(tensor)).hexdigest()]
        for name, tensor in step.given.items()
    }
    return [case.skeleton.entry, bits]

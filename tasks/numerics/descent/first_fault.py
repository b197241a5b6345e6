"""The first node that is wrong by itself is followed down to the operator that makes it so."""

from __future__ import annotations

from day0.adapters.base.target import Target
from day0_worker.dtypes import torch_dtype

from ..prompts.passes import MAIN
from ..record import FirstFault
from ..walk.case import Case
from ..walk.node import NodeFacts
from ..walk.node_run import Sides
from ..walk.visit import Visit
from .descent import descend
from .fragments import Arms
from .operator_search import Searched

MOST = 3
"""Nodes that are followed; later faults of a model are mostly those of the same kind, or what follows."""


class FirstFaults:
    """Follows the first few nodes at fault, one of each kind; see `day0.tasks.numerics.walk.node_work.Watch`.

    Args:
        target: that is compared.
        case: what it is compared on.
    """

    def __init__(self, target: Target, case: Case) -> None:
        self._target, self._case = target, case
        self._kinds: set[str] = set()

    def __call__(self, visit: Visit, facts: NodeFacts, sides: Sides) -> NodeFacts:
        """Adds fragment, operator and script to the fault of a node that has one."""
        fault = facts.fault
        if fault is None or visit.node.kind in self._kinds or len(self._kinds) >= MOST:
            return facts
        if sides.reference is None or sides.noise is None or sides.target is None:
            return facts
        self._kinds.add(visit.node.kind)
        arms = Arms(sides.reference, sides.noise, torch_dtype(self._case.dtype))
        searched = Searched(arms, sides.target, self._target, self._case.skeleton)
        on = "" if MAIN in facts.beyond else next(iter(facts.beyond), "")
        found = descend(visit, searched, on)
        followed = FirstFault(
            **{
                **fault.model_dump(),
                "fragment": found.fragment,
                "op": found.op,
                "detail": found.detail,
                "repro": found.repro,
            }
        )
        return facts.model_copy(update={"fault": followed})

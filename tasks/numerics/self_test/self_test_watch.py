"""The gate tests itself along the walk: bugs at one node of each kind."""

from __future__ import annotations

from collections.abc import Callable

from day0.adapters.base.target import Target

from ...reference_arm import Arm
from ...target_nodes import TargetNodes
from ..walk.case import Case
from ..walk.memory import chunk_of
from ..walk.node import NodeFacts
from ..walk.node_run import Sides
from ..walk.visit import Visit
from .bug_runs import BugArm
from .self_test import Bench, Wide, nodes_to_try, try_bugs

OpenWide = Callable[[], Target | None]
"""Opens the target in fp32; None where it cannot be."""


class SelfTestWatch:
    """Tries every bug at the last node of each kind; see `day0.tasks.numerics.walk.node_work.Watch`.

    Args:
        case: what is compared.
        open_wide: see above; called at most once, by the first bug that the target's precision hides.
    """

    def __init__(self, case: Case, open_wide: OpenWide) -> None:
        self._case, self._open_wide = case, open_wide
        self._places = nodes_to_try(case.skeleton)
        self._exact: BugArm | None = None
        self._wide: Wide | None = None
        self._asked = case.dtype in ("fp32", "fp64")

    def __call__(self, visit: Visit, facts: NodeFacts, sides: Sides) -> NodeFacts:
        """Adds what became of each bug to the facts of a node that was chosen for it."""
        if visit.node.name not in self._places or sides.target is None or facts.fault is not None:
            return facts
        results = try_bugs(visit, self._bench(sides.target, visit), self._places[visit.node.name])
        return facts.model_copy(update={"bugs": tuple(results)})

    def _bench(self, nodes: TargetNodes, visit: Visit) -> Bench:
        case = self._case
        if self._exact is None:
            self._exact = BugArm(case.skeleton, "fp64", case.options)
        chunk = chunk_of(case.memory, _expert_bytes(visit)) if visit.node.experts else 1
        return Bench(
            self._exact, nodes, case.dtype, self._opened(), max(1, chunk // 2), precision=case.precision
        )

    def _opened(self) -> Wide | None:
        if not self._asked:
            self._asked = True
            target = self._open_wide()
            if target is not None:
                case = self._case
                nodes = TargetNodes(target, case.skeleton, "fp32")
                self._wide = Wide(nodes, Arm(case.skeleton, "fp32", case.options))
        return self._wide


def _expert_bytes(visit: Visit) -> int:
    """One expert in fp32."""
    total = 0
    for name, recipe in visit.node.weights.items():
        if name.startswith(f"{visit.node.experts}.") and recipe.shape:
            elements = 1
            for dim in recipe.shape[1:]:
                elements *= dim
            total += 4 * elements
    return total

"""What `again_script` runs: the walk up to the node at fault, and whether it is at fault again."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target import Target
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.skeleton import build_skeleton
from day0.adapters.targets.open import open_target

from ..job import NumericsOptions
from ..target_nodes import TargetNodes
from .descent.first_fault import FirstFaults
from .precision.fake_noise import carried
from .question import Question
from .sequences import sequences_of
from .walk.case import Case
from .walk.lockstep import compare_model
from .walk.node import NodeFacts
from .walk.node_run import Sides
from .walk.visit import Visit


def compare_again(
    *,
    model: str,
    revision: str,
    target: str,
    block: str,
    prompt: str,
    prompts: str,
    tokens: int,
    command: Sequence[str] = (),
) -> int:
    """Compares every node up to that one and says what came of it.

    Args:
        model: hub id or folder.
        revision: commit; empty for a folder.
        target: as on the command line.
        block: name of the node.
        prompt: that is continued.
        prompts: which shipped prompts run.
        tokens: of the main prompt.
        command: argv that ends in the Python in which the stack runs; empty: this one.

    Returns:
        1 where the node is at fault, 0 where it is not, 2 where release or target cannot be used.
    """
    asked = NumericsOptions(prompts=prompts)
    try:
        release = open_release(model, revision or None)
        skeleton = build_skeleton(release)
        with (
            tempfile.TemporaryDirectory(prefix="day0-again-") as folder,
            open_target(TargetSpec.parse(target), command=tuple(command)) as opened,
        ):
            opened.describe()  # one that does not start is no fault of a node
            question = Question(release, skeleton, RunStore(folder), prompt, asked=asked, tokens=tokens)
            facts = _looked_at(question, opened, block)
    except Day0Error as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{_said(block, facts)}\n")
    return int(facts is not None)


class _AtFault(Exception):
    """The node that was looked for is at fault."""

    def __init__(self, facts: NodeFacts) -> None:
        super().__init__(facts.block.name)
        self.facts = facts


def _looked_at(question: Question, target: Target, block: str) -> NodeFacts | None:
    """What was found out about the node where it is at fault; the nodes after it are not compared."""
    skeleton = question.skeleton
    carriage = carried(target.spec.dtype or skeleton.dtype, skeleton.dtype, question.release.config)
    if carriage is None:
        return None
    case = Case(
        skeleton=skeleton,
        checkpoint=question.release.checkpoint,
        dtype=carriage.dtype,
        store=question.store,
        target="again",
        options=target.spec.options,
        fake=carriage.fake,
    )
    case = sequences_of(case, question).case

    def stop(visit: Visit, facts: NodeFacts, sides: Sides) -> NodeFacts:
        if facts.block.name == block and facts.block.verdict == "fail":
            raise _AtFault(facts)
        return facts

    nodes = TargetNodes(target, skeleton, carriage.dtype)
    try:
        compare_model(case, nodes, (FirstFaults(target, case), stop))
    except _AtFault as found:
        return found.facts
    return None


def _said(block: str, facts: NodeFacts | None) -> str:
    if facts is None:
        return f"{block} is not at fault"
    found = facts.fault
    detail = f"\n{found.detail}" if found is not None and found.detail else ""
    return f"{block}: {facts.block.reason or 'at fault'}{detail}"

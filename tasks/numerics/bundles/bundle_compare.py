"""A target held against a bundle: the reference does not run, and its code need not be there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from day0.adapters.base.errors import CheckpointError, Day0Error, SourceError
from day0.adapters.base.release import Release
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Call
from day0.adapters.base.values import digest
from day0.adapters.models.casting import cast_like
from day0.adapters.models.node_weights import WeightReader
from day0_worker.dtypes import torch_dtype

from ...target_nodes import TargetNodes
from ..measures.signatures import Signature, keep_signature
from ..prompts.passes import Pass
from ..walk.case import Case
from ..walk.forwards import Inputs
from ..walk.lockstep import NO_TEXT, Comparison
from ..walk.memory import chunk_of, prefetch_bytes
from ..walk.node import CHANGED, NodeFacts, not_compared
from ..walk.node_run import NodeRun, Sides
from ..walk.node_work import NodeWork
from ..walk.opened import Opened
from ..walk.unit_keys import NodeKeys
from ..walk.units import Unit, chain, load_unit, node_identity
from .bundle import Bundle, BundleCall
from .bundle_contents import changed_tensors

WHY_CHANGED = "its weights changed since the bundle was captured"


def compare_with_bundle(case: Case, bundle: Bundle, release: Release, target: TargetNodes) -> Comparison:
    """Compares every call that the bundle holds, in order.

    Args:
        case: with the bundle's skeleton, tokens and passes.
        bundle: opened; it is of this release (`refuse_other_release`).
        release: whose weights the target gets.
        target: that is compared.
    """
    run = _Run(case, bundle, release, target)
    found: list[NodeFacts] = []
    stopped: Day0Error | None = None
    total = len(bundle.head.calls)
    try:
        for facts in run.steps():
            found.append(facts)
            case.progress(case.step, len(found), total, facts.block.name)
    except (CheckpointError, SourceError) as error:
        stopped = error
    finally:
        run.reader.close()
    seen = {facts.block.name for facts in found}
    rest = [
        not_compared(node, f"not reached: {stopped.message}" if stopped and node.called else NO_TEXT)
        for node in case.skeleton.nodes
        if node.name not in seen and (node.weights or node.called)
    ]
    return Comparison(
        [*found, *rest], stopped, run.reused, 0.0, {}, run.reader.bytes_read, signatures=run.signatures
    )


class _Run:
    def __init__(self, case: Case, bundle: Bundle, release: Release, target: TargetNodes) -> None:
        self._case, self._bundle, self._release, self._target = case, bundle, release, target
        self.reader = WeightReader(case.checkpoint, budget=prefetch_bytes(case.memory))
        self.reused = 0
        self.signatures: dict[str, Signature] = {}
        self._passes = {step.name: step.as_pass() for step in bundle.head.passes}
        self._own: dict[tuple[int, str], Call] = {}
        self._reference: dict[tuple[int, str], Call] = {}
        self._ended: set[str] = set()
        self._last_use = {
            source: number
            for number, call in enumerate(bundle.head.calls)
            for links in call.links.values()
            for source, _ in links.values()
        }
        head = bundle.head
        self._key = digest(
            {"bundle": head.contents, "passes": [step.model_dump() for step in head.passes],
             "target": case.target,
             "reference": [head.reference, head.dtype, *([head.noise] if head.noise else [])]}
        )  # fmt: skip

    def steps(self) -> Iterator[NodeFacts]:
        for number, call in enumerate(self._bundle.head.calls):
            node = self._case.skeleton.node(call.node)
            self._key = chain(self._key, node_identity(node, self._case.checkpoint))
            yield self._step(number, call, node)

    def _step(self, number: int, call: BundleCall, node: Node) -> NodeFacts:
        changed, unknown = changed_tensors(self._release, node, self._bundle.head.contents)
        if changed:
            self._ended.update(call.passes)
            named = ", ".join(changed[:3])
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            facts = not_compared(node, f"{WHY_CHANGED}: {named}{more}")
            return facts.model_copy(update={"outcome": CHANGED})
        keys = NodeKeys("", "", digest([self._key, sorted(self._ended), list(unknown)]))
        known = load_unit(self._case.store, keys.own)
        unit = self._bundle.unit(number)
        steps = [self._passes[name] for name in call.passes]
        inputs = {step.name: self._inputs(call, step, unit) for step in steps}
        work = NodeWork(self._case, node, inputs, steps, keys, unit, keep=True)
        if known is not None:
            self.reused += 1
            facts, own = NodeFacts.model_validate(known.facts["node"]), known.values
        else:
            facts, own = self._run(node, work), work.own_outputs
        keep_signature(self.signatures, node.name, own)
        self._go_on(number, call, own, unit)
        return facts

    def _run(self, node: Node, work: NodeWork) -> NodeFacts:
        kinds = self._bundle.head.dtypes.get(node.kind, {})
        dtypes = {name: torch_dtype(kinds.get(name, self._case.dtype)) for name in node.weights}
        with Opened(self.reader, node, dtypes, self._target, None) as (weights, whole):
            chunk = chunk_of(self._case.memory, weights.expert_bytes) if node.experts else 0
            run = NodeRun(node, Sides(None, None, self._target), weights, whole, chunk)
            facts = work.run(run, weights, (), known=None)
        assert facts is not None, "a target that is asked is judged"
        return facts

    def _inputs(self, call: BundleCall, step: Pass, unit: Unit) -> Inputs:
        lowered = unit.values[f"lowered/{step.name}"]
        exact = self._linked(call, step, lowered, self._reference)
        return Inputs(exact or lowered, lowered, self._own_inputs(call, step, lowered))

    def _own_inputs(self, call: BundleCall, step: Pass, lowered: Call) -> Call | None:
        """The call's inputs with what other nodes gave replaced by what the target's own gave."""
        if step.name in self._ended or step.name in call.open:
            self._ended.add(step.name)
            return None
        own = self._linked(call, step, lowered, self._own)
        if own is None:
            self._ended.add(step.name)
            return None
        return cast_like(own, lowered)

    def _linked(
        self, call: BundleCall, step: Pass, lowered: Call, outputs: Mapping[tuple[int, str], Call]
    ) -> Call | None:
        """The call's inputs made of these outputs of earlier calls; None where one is not there."""
        tensors = dict(lowered.tensors)
        for name, (number, other) in call.links.get(step.name, {}).items():
            output = outputs.get((number, step.name))
            if output is None or other not in output.tensors:
                return None
            tensors[name] = output.tensors[other]
        return Call(lowered.tree, tensors)

    def _go_on(self, number: int, call: BundleCall, own: Mapping[str, Call], unit: Unit) -> None:
        for name in call.passes:
            self._reference[(number, name)] = unit.values[f"reference/{name}"]
            output = own.get(f"own/{name}")
            if output is not None:
                self._own[(number, name)] = output
            elif name not in self._ended:
                self._ended.add(name)
        for outputs in (self._own, self._reference):
            for key in [key for key in outputs if self._last_use.get(key[0], -1) <= number]:
                del outputs[key]

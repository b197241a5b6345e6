"""Some nodes of a model on the target, on the reference's input alone, wherever the store can be seen.

Given the reference's outputs in the run store, what a target makes of one node depends on no other node:
spans of nodes are mapped over threads, processes or a cluster. Each opens the release and the target for
itself and leaves what the target gave in the store, where the walk finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target_spec import TargetSpec

from ...reference_arm import Arm
from ...spreading import Spread, pieces, spread
from ...target_nodes import TargetNodes
from ..precision.fake_noise import carried
from ..prompts.passes import Pass
from ..walk.case import Case
from ..walk.forwards import Inputs
from ..walk.lockstep import compare_model
from ..walk.memory import chunk_of
from ..walk.node_run import NodeRun, Sides
from ..walk.node_work import NodeWork
from ..walk.opened import Opened
from ..walk.unit_keys import NodeKeys
from ..walk.units import load_unit
from .span import Span, SpanCall, SpanPass


def spread_locally(case: Case, how: Spread, span: Span) -> int:
    """Walks the reference alone, then maps all calls that are not in the store yet; returns how many.

    Args:
        case: with its passes.
        how: the calls are spread.
        span: everything but the calls.
    """
    calls: list[SpanCall] = []

    def note(_: object, work: NodeWork) -> None:
        if work.keep and load_unit(case.store, work.keys.local) is None:
            names = [step.name for step in work.steps if not step.alone]
            calls.append(
                SpanCall(
                    node=work.node.name, passes=names, reference=work.keys.reference, local=work.keys.local
                )
            )

    compare_model(replace(case, step="reference"), None, record=note)
    passes = [SpanPass.of(step) for step in case.passes]
    spans = [
        span.model_copy(update={"calls": part, "passes": passes, "memory": span.memory // how.count})
        for part in pieces(calls, how.count)
    ]
    return sum(spread(run_span, spans, how))


def run_span(span: Span) -> int:
    """Runs a span's calls and keeps what the target gave; returns how many it ran.

    Raises:
        Day0Error: release or target cannot be opened.
    """
    from day0.adapters.checkpoints.release import open_release
    from day0.adapters.models.node_weights import WeightReader
    from day0.adapters.models.skeleton_store import load_or_build_skeleton
    from day0.adapters.targets.open import open_target

    store = RunStore(span.store)
    release = open_release(span.model, span.revision or None)
    skeleton = load_or_build_skeleton(release, store)
    spec = TargetSpec.parse(span.target)
    carriage = carried(spec.dtype or skeleton.dtype, skeleton.dtype, release.config)
    assert carriage is not None, "a precision without one is refused before anything is spread"
    dtype = carriage.dtype
    with open_target(
        spec, timeout=span.timeout, memory_limit=span.memory, command=tuple(span.command)
    ) as target:
        case = Case(
            skeleton=skeleton,
            checkpoint=release.checkpoint,
            dtype=dtype,
            store=store,
            target="",
            options=spec.options,
            memory=span.memory,
        )
        nodes, noise = TargetNodes(target, skeleton, dtype), Arm(skeleton, dtype, spec.options)
        reader = WeightReader(release.checkpoint)
        passes = {step.name: step.as_pass() for step in span.passes}
        try:
            for call in span.calls:
                node = skeleton.node(call.node)
                work = _work(case, node, call, passes)
                if work is None:
                    continue
                with Opened(reader, node, noise.dtypes(node), nodes, None) as (weights, whole):
                    chunk = chunk_of(span.memory, weights.expert_bytes) if node.experts else 0
                    run = NodeRun(node, Sides(None, None, nodes), weights, whole, chunk)
                    work.keep_local(run.run(list(work.local_asks()), work.replays))
                nodes.forget_all()
        finally:
            reader.close()
    return len(span.calls)


def _work(case: Case, node: Node, call: SpanCall, passes: Mapping[str, Pass]) -> NodeWork | None:
    unit = load_unit(case.store, call.reference)
    if unit is None:  # removed meanwhile; the walk runs the node itself
        return None
    inputs = {
        name: Inputs(unit.values[f"lowered/{name}"], unit.values[f"lowered/{name}"], None)
        for name in call.passes
        if f"lowered/{name}" in unit.values
    }
    steps = [passes[name] for name in inputs]
    keys = NodeKeys(call.reference, call.local, "")
    return NodeWork(case, node, inputs, steps, keys, unit, keep=True)

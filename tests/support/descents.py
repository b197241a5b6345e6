"""Visits of a tiny model's nodes as the walk over a model makes them, and who is asked about them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from day0.adapters.base.errors import WorkerError
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Call, Target
from day0.adapters.models.casting import cast_like
from day0.adapters.models.node_weights import WeightReader
from day0.adapters.models.walk import Walk
from day0.adapters.models.weights import resolve_weights
from day0.tasks.numerics.descent.fragments import Arms
from day0.tasks.numerics.descent.operator_search import Searched
from day0.tasks.numerics.walk.visit import PassVisit, Visit
from day0.tasks.reference_arm import Arm, read_weights
from day0.tasks.target_nodes import TargetNodes
from day0_worker.dtypes import torch_dtype
from support.tiny_releases import TinyRelease

_WIDER = {"bf16": "fp32", "fp16": "fp32", "fp32": "fp64"}
_LENGTH = 48


def searched(model: TinyRelease, target: Target, **more: Any) -> Searched:
    """Arms and nodes for a model on a target."""
    spec = target.spec
    dtype = spec.dtype or "bf16"
    noise = Arm(model.skeleton, dtype, spec.options)
    arms = Arms(Arm(model.skeleton, _WIDER[dtype], spec.options), noise, torch_dtype(dtype))
    return Searched(arms, TargetNodes(target, model.skeleton, dtype), target, model.skeleton, **more)


def visit_of(
    model: TinyRelease, who: Searched, name: str, *, steps: int = 0, handed_out: bool = False
) -> Visit:
    """The visit of one node: a prefill, and steps of decoding after it where these are asked for.

    With `handed_out` its experts are not among the weights, as in a walk over a model larger than memory.
    """
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(3, 60, (_LENGTH + steps,), generator=generator).tolist()
    parts = [tokens[:_LENGTH], *([token] for token in tokens[_LENGTH:])]
    weights: dict[str, Any] = {}
    found: list[PassVisit] = []
    for place, ids in enumerate(parts):
        step = "texts" if not place else f"decode.{place - 1}"
        found.append(_pass(model, who, name, ids, step, weights, cached=bool(place), keep=steps > 0))
    node = model.skeleton.node(name)
    for arm in (who.arms.reference, who.arms.noise):
        arm.forget_all()
    who.nodes.forget_all()
    expressions = resolve_weights(node, model.release.checkpoint)
    if not handed_out:
        plain = node.model_copy(update={"experts": ""})
        return Visit(plain, read_weights(node, expressions), expressions, found)
    reader = WeightReader(model.release.checkpoint)
    own = reader.open(node, who.arms.noise.dtypes(node), without_experts=True)
    return Visit(node, own.exact(), own.sent(), found, own.experts)


def _pass(
    model: TinyRelease,
    who: Searched,
    name: str,
    ids: Sequence[int],
    step: str,
    weights: dict[str, Any],
    *,
    cached: bool,
    keep: bool,
) -> PassVisit:
    arms = who.arms
    states = ("reference", "noise", "local") if keep else (None, None, None)
    found: list[PassVisit] = []
    for first, second in _calls(model, arms, ids, cached):
        node = model.skeleton.node(first.node)
        expressions = resolve_weights(node, model.release.checkpoint)
        read = weights.setdefault(node.name, read_weights(node, expressions))
        lowered = cast_like(first.call, second.call)
        exact = arms.reference.run(node, read, first.call, state=states[0])
        other = arms.noise.run(node, read, second.call, state=states[1])
        if node.name == name:
            mode = "decode" if cached else "prefill"
            noise = arms.noise.run(node, read, lowered, state="noise_local" if keep else None)
            local = _local(who.nodes, node, expressions, lowered, mode, states[2])
            found.append(PassVisit(step, mode, first.call, lowered, exact, noise, local, cached=cached))
        first.reply(exact)
        second.reply(other)
    return found[0]


def _calls(model: TinyRelease, arms: Arms, ids: Sequence[int], cached: bool) -> Iterator[Any]:
    caches: Mapping[str, Any] = {
        arm.dtype: copy.deepcopy(arm.modules.cache(state)) if cached else None
        for arm, state in ((arms.reference, "reference"), (arms.noise, "noise"))
    }
    walks = [
        Walk(model.skeleton, [list(ids)], arm.dtype, options=arm.options, cache=caches[arm.dtype])
        for arm in (arms.reference, arms.noise)
    ]
    try:
        yield from zip(*walks, strict=True)
    finally:
        for walk in walks:
            walk.close()


def _local(
    nodes: TargetNodes, node: Node, expressions: Any, call: Call, mode: str, state: str | None
) -> Call | None:
    try:
        return nodes.run(node, expressions, call, mode=mode, state=state).outputs
    except WorkerError:
        return None

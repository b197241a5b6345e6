"""Visits of the nodes of a tiny model: walks in lockstep over the prompts that bugs need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Call, Paused
from day0.adapters.models.cache_lengths import cache_of_length
from day0.adapters.models.casting import cast_like
from day0.adapters.models.walk import Glue, Walk
from day0.adapters.models.weights import resolve_weights
from day0.tasks.numerics.prompts.passes import MAIN, Pass
from day0.tasks.numerics.walk.expert_runs import Waiting, Which, through_experts
from day0.tasks.numerics.walk.router import Kept
from day0.tasks.numerics.walk.routing import Choice, TopK
from day0.tasks.numerics.walk.visit import PassVisit, Visit
from day0.tasks.reference_arm import Arm, loose_weights, read_weights, reference_options
from support.tiny_releases import TinyRelease

REFERENCE = {"bf16": "fp32", "fp16": "fp32", "fp32": "fp64"}


@dataclass(frozen=True)
class Experts:
    """Some experts of a node whose parameters are all in memory."""

    ids: Sequence[int]
    exact: Mapping[str, Tensor]
    lowered: Mapping[str, Tensor]

    @property
    def sent(self) -> Mapping[str, Any]:
        return {name: {"value": tensor} for name, tensor in self.lowered.items()}


def prompts(vocabulary: int, *, length: int = 96, window: int = 0, longest: int = 0) -> list[Pass]:
    """The main prompt, eight steps of decoding, a padded batch, one beyond the window, shifted positions."""
    draw = torch.Generator().manual_seed(20260923)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(3, vocabulary, (count,), generator=draw).tolist())

    main = ids(length)
    passes = [Pass(MAIN, (main,))]
    passes += [Pass(f"decode.{step}", (ids(1),), cached=length + step) for step in range(8)]
    short = 24
    rows, mask, positions = [], [], []
    for before in (12, 0, 6):
        after = 12 - before
        rows.append((*[0] * before, *ids(short), *[0] * after))
        mask.append((*[0] * before, *[1] * short, *[0] * after))
        positions.append((*[0] * before, *range(short), *[short - 1] * after))
    passes.append(Pass("padded", tuple(rows), tuple(mask), tuple(positions)))
    if window:
        passes.append(Pass("window", (ids(window + 64),)))
    if longest >= 4 * short:
        starts = (longest // 4, longest // 2, longest - short)
        shifted = tuple(tuple(range(start, start + short)) for start in starts)
        passes.append(Pass("shifted", (main[:short],) * 3, positions=shifted))
    return passes


def visits(
    tiny: TinyRelease,
    dtype: str,
    passes: Sequence[Pass],
    options: Mapping[str, str] | None = None,
    arms: Mapping[str, str] | None = None,
) -> Iterator[Visit]:
    """Each node in order, with the outputs of reference and noise arm; the target's own are left out.

    Args:
        tiny: the model.
        dtype: of the target.
        passes: the main one first.
        options: of the target, on which the masks depend.
        arms: options of reference and noise arm; None: those of the target.
    """
    skeleton = tiny.skeleton
    ours = {kind: Arm(skeleton, kind, arms or options or {}) for kind in (REFERENCE[dtype], dtype)}
    glue = reference_options(options or {})
    loose = loose_weights(skeleton, tiny.release.checkpoint)
    with ExitStack() as stack:
        walks = {
            kind: [_walk(stack, skeleton, kind, Glue(skeleton, kind, glue, loose), step) for step in passes]
            for kind in ours
        }
        while True:
            calls = {kind: [next(walk, None) for walk in made] for kind, made in walks.items()}
            first = calls[REFERENCE[dtype]][0]
            if first is None:
                return
            node = skeleton.node(first.node)
            visit = _visited(tiny, node, ours, dtype, passes, calls)
            yield visit
            for kind, made in calls.items():
                for call, step in zip(made, visit.passes, strict=True):
                    output = step.reference if kind == REFERENCE[dtype] else step.noise
                    assert call is not None
                    assert output is not None
                    call.reply(output)


def _walk(stack: ExitStack, skeleton: Any, dtype: str, glue: Glue, step: Pass) -> Walk:
    cache = cache_of_length(glue.model, len(step.ids), step.cached) if step.cached else None
    positions = step.positions if glue.takes("position_ids") else None
    walk = Walk(skeleton, step.ids, dtype, glue=glue, cache=cache, mask=step.mask, positions=positions)
    return stack.enter_context(walk)


def _visited(
    tiny: TinyRelease,
    node: Node,
    arms: Mapping[str, Arm],
    dtype: str,
    passes: Sequence[Pass],
    calls: Mapping[str, Sequence[Any]],
) -> Visit:
    expressions = resolve_weights(node, tiny.release.checkpoint)
    weights = read_weights(node, expressions)
    inside = {name for name in weights if node.experts and name.startswith(f"{node.experts}.")}
    kinds = arms[dtype].dtypes(node)

    def experts(ids: Sequence[int]) -> Any:
        chosen = {name[len(node.experts) + 1 :]: weights[name][list(ids)] for name in sorted(inside)}
        low = {name: value.to(kinds[f"{node.experts}.{name}"]) for name, value in chosen.items()}
        return Experts(ids, chosen, low)

    exact = [call.call for call in calls[REFERENCE[dtype]]]
    lowered = [cast_like(one, other.call) for one, other in zip(exact, calls[dtype], strict=True)]
    own = {name: value for name, value in weights.items() if name not in inside}
    outputs: dict[str, list[Call]] = {}
    routers: dict[tuple[str, str], Kept] = {}
    for stream, kind, inputs, which in (
        ("reference", REFERENCE[dtype], exact, "exact"),
        ("noise_local", dtype, lowered, "lowered"),
    ):
        arm = arms[kind]
        arm.load(node, own)
        outputs[stream] = []
        for step, call in zip(passes, inputs, strict=True):
            state = "visit" if step.name == MAIN or step.cached else None
            came = arm.start(node, call, state=state)
            while isinstance(came, Paused):
                scores = [TopK(one.scores, one.k) for one in came.scores]
                routers[(stream, step.name)] = Kept(Choice(came.ids, came.weights), scores)
                chosen: Which = "exact" if which == "exact" else "lowered"
                made = through_experts(node, [Waiting(arm, came, chosen)], experts, chunk=64)[0]
                assert isinstance(made, Tensor), made
                came = arm.resume(came, made)
            outputs[stream].append(came)
        arm.forget_all()
        arm.free(node)
    seen = [
        PassVisit(
            name=step.name,
            mode=step.mode,
            exact=exact[index],
            lowered=lowered[index],
            reference=outputs["reference"][index],
            noise=outputs["noise_local"][index],
            local=None,
            rows=torch.tensor(step.mask).reshape(-1).bool() if step.mask else None,
            cached=bool(step.cached),
        )
        for index, step in enumerate(passes)
    ]
    sent = {name: expressions[name] for name in own}
    return Visit(node, own, sent, seen, experts if inside else None, {}, routers)

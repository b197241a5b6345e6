"""One step of loss, backward and optimiser on the minimal model, on the target and on the reference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from day0.adapters.base.errors import CheckpointError, SkeletonError, UnsupportedError, WorkerError
from day0.adapters.base.release import Release
from day0.adapters.base.skeleton import Node, Skeleton
from day0.adapters.base.target import Fragment, Target, TrainingStep
from day0.adapters.base.values import json_number
from day0.adapters.models.weights import resolve_weights
from day0_worker.dtypes import torch_dtype
from day0_worker.training import TrainJob, train
from day0_worker.weights import LazyWeights

from ... import thresholds
from ...cut import Cut, cut_release
from ...finding import Finding, Subject, make_finding
from ...outcomes import detail_of, outcome_of
from ...reference_arm import reference_options
from ..record_parts import Training, TrainingBlock
from ..walk.case import Case
from .training_judge import Steps, judge_losses, judge_node

_NAMED = 3


class TrainingError(Exception):
    """The step cannot be made or compared; says why."""


@dataclass(frozen=True)
class _Plan:
    """What is trained.

    Attributes:
        cut: the minimal model.
        nodes: those that a text reaches, containers with parameters of their own among them.
        weights: full name -> expression.
        tied: full name -> full name of what it shares.
        experts: paths of experts.
    """

    cut: Cut
    nodes: Sequence[Node]
    weights: Mapping[str, Any]
    tied: Mapping[str, str]
    experts: Sequence[str]

    @property
    def parameters(self) -> int:
        return sum(
            math.prod(recipe.shape)
            for node in self.nodes
            for name, recipe in node.weights.items()
            if f"{node.name}.{name}" not in self.tied
        )


def train_once(release: Release, case: Case, target: Target) -> tuple[Training, Sequence[Finding]]:
    """Makes the step on all sides and compares.

    The model is the first layers of each kind with their real weights, the tokens are the first of the main
    prompt. Bound: the sides follow each other; see `NUMERICS_TRAINING_BYTES`.

    Args:
        release: whose weights.
        case: what is compared; its tokens, dtype, options and memory hold here.
        target: the target.

    Returns:
        For the record, and the findings.
    """
    try:
        training = _trained(release, case, target)
    except TrainingError as error:
        training = Training(reason=str(error))
    return training, _findings(training, str(target.spec))


def _trained(release: Release, case: Case, target: Target) -> Training:
    if "grad" not in target.describe().capabilities:
        raise TrainingError(f"{target.spec} does not claim to train")
    if case.fake is not None:
        raise TrainingError(f"what rounding to {case.precision} does to a step is not modelled")
    plan = _planned(release, case)
    settings = dict(thresholds.NUMERICS_TRAINING_SETTINGS)
    tokens = [list(case.tokens.ids[: thresholds.NUMERICS_TRAINING_TOKENS])]
    steps = Steps(
        reference=_here(plan, case, case.reference_dtype, tokens, settings),
        noise=_here(plan, case, case.dtype, tokens, settings),
        target=_there(plan, case, target, tokens, settings),
        dtype=torch_dtype(case.dtype),
        before=LazyWeights(plan.weights, {}),
        settings=settings,
    )
    blocks = [judge_losses(steps)]
    for node in plan.nodes:
        names = [f"{node.name}.{name}" for name in node.weights]
        learnt = [name for name in names if name not in plan.tied and name in steps.reference.weights]
        if learnt:
            blocks.append(judge_node(_name(plan.cut, node), learnt, plan.experts, steps))
    spelt = ", ".join(f"{name} {value:g}" for name, value in settings.items())
    return Training(
        layers=len(plan.cut.layers),
        loss=json_number(float(steps.target.losses.double().mean())),
        reference_loss=json_number(float(steps.reference.losses.double().mean())),
        noise_loss=json_number(float(steps.noise.losses.double().mean())),
        optimiser=f"AdamW, {spelt}; updates are judged where a gradient is clearly larger than its noise",
        blocks=blocks,
    )


def _planned(release: Release, case: Case) -> _Plan:
    try:
        cut = cut_release(release, case.skeleton, case.store)
        nodes = [node for node in cut.skeleton.nodes if node.called or _is_glue(node, cut.skeleton)]
        missing = [f"{node.name}.{name}" for node in nodes for name in node.missing]
        if missing:
            raise TrainingError(f"the checkpoint lacks {', '.join(missing[:_NAMED])}")
        weights = {
            f"{node.name}.{name}": expression
            for node in nodes
            for name, expression in resolve_weights(node, cut.release.checkpoint).items()
        }
    except (SkeletonError, CheckpointError) as error:
        raise TrainingError(error.message) from error
    tied = {f"{node.name}.{name}": shared for node in nodes for name, shared in node.tied.items()}
    experts = [f"{node.name}.{node.experts}" for node in nodes if node.experts]
    own = {name: value for name, value in weights.items() if name not in tied}
    plan = _Plan(cut, nodes, own, tied, experts)
    needed = plan.parameters * thresholds.NUMERICS_TRAINING_BYTES[case.dtype]
    if needed > case.memory:
        raise TrainingError(
            f"its {plan.parameters / 1e6:.0f} million weights need {needed / 2**30:.1f} GiB, more than the "
            f"{case.memory / 2**30:.1f} GiB that are given"
        )
    return plan


def _is_glue(node: Node, skeleton: Skeleton) -> bool:
    """Whether a node stands for parameters that lie directly in a container of called ones."""
    return any(other.called and other.name.startswith(f"{node.name}.") for other in skeleton.nodes)


def _here(
    plan: _Plan, case: Case, dtype: str, tokens: list[list[int]], settings: Mapping[str, float]
) -> TrainingStep:
    """The step in this process, by the reference's code."""
    job = TrainJob(
        architecture=plan.cut.skeleton.architecture,
        config=plan.cut.skeleton.config,
        dtype=dtype,
        options=reference_options(case.options),
        weights=LazyWeights(plan.weights, {}),
        tied=plan.tied,
        experts=plan.experts,
        tokens=tokens,
        settings=settings,
    )
    try:
        made = train(job, "cpu")
    except Exception as error:  # third-party model code: whatever it raises is told
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise TrainingError(f"the reference cannot be trained in {dtype}: {text}") from error
    return TrainingStep(made.losses, made.gradients, made.weights, made.routed)


def _there(
    plan: _Plan, case: Case, target: Target, tokens: list[list[int]], settings: Mapping[str, float]
) -> TrainingStep:
    skeleton = plan.cut.skeleton
    fragment = Fragment("", "", skeleton.architecture, skeleton.config, case.dtype, {})
    step = {"tied": plan.tied, "experts": list(plan.experts), "tokens": tokens, "settings": settings}
    try:
        return target.train(fragment, plan.weights, step)
    except (WorkerError, UnsupportedError) as error:
        raise TrainingError(f"the target fails at it: {outcome_of(error)}: {detail_of(error)}") from error


def _name(cut: Cut, node: Node) -> str:
    """The node's name in the whole model."""
    return cut.names.get(node.name, node.name)


def _findings(training: Training, target: str) -> list[Finding]:
    if training.reason:
        said = f"A step of training on {target} was not compared: {training.reason}."
        return [make_finding("NUM031", Subject(kind="target", name=target), said)]
    wrong = [block for block in training.blocks if block.verdict == "fail"]
    if not wrong:
        return []
    first = _first(wrong)
    more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    said = f"In a step of training on {target} {first.name} is off: {first.reason}{more}."
    return [make_finding("NUM030", Subject(kind="node", name=first.name), said)]


def _first(wrong: Sequence[TrainingBlock]) -> TrainingBlock:
    """The last node in order: gradients flow backward, so those before it inherit what it does wrong."""
    nodes = [block for block in wrong if block.gradient is not None or block.updated is not None]
    return nodes[-1] if nodes else wrong[0]

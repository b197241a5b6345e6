"""Two steps of training held against each other: gradients and updates of one node, in units of noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from day0.adapters.base.target import TrainingStep

from ... import thresholds
from ..descent.operator_values import off
from ..measures.judge import Judgement, judge
from ..measures.metrics import distance
from ..record_parts import Metrics, TrainingBlock

LOSS = "loss"
"""Name of the block that stands for the losses of all tokens."""


@dataclass(frozen=True)
class Steps:
    """One step on each side.

    Attributes:
        reference: in the reference's precision.
        noise: the same code in the target's.
        target: the target's own.
        dtype: of the target.
        before: parameter -> its weights before the step, as stored or dequantised.
        settings: of the optimiser.
    """

    reference: TrainingStep
    noise: TrainingStep
    target: TrainingStep
    dtype: torch.dtype
    before: Mapping[str, Tensor]
    settings: Mapping[str, float]


@dataclass
class _Found:
    """What is known of one node so far."""

    gradients: list[Judgement] = field(default_factory=list)
    updates: list[Judgement] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge_losses(steps: Steps) -> TrainingBlock:
    """The cross entropy of each token."""
    due, noise, got = (side.losses.reshape(-1, 1) for side in (steps.reference, steps.noise, steps.target))
    if got.shape != due.shape:
        return TrainingBlock(
            name=LOSS,
            verdict="fail",
            reason=f"{got.numel()} losses where {due.numel()} are due",
        )
    found = _judged(got, due, noise, steps.dtype)
    fault = _fault(found)
    return TrainingBlock(name=LOSS, verdict="fail" if fault else "pass", reason=fault)


def judge_node(name: str, parameters: Sequence[str], experts: Sequence[str], steps: Steps) -> TrainingBlock:
    """One node: its gradients, then what the optimiser added to its weights.

    Experts whose tokens differ from side to side are left out: which near-tied expert a token goes to is
    chance, and each then learns from other tokens.

    Args:
        name: of the node.
        parameters: full names of its parameters.
        experts: paths of experts.
        steps: to compare.
    """
    found = _Found()
    kept = {path: _kept(path, steps) for path in experts}
    told = [(path, mask) for path, mask in kept.items() if mask is not None and not bool(mask.all())]
    for path, mask in told:
        if any(parameter.startswith(f"{path}.") for parameter in parameters):
            found.notes.append(
                f"{int((~mask).sum())} of {len(mask)} experts left out, as their tokens differ"
            )
    for parameter in parameters:
        within = next((path for path in experts if parameter.startswith(f"{path}.")), None)
        _judge_parameter(parameter, kept[within] if within else None, steps, found)
    return TrainingBlock(
        name=name,
        gradient=_worst(found.gradients),
        updated=_worst(found.updates),
        verdict="fail" if found.faults else "pass" if found.gradients else "unverified",
        reason="; ".join([*found.faults[:3], *found.notes]) or ("" if found.gradients else "no gradients"),
    )


def _judge_parameter(name: str, kept: Tensor | None, steps: Steps, found: _Found) -> None:
    due, noise, got = (side.gradients.get(name) for side in (steps.reference, steps.noise, steps.target))
    if due is None:
        if got is not None and bool((got != 0).any()):
            found.faults.append(f"{name} has a gradient, and the reference's has none")
        elif _moved(name, steps):
            found.faults.append(f"{name} moved, though it has no gradient")
        return
    if got is None:
        found.faults.append(f"{name} has no gradient, and the reference's has one")
        return
    if got.shape != due.shape:
        found.faults.append(f"gradient of {name}: shape {list(got.shape)} where {list(due.shape)} is due")
        return
    if noise is None or not bool(torch.isfinite(noise).all()):
        found.notes.append(f"{name} is not compared: its gradient in {_short(steps.dtype)} is not finite")
        return
    if kept is not None and kept.numel() == due.shape[0]:
        due, noise, got = due[kept], noise[kept], got[kept]
        if not due.numel():
            return
    judgement = _judged(got, due, noise, steps.dtype)
    found.gradients.append(judgement)
    fault = _fault(judgement)
    if fault:
        found.faults.append(f"gradient of {name}: {fault}")
    _judge_update(name, kept, steps, found)


def _judge_update(name: str, kept: Tensor | None, steps: Steps, found: _Found) -> None:
    """What the optimiser added.

    AdamW's first step is nearly the gradient's sign, so against the reference only those elements count
    whose gradient is larger than its noise, and than AdamW's eps; the optimiser itself is judged everywhere,
    on the target's own gradient.
    """
    after = steps.target.weights.get(name)
    if after is None or after.shape != steps.reference.weights[name].shape:
        found.faults.append(f"{name} is not among the weights after the step")
        return
    due, noise, got = (_added(name, side, steps) for side in (steps.reference, steps.noise, steps.target))
    clear = _clear(name, steps)
    if kept is not None and kept.numel() == due.shape[0]:
        due, noise, got, clear = due[kept], noise[kept], got[kept], clear[kept]
    if bool(clear.any()):
        judgement = _judged(got * clear, due * clear, noise * clear, steps.dtype)
        found.updates.append(judgement)
        fault = _fault(judgement)
        if fault:
            found.faults.append(f"update of {name}: {fault}")
    wrong = _own_step(name, steps)
    if wrong:
        found.faults.append(f"the optimiser's step of {name} on its own gradient: {wrong}")


def _own_step(name: str, steps: Steps) -> str:
    """What is wrong with the target's step for the gradient that it had itself; empty where nothing is.

    AdamW, first step (Loshchilov and Hutter 2019, algorithm 2): m / (1 - beta1) = g, v / (1 - beta2) = g^2,
    so w' = w (1 - lr wd) - lr g / (|g| + eps).
    """
    before = _before(name, steps.target, steps)
    gradient = steps.target.gradients[name]
    if not bool(torch.isfinite(gradient).all()):
        return ""
    wide, slope, settings = before.double(), gradient.double(), steps.settings
    exact = -settings["lr"] * (settings["weight_decay"] * wide + slope / (slope.abs() + settings["eps"]))
    own = _torch_step(before, gradient, settings).double() - wide
    return off(_added(name, steps.target, steps), exact, own)


def _torch_step(before: Tensor, gradient: Tensor, settings: Mapping[str, float]) -> Tensor:
    from day0_worker.training import adamw

    parameter = torch.nn.Parameter(before.clone())
    parameter.grad = gradient.to(before.dtype)
    adamw([parameter], settings).step()
    return parameter.detach()


def _clear(name: str, steps: Steps) -> Tensor:
    """[shape of the parameter] where the gradient's noise does not move the step.

    Its sign is sure, and lr g / (|g| + eps), whose slope is lr eps / (|g| + eps)^2, moves by less than a
    rounding of the target's dtype. Nearer to eps one element's luck in the noise arm would be the measure.
    """
    due, noise = (side.gradients[name].double() for side in (steps.reference, steps.noise))
    eps, size = steps.settings["eps"], due.abs()
    noise_of_it = thresholds.NUMERICS_DECISIVE_SIGMA * (noise - due).square().mean().sqrt()
    still = eps * noise_of_it / (size + eps).square() <= torch.finfo(steps.dtype).eps
    return (size > noise_of_it) & still


def _added(name: str, side: TrainingStep, steps: Steps) -> Tensor:
    """Weights after the step less those before, fp64."""
    return side.weights[name].double() - _before(name, side, steps).double()


def _before(name: str, side: TrainingStep, steps: Steps) -> Tensor:
    """The weights with which a side began: cast to the dtype in which it holds them."""
    return steps.before[name].to(side.weights[name].dtype)


def _moved(name: str, steps: Steps) -> bool:
    both = name in steps.target.weights and name in steps.reference.weights and name in steps.before
    if not both or bool((_added(name, steps.reference, steps) != 0).any()):
        return False
    return bool((_added(name, steps.target, steps) != 0).any())


def _kept(path: str, steps: Steps) -> Tensor | None:
    """[experts] bool, whose tokens are the same on all sides; None where that is not known."""
    ids = [side.routed.get(path) for side in (steps.reference, steps.noise, steps.target)]
    known = [one for one in ids if one is not None]
    if len(known) != len(ids) or len({one.shape for one in known}) != 1 or not known[0].numel():
        return None
    total = max(
        (value.shape[0] for name, value in steps.before.items() if name.startswith(f"{path}.")), default=0
    )
    total = max(total, *(int(one.max()) + 1 for one in known))
    members = [torch.zeros(total, one.shape[0]).scatter_(0, one.t(), 1.0) for one in known]
    return torch.stack([(member == members[0]).all(dim=1) for member in members[1:]]).all(dim=0)


def _judged(got: Tensor, due: Tensor, noise: Tensor, dtype: torch.dtype) -> Judgement:
    """As outputs of routed nodes are: rows that are off are counted and not ranked.

    A row of a gradient whose terms nearly cancel is as far off as chance has it.
    """
    eps = torch.finfo(dtype).eps
    return judge(distance(got, due, dtype=dtype), distance(noise, due, dtype=dtype), eps=eps, routed=True)


def _fault(found: Judgement) -> str:
    if found.excess is not None:
        return str(found.excess)
    ratio = float(found.metrics.ratio)
    if math.isfinite(ratio) and ratio > thresholds.NUMERICS_RATIO:
        return f"ratio {ratio:.3g} is beyond {thresholds.NUMERICS_RATIO:.3g}"
    return ""


def _worst(found: Sequence[Judgement]) -> Metrics | None:
    def badness(one: Judgement) -> tuple[bool, float]:
        ratio = float(one.metrics.ratio)
        return bool(_fault(one)), ratio if math.isfinite(ratio) else 0.0

    return max(found, key=badness).metrics if found else None


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

"""One step of training a whole model: loss, backward, optimiser; the same code for target and reference."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence

import torch

from day0_worker.computed_buffers import compute_buffers
from day0_worker.modules import build_model, place
from day0_worker.stack import StackError
from day0_worker.workarounds import Ways

MakeOptimiser = Callable[[List[torch.nn.Parameter], Mapping[str, float]], Any]
"""Parameters and settings -> an optimiser."""


@dataclass
class TrainJob:
    """Everything that one step needs.

    Attributes:
        architecture: class to build, e.g. `LlamaForCausalLM`.
        config: config.json as JSON, quantisation taken out.
        dtype: short name of weights and activations.
        options: from the target, see `build_model`.
        weights: full name of a parameter or saved buffer -> tensor; those left out stay without weights.
        tied: full name -> full name of the parameter whose tensor it shares.
        experts: paths of modules that are called with hidden states, ids and weights.
        tokens: token ids, sequences of equal length.
        settings: of the optimiser: `lr`, `beta1`, `beta2`, `eps`, `weight_decay`.
    """

    architecture: str
    config: Mapping[str, Any]
    dtype: str
    options: Mapping[str, str]
    weights: Mapping[str, torch.Tensor]
    tied: Mapping[str, str]
    experts: Sequence[str]
    tokens: Sequence[Sequence[int]]
    settings: Mapping[str, float]


@dataclass
class Trained:
    """What became of it, all tensors on the CPU.

    Attributes:
        losses: [sequences, length - 1], cross entropy of each next token, nats.
        gradients: parameter -> its gradient, where it has one.
        weights: parameter or saved buffer -> its values after the step.
        routed: path of experts -> [tokens, k], ids of the experts that its tokens were sent to.
    """

    losses: torch.Tensor
    gradients: Dict[str, torch.Tensor] = field(default_factory=dict)
    weights: Dict[str, torch.Tensor] = field(default_factory=dict)
    routed: Dict[str, torch.Tensor] = field(default_factory=dict)


def adamw(parameters: List[torch.nn.Parameter], settings: Mapping[str, float]) -> Any:
    """Torch's AdamW."""
    return torch.optim.AdamW(
        parameters,
        lr=settings["lr"],
        betas=(settings["beta1"], settings["beta2"]),
        eps=settings["eps"],
        weight_decay=settings["weight_decay"],
    )


def train(job: TrainJob, device: str, make_optimiser: MakeOptimiser = adamw) -> Trained:
    """Builds the model with its weights on the device and makes one step.

    Dropout is off, so that equal inputs give equal steps. The loss is computed in fp32 (fp64 in fp64), as
    transformers' own is.

    Args:
        job: see `TrainJob`.
        device: torch device.
        make_optimiser: makes the optimiser.

    Raises:
        StackError: see `build_model`; `key_mismatch`, a weight has no place or another shape.
    """
    model = _built(job, device)
    named = {name: value for name, value in model.named_parameters() if not value.is_meta}
    for value in named.values():
        value.requires_grad_(value.is_floating_point())
    learnt = [value for value in named.values() if value.requires_grad]
    optimiser = make_optimiser(learnt, job.settings)
    tokens = torch.tensor([list(row) for row in job.tokens], device=device)
    routed: Dict[str, torch.Tensor] = {}
    with _listening(model, job.experts, routed), torch.enable_grad(), Ways(job.options).active():
        logits = model(input_ids=tokens, use_cache=False).logits
        losses = next_token_losses(logits, tokens)
        losses.mean().backward()  # type: ignore[no-untyped-call]  # torch's own is untyped
    del logits
    gradients = {name: _home(value.grad) for name, value in named.items() if value.grad is not None}
    with torch.no_grad():
        optimiser.step()
    held = {name: value for name, value in model.state_dict(keep_vars=True).items() if not value.is_meta}
    own = {name: _home(value) for name, value in held.items() if name not in job.tied}
    return Trained(_home(losses), gradients, own, routed)


def next_token_losses(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """[sequences, length - 1], cross entropy of each token given those before it, nats."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    count = wide.shape[-1]
    losses = torch.nn.functional.cross_entropy(
        wide[:, :-1].reshape(-1, count), tokens[:, 1:].reshape(-1), reduction="none"
    )
    return losses.reshape(tokens.shape[0], -1)


def _built(job: TrainJob, device: str) -> Any:
    model = build_model(job.config, job.architecture, job.dtype, job.options)
    empty = dict(model.state_dict(keep_vars=True))
    for name in job.weights:
        if name not in empty:
            raise StackError(f"the model has no place for the weight {name}", "key_mismatch")
        value = job.weights[name]
        if value.shape != empty[name].shape:
            shapes = f"{list(value.shape)} was given, {list(empty[name].shape)} is needed"
            raise StackError(f"{name}: {shapes}", "key_mismatch")
        # A copy: the step writes into it, and what came may be a view of a file.
        place(model, name, value.detach().to(device, empty[name].dtype, copy=True))
    for name, shared in job.tied.items():
        path, _, leaf = name.rpartition(".")
        model.get_submodule(path)._parameters[leaf] = model.get_parameter(shared)
    compute_buffers(model, "", model, device)
    return model


@contextlib.contextmanager
def _listening(model: Any, experts: Sequence[str], routed: Dict[str, torch.Tensor]) -> Iterator[None]:
    hooks = []
    for path in experts:

        def before(_module: Any, args: Any, kwargs: Any, path: str = path) -> None:
            tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
            chosen = [one for one in tensors if not one.is_floating_point()]
            if chosen:
                routed[path] = _home(chosen[0])

        hooks.append(model.get_submodule(path).register_forward_pre_hook(before, with_kwargs=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _home(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().clone()

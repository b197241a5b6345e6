"""What a target must do that says which operators it calls, or that trains."""

from __future__ import annotations

from typing import Any

from day0.adapters.base.target import Call, Fragment
from day0_worker import trees

from .conformance_checks import TOLERANCE, Subject
from .tiny_llama import ARCHITECTURE, NODES, PROMPT

_LAYER = "model.layers.0"
_SETTINGS = {"lr": 2.0**-6, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 2.0}


def observes_what_it_runs(subject: Subject) -> None:
    """An observed run gives what a plain one gives, to the bit, and names operators with their tensors."""
    import torch

    target, model = subject.target, subject.model
    inputs = model.calls[_LAYER, "prefill"]
    weights = {name: {"value": value} for name, value in model.weights[_LAYER].items()}
    handle = target.prepare(_fragment(subject, _LAYER), inputs, mode="prefill")
    plain = _first(target.run(handle, _LAYER, weights, inputs).outputs)
    seen = target.observe(handle, _LAYER, weights, inputs, limit=2**28)
    assert not seen.error, f"an observed run failed: {seen.error}"
    assert seen.outputs is not None, "an observed run gave no output"
    assert torch.equal(plain, _first(seen.outputs)), "observing a run changed its output"
    assert seen.operators, "an observed run named no operators"
    whole = [one for one in seen.operators if one.outputs is not None and None not in one.inputs]
    assert len(whole) == len(seen.operators), "operators without their tensors, far below the limit"
    modules = {one.call.module for one in seen.operators}
    assert "mlp.down_proj" in modules, f"operators of mlp.down_proj are not among those of {sorted(modules)}"


def trains(subject: Subject) -> None:
    """One step gives the loss and the gradients of the CPU in fp32, and AdamW's first step on the weights."""
    import torch

    model = subject.model
    weights = {f"{node}.{name}": value for node in NODES for name, value in model.weights[node].items()}
    step = {"tied": {}, "experts": [], "tokens": PROMPT, "settings": _SETTINGS}
    sent = {name: {"value": value} for name, value in weights.items()}
    made = subject.target.train(_fragment(subject, ""), sent, step)
    loss, gradients = _expected(subject)
    limit = TOLERANCE[subject.dtype]
    error = abs(float(made.losses.double().mean()) / loss - 1)
    assert error < limit, f"the loss is {float(made.losses.mean()):.5f}, {loss:.5f} is due"
    for name, due in gradients.items():
        assert name in made.gradients, f"{name} has no gradient"
        got = made.gradients[name].double()
        off = float((got - due).norm() / due.norm())
        assert off < 4 * limit, f"the gradient of {name} is off by {off:.3g}"
        before, slope = weights[name].double(), got
        after = before * (1 - _SETTINGS["lr"] * _SETTINGS["weight_decay"])
        after = after - _SETTINGS["lr"] * slope / (slope.abs() + _SETTINGS["eps"])
        off = float((made.weights[name].double() - after).norm() / (after - before).norm())
        assert off < 4 * limit, f"AdamW's first step on {name} is off by {off:.3g}"
    assert not torch.equal(made.weights["lm_head.weight"], weights["lm_head.weight"]), "no weight moved"


def _expected(subject: Subject) -> tuple[float, dict[str, Any]]:
    """Loss and gradients of the same model by transformers in fp32."""
    import torch
    from transformers import LlamaForCausalLM

    tokens = torch.tensor(PROMPT)
    model = LlamaForCausalLM.from_pretrained(subject.model.folder, dtype=torch.float32).eval()
    with torch.enable_grad():
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
    return float(loss.detach()), {name: value.grad.double() for name, value in model.named_parameters()}


def _fragment(subject: Subject, node: str) -> Fragment:
    return Fragment(
        node=node,
        kind=f"{node} observed",
        architecture=ARCHITECTURE,
        config=subject.model.config,
        dtype=subject.dtype,
        options={},
    )


def _first(call: Call) -> Any:
    value = trees.decode(call.tree, call.tensors)
    return value[0] if isinstance(value, tuple | list) else value

"""Roles in lower precisions, against the stock model with its weights and inputs rounded by hand."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from day0.adapters.base.run_store import RunStore
from day0.tasks.numerics.precision.lowerings import lowerings_of
from day0.tasks.numerics.precision.precision_step import Swept
from day0.tasks.numerics.precision.precision_walk import PrecisionWalks
from day0.tasks.numerics.prompts.tokens import Tokens
from day0.tasks.numerics.walk.case import Case
from day0.tasks.reference_arm import Arm, ArmError
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
IDS = tuple(range(5, 29))
Role = Callable[[str], bool]
"""Whether a parameter's full name is of the role that is meant."""

ROLES: dict[str, Role] = {
    "attention": lambda name: "self_attn" in name and "norm" not in name,
    "dense_mlp": lambda name: ".mlp." in name and "expert" not in name and "gate.weight" not in name,
    "router": lambda name: name.endswith(("mlp.gate.weight", "mlp.router.weight")),
    "expert": lambda name: ".experts." in name,
    "shared_expert": lambda name: "shared_expert" in name,
    "embedding": lambda name: name == "model.embed_tokens.weight",
    "head": lambda name: name == "lm_head.weight",
    "norm": lambda name: "norm" in name,
}


def quantised(tensor: Tensor, dtype: str, axis: int = -1) -> Tensor:
    """Scale of each channel, token or group of 128, rounding, and back."""
    if dtype == "int4" and tensor.shape[axis] > 128:
        return torch.cat([quantised(part, dtype, axis) for part in torch.split(tensor, 128, axis)], axis)
    if dtype in ("bf16", "fp16"):
        return tensor.to(torch.bfloat16 if dtype == "bf16" else torch.float16).float()
    if dtype == "int4":
        scale = (tensor.abs().amax(axis, keepdim=True) / 7.5).bfloat16().float()
        return (tensor / scale).round().clamp(-8, 7) * scale
    span = {"int8": 127.0, "fp8_e4m3": 448.0}[dtype]
    scale = tensor.abs().amax(axis, keepdim=True) / span
    scale = torch.where(scale > 0, scale, 1.0)
    steps = tensor / scale
    steps = steps.round() if dtype == "int8" else steps.clamp(-span, span).to(torch.float8_e4m3fn).float()
    return steps * scale


def rounded_inputs(tensor: Tensor, dtype: str) -> Tensor:
    return quantised(tensor, "bf16" if dtype == "int4" else dtype)


def lowered_stock(stock: Any, role: str, dtype: str) -> Any:
    """The whole model in memory with one role lowered."""
    model = copy.deepcopy(stock)
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.clone())  # tied to nothing
    for path, module in model.named_modules():
        lowers = False
        for name, tensor in list(module.named_parameters(recurse=False)):
            if not ROLES[role](f"{path}.{name}"):
                continue
            if role == "norm" and dtype not in ("bf16", "fp16"):
                tensor.data = quantised(tensor.data.flatten(), dtype)
            elif dtype in ("bf16", "fp16"):
                tensor.data, lowers = quantised(tensor.data, dtype), lowers or tensor.dim() > 1
            elif tensor.dim() > 1 and not name.endswith("bias"):
                transposed = tensor.dim() == 3 and module.is_transposed
                tensor.data, lowers = quantised(tensor.data, dtype, 1 if transposed else -1), True
        if not lowers or isinstance(module, nn.Embedding) or role == "norm":
            continue
        if role == "expert":
            module.forward = rounded_experts(module, dtype)
        else:
            module.register_forward_pre_hook(lambda _, args: (rounded_inputs(args[0], dtype), *args[1:]))
    return model


def rounded_experts(experts: Any, dtype: str) -> Callable[..., Tensor]:
    """Token by token, with what goes into either product rounded."""

    def product(x: Tensor, name: str, expert: int) -> Tensor:
        weight = getattr(experts, name)[expert]
        bias = getattr(experts, f"{name}_bias", None)
        y: Tensor = rounded_inputs(x, dtype) @ (weight if experts.is_transposed else weight.T)
        return y if bias is None else y + bias[expert]

    def forward(hidden: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        out = torch.zeros_like(hidden)
        for token in range(len(hidden)):
            for expert, weight in zip(ids[token].tolist(), weights[token], strict=True):
                between = experts._apply_gate(product(hidden[token][None], "gate_up_proj", expert))
                out[token] += (weight * product(between, "down_proj", expert))[0]
        return out

    return forward


def logits_of(model: Any) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(torch.tensor([IDS])).logits
    return logits[0].double()


def divergence(ours: Tensor, reference: Tensor) -> float:
    log_r, log_t = reference.log_softmax(1), ours.log_softmax(1)
    return float((log_r.exp() * (log_r - log_t)).sum(1).mean())


def case_of(tiny: TinyRelease, folder: Path, dtype: str = "bf16") -> Case:
    return Case(
        skeleton=tiny.skeleton,
        checkpoint=tiny.release.checkpoint,
        dtype=dtype,
        store=RunStore(folder),
        target="",
        options={},
        tokens=Tokens(IDS),
    )


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors this small only wait for a second one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


LOWERED = {"llama": ("int8", "fp8_e4m3", "int4", "bf16"), "deepseek_v3": ("int8", "fp8_e4m3"),
           "gpt_oss": ("int8", "int4")}  # fmt: skip


@pytest.fixture(scope="module", params=list(LOWERED))
def walked(
    request: pytest.FixtureRequest, tiny: Tiny, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TinyRelease, PrecisionWalks, Swept]]:
    release = tiny(request.param)
    with PrecisionWalks(case_of(release, tmp_path_factory.mktemp("store"))) as walks:
        yield release, walks, walks.sweep(lowerings_of(LOWERED[request.param]), propagate=True)


def test_every_role_costs_what_the_stock_model_costs(
    walked: tuple[TinyRelease, PrecisionWalks, Swept],
) -> None:
    tiny, walks, swept = walked
    exact = logits_of(tiny.stock)
    assert swept.logits is not None
    assert torch.allclose(swept.logits.double(), exact, atol=1e-5)
    assert set(walks.roles) <= set(ROLES)
    dtypes = LOWERED[tiny.skeleton.model_type]
    assert set(swept.costs) == {(role, dtype) for role in walks.roles for dtype in dtypes}
    for (role, dtype), cost in swept.costs.items():
        by_hand = logits_of(lowered_stock(tiny.stock, role, dtype))
        expected = divergence(by_hand, exact)
        assert cost.kl == pytest.approx(expected, abs=1e-6, rel=0.02), (role, dtype)
        assert cost.top1 == float((by_hand.argmax(1) == exact.argmax(1)).double().mean()), (role, dtype)


def test_the_targets_own_precision_costs_what_the_stock_model_in_it_costs(
    walked: tuple[TinyRelease, PrecisionWalks, Swept],
) -> None:
    tiny, _, swept = walked
    exact = logits_of(tiny.stock)
    expected = divergence(logits_of(tiny.load("bfloat16")), exact)
    assert swept.base is not None
    assert swept.base.kl == pytest.approx(expected, abs=1e-6)
    even = torch.full_like(exact, 1 / exact.shape[1]).log()
    assert swept.information == pytest.approx(divergence(even, exact), rel=1e-4)


def test_a_whole_policy_costs_what_the_stock_model_with_it_costs(
    walked: tuple[TinyRelease, PrecisionWalks, Swept],
) -> None:
    tiny, walks, swept = walked
    second = "dense_mlp" if "dense_mlp" in walks.roles else "expert"
    assert swept.logits is not None
    found = walks.cost({"attention": "int8", second: "fp8_e4m3", "head": "bf16"}, swept.logits)
    model = lowered_stock(tiny.stock, "attention", "int8")
    model = lowered_stock(lowered_stock(model, second, "fp8_e4m3"), "head", "bf16")
    assert found.kl == pytest.approx(divergence(logits_of(model), logits_of(tiny.stock)), abs=1e-6, rel=0.02)


def test_the_error_at_a_node_is_that_on_the_exact_input(tiny: Tiny, tmp_path: Path) -> None:
    release = tiny("llama")
    stock, lowered = release.stock, lowered_stock(release.stock, "attention", "int8")
    errors, noises = [], []
    native = release.load("bfloat16")
    calls: list[tuple[Any, Any, Any]] = []
    handles = [
        layer.register_forward_hook(lambda _, args, kwargs, out: calls.append((args, kwargs, out)),
                                    with_kwargs=True)
        for layer in stock.model.layers
    ]  # fmt: skip
    exact = logits_of(stock)
    assert exact.isfinite().all()
    for handle in handles:
        handle.remove()
    for index, (args, kwargs, out) in enumerate(calls):
        plain = {name: value for name, value in kwargs.items() if "cache" not in name and "past" not in name}
        with torch.no_grad():
            ours = lowered.model.layers[index](*args, **plain)
            half = native.model.layers[index](args[0].bfloat16(), **{
                **plain, "position_embeddings": tuple(t.bfloat16() for t in plain["position_embeddings"])
            })  # fmt: skip
        errors.append(float((ours - out).norm() / out.norm()))
        noises.append(float((half.float() - out).norm() / out.norm()))
    with PrecisionWalks(case_of(release, tmp_path)) as walks:
        local = walks.sweep(lowerings_of(("int8",)), propagate=False).local["attention", "int8"]
    assert local.rel_l2 == pytest.approx(max(errors), rel=1e-3)
    assert local.worst == f"model.layers.{errors.index(max(errors))}"
    # One ULP of bf16, between 2^-8 and 2^-7 of the output, is the least that counts as noise.
    ratios = [error / max(noise, 2**-8) for error, noise in zip(errors, noises, strict=True)]
    assert max(ratios) / 2 <= local.ratio <= max(ratios) * 1.001


def test_experts_in_chunks_of_one_are_as_experts_all_at_once(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for chunk in (1, 64):
        monkeypatch.setattr("day0.tasks.numerics.precision.precision_walk.chunk_of", lambda *_, n=chunk: n)
        with PrecisionWalks(case_of(tiny("qwen3_moe"), tmp_path)) as walks:
            found.append(walks.sweep(lowerings_of(("int8",)), propagate=True))
    for single, cost in found[0].costs.items():
        assert cost.kl == pytest.approx(found[1].costs[single].kl, abs=1e-8, rel=0.01)
        one, other = found[0].local[single], found[1].local[single]
        assert (one.bytes, one.worst) == (other.bytes, other.worst)
        assert one.rel_l2 == pytest.approx(other.rel_l2, rel=0.01)


def test_without_the_targets_own_precision_the_rest_is_measured(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Arm.start

    def fails(arm: Arm, node: Any, *args: Any, **kwargs: Any) -> Any:
        if arm.dtype == "bf16" and node.name == "model.layers.1":
            raise ArmError("no kernel for bf16")
        return start(arm, node, *args, **kwargs)

    monkeypatch.setattr(Arm, "start", fails)
    with PrecisionWalks(case_of(tiny("llama"), tmp_path)) as walks:
        swept = walks.sweep(lowerings_of(("int8",)), propagate=True)
    assert swept.base is None
    assert all(cost.kl >= 0 for cost in swept.costs.values())
    assert swept.local["attention", "int8"].ratio > 0  # of the layers before
    assert math.isnan(swept.local["head", "int8"].ratio)


@pytest.mark.slow
def test_a_wider_model_with_ragged_groups(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=4096, hidden_size=576, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=9,
        num_key_value_heads=3, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(3)
    model: Any = LlamaForCausalLM(config).float()
    model.model.norm.weight.data.mul_(8)
    model.save_pretrained(tmp_path / "model")
    release = TinyRelease(tmp_path / "model")
    with PrecisionWalks(case_of(release, tmp_path)) as walks:
        swept = walks.sweep(lowerings_of(("int4", "fp8")), propagate=True)
    exact = logits_of(release.stock)
    for (role, dtype), cost in swept.costs.items():
        by_hand = logits_of(lowered_stock(release.stock, role, dtype))
        assert cost.kl == pytest.approx(divergence(by_hand, exact), abs=1e-6, rel=0.02), (role, dtype)
    assert swept.local["dense_mlp", "int4"].bytes == 8 * (3 * 576 * 1536 // 2 + 2 * (2 * 1536 * 5 + 576 * 12))

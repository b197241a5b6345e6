"""One step of training: a right one passes, a wrong backward or optimiser is named at its node."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.tasks.finding import Finding
from day0.tasks.numerics.prompts.tokens import Tokens
from day0.tasks.numerics.record_parts import Training
from day0.tasks.numerics.training.training import train_once
from day0.tasks.numerics.walk.case import Case
from support.observed_target import ObservedTarget
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]


@pytest.fixture(autouse=True)
def _few_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def askew(faulty_stack: Path) -> Any:
    return importlib.import_module("day0_faulty.askew").AskewStack


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which the cut-down skeleton is found again by the next test."""
    return tmp_path_factory.mktemp("training")


def case_of(model: TinyRelease, store: Path, dtype: str, options: dict[str, str]) -> Case:
    generator = torch.Generator().manual_seed(3)
    ids = tuple(torch.randint(3, 60, (48,), generator=generator).tolist())
    return Case(
        skeleton=model.skeleton,
        checkpoint=model.release.checkpoint,
        tokens=Tokens(ids),
        dtype=dtype,
        store=RunStore(store),
        target="",
        options=options,
    )


def trained(
    model: TinyRelease, store: Path, askew: Any, options: str, dtype: str = "bf16", **changes: Any
) -> tuple[Training, Sequence[Finding]]:
    target = ObservedTarget(f"askew@cpu/{dtype}?{options}", askew)
    case = case_of(model, store, dtype, dict(target.spec.options))
    return train_once(model.release, replace(case, **changes), target)


def wrong(training: Training) -> dict[str, str]:
    return {block.name: block.reason for block in training.blocks if block.verdict == "fail"}


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_right_step_passes_and_its_loss_is_that_of_the_stock_model(
    tiny: Tiny, store: Path, askew: Any, dtype: str
) -> None:
    model = tiny("llama")
    training, findings = trained(model, store, askew, "how=none", dtype)
    assert not findings
    assert wrong(training) == {}
    assert [block.name for block in training.blocks] == [
        "loss", "model.embed_tokens", "model.layers.0", "model.norm",
    ]  # fmt: skip
    assert {block.verdict for block in training.blocks} == {"pass"}
    assert training.layers == 1
    assert float(training.reference_loss) == pytest.approx(_stock_loss(model), rel=1e-5)
    assert float(training.loss) == pytest.approx(float(training.noise_loss))


def _stock_loss(model: TinyRelease) -> float:
    """The loss that transformers itself computes for the first layer between embedding and head."""
    ids = torch.tensor([case_of(model, Path(), "fp32", {}).tokens.ids])
    stock = model.load("float32")
    stock.model.layers = stock.model.layers[:1]
    with torch.no_grad():
        return float(stock(input_ids=ids, labels=ids, use_cache=False).loss)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_wrong_backward_in_one_layer_is_named(tiny: Tiny, store: Path, askew: Any, dtype: str) -> None:
    model = tiny("qwen3_moe")  # a dense layer, then one of experts
    training, findings = trained(model, store, askew, "how=slope&nth=0&experts=eager", dtype)
    off = wrong(training)
    assert "model.layers.0" in off
    assert "model.layers.1" not in off
    assert "loss" not in off
    assert "gradient of model.layers.0." in off["model.layers.0"]
    assert [finding.code for finding in findings] == ["NUM030"]
    assert findings[0].subject.name == "model.layers.0"


@pytest.mark.parametrize("how", ["decay", "coupled"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_wrong_weight_decay_is_found_in_every_node(
    tiny: Tiny, store: Path, askew: Any, how: str, dtype: str
) -> None:
    training, _ = trained(tiny("llama"), store, askew, f"how={how}", dtype)
    off = wrong(training)
    assert set(off) == {"model.embed_tokens", "model.layers.0", "model.norm"}
    assert all("update of" in reason for reason in off.values())
    assert not any("gradient of" in reason for reason in off.values())


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("nan", "gradient of model.layers.0.mlp.up_proj.weight: nonfinite 1 is beyond 0"),
        ("lost", "model.layers.0.mlp.up_proj.weight has no gradient, and the reference's has one"),
    ],
)
def test_gradients_that_are_not_finite_or_not_there_are_told(
    tiny: Tiny, store: Path, askew: Any, how: str, said: str
) -> None:
    options = f"how={how}&weight=model.layers.0.mlp.up_proj.weight"
    training, _ = trained(tiny("llama"), store, askew, options)
    off = wrong(training)
    assert set(off) == {"model.layers.0"}
    assert said in off["model.layers.0"]


def test_what_has_no_gradient_must_not_move(tiny: Tiny, store: Path, askew: Any) -> None:
    model = tiny("deepseek_v3")  # its correction of the router's scores is not learnt by gradients
    training, _ = trained(model, store, askew, "how=none&experts=eager")
    assert wrong(training) == {}
    moved = "model.layers.1.mlp.gate.e_score_correction_bias"
    training, _ = trained(model, store, askew, f"how=moved&weight={moved}&experts=eager")
    assert wrong(training) == {"model.layers.1": f"{moved} moved, though it has no gradient"}


def test_experts_that_learnt_from_other_tokens_are_left_out(tiny: Tiny, store: Path, askew: Any) -> None:
    training, _ = trained(tiny("qwen3_moe"), store, askew, "how=none&experts=eager")
    layer = next(block for block in training.blocks if block.name == "model.layers.1")
    assert layer.verdict == "pass"
    assert layer.gradient is not None


def test_what_cannot_be_trained_says_why(tiny: Tiny, store: Path, askew: Any) -> None:
    training, findings = trained(tiny("llama"), store, askew, "how=none", memory=10_000)
    assert "million weights need" in training.reason
    assert [finding.code for finding in findings] == ["NUM031"]
    assert training.blocks == ()
    model = tiny("llama")
    target = ObservedTarget("eager@cpu/bf16")
    target._stack.offered = lambda: ["op"]  # type: ignore[method-assign]  # a target that cannot
    training, findings = train_once(model.release, case_of(model, store, "bf16", {}), target)
    assert training.reason == "eager@cpu/bf16 does not claim to train"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemma3_text", "gpt_oss", "mamba2", "qwen3_next", "mixtral", "deepseek_v3"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_other_families_train(tiny: Tiny, store: Path, askew: Any, name: str, dtype: str) -> None:
    training, _ = trained(tiny(name), store, askew, "how=none", dtype)
    assert training.reason == ""
    assert wrong(training) == {}


@pytest.mark.slow
def test_through_a_worker_it_is_the_same(tiny: Tiny, store: Path, askew: Any) -> None:
    model = tiny("llama")
    here, _ = trained(model, store, askew, "how=none")
    with open_target(TargetSpec.parse("eager@cpu/bf16"), timeout=100) as target:
        there, _ = train_once(model.release, case_of(model, store, "bf16", {}), target)
    assert there.blocks == here.blocks

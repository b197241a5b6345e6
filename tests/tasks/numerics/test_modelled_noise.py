"""Stacks that are sent bf16 and compute in fp8 or int8, whole comparisons: clean, and with one bug each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from day0.adapters.base.run_store import RunStore
from day0.tasks.job import NumericsOptions
from day0.tasks.numerics.measure import measure_numerics
from day0.tasks.numerics.question import Question
from day0.tasks.numerics.record import NumericsRecord
from support.in_process_target import InProcessTarget
from support.quantising_target import Bug, Kernel, QuantisingTarget
from support.tiny_releases import TinyRelease
from support.wide_models import save_wide

Wide = Callable[[str], TinyRelease]
Measured = Callable[..., NumericsRecord]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Wide:
    made: dict[str, TinyRelease] = {}

    def get(model_type: str) -> TinyRelease:
        if model_type not in made:
            made[model_type] = TinyRelease(save_wide(model_type, tmp_path_factory.mktemp(model_type)))
        return made[model_type]

    return get


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Comparisons of one store, so that each reference and noise arm runs once."""
    store = tmp_path_factory.mktemp("store")

    def compare(model: TinyRelease, target: Any, prompts: str = "texts,decode") -> NumericsRecord:
        question = Question(
            model.release,
            model.skeleton,
            RunStore(store),
            "Four words are here",
            asked=NumericsOptions(prompts=prompts),
        )
        return measure_numerics(question, target, target.describe())

    return compare


def _errors(record: NumericsRecord) -> dict[str, float]:
    return {block.name: float(block.local.rel_l2) for block in record.facts.blocks if block.local is not None}


def _noises(record: NumericsRecord) -> dict[str, float]:
    return {
        block.name: float(block.local.rel_l2) / float(block.local.ratio)
        for block in record.facts.blocks
        if block.local is not None and float(block.local.ratio) > 0
    }


_CLEAN = [
    ("qwen2", Kernel("fp8_e4m3")),
    ("qwen2", Kernel("int8", whole=False)),
    ("qwen3_moe", Kernel("fp8_e4m3", whole=False, still=True)),
]


@pytest.mark.parametrize(("family", "kernel"), _CLEAN)
def test_a_right_stack_passes_and_the_record_says_that_its_noise_is_modelled(
    wide: Wide, measured: Measured, family: str, kernel: Kernel
) -> None:
    target = QuantisingTarget(f"quantising@cpu/{kernel.dtype}?experts=eager", kernel)
    record = measured(wide(family), target)
    assert record.verdict == "pass"
    assert {block.verdict for block in record.facts.blocks} == {"pass"}
    assert record.facts.noise.startswith(f"reference fake-quantised to {kernel.dtype} ")
    assert record.facts.noise.endswith("all else in bf16")
    said = next(finding for finding in record.findings if finding.code == "NUM032")
    assert said.severity == "info"
    assert record.facts.noise in said.message
    assert record.facts.decode is not None
    second = QuantisingTarget(str(target.spec), kernel)
    assert measured(wide(family), second).facts_digest == record.facts_digest
    assert second.runs == []


def test_its_noise_is_that_of_the_precision_where_matrices_are_lowered_and_of_bf16_elsewhere(
    wide: Wide, measured: Measured
) -> None:
    model = wide("qwen2")
    fp8 = measured(model, QuantisingTarget("quantising@cpu/fp8_e4m3", Kernel("fp8_e4m3")))
    int8 = measured(model, QuantisingTarget("quantising@cpu/int8", Kernel("int8", whole=False)))
    bf16 = measured(model, InProcessTarget("eager@cpu/bf16"))
    layers = [node.name for node in model.skeleton.nodes if node.role == "layer"]
    own, narrow, narrower = _noises(bf16), _noises(int8), _noises(fp8)
    for name in layers:
        assert 1.5 * own[name] < narrow[name] < narrower[name] / 2 < 0.05
    assert narrower["lm_head"] == pytest.approx(own["lm_head"], rel=0.2)


def _in(parameter: str) -> Callable[[str, Tensor], bool]:
    return lambda name, _: name == parameter


_BUGS = [
    ("fp8_e4m3", "model.layers.1.mlp.down_proj", "no scale"),
    ("int8", "model.layers.2.self_attn.o_proj", "scale of the channel beside"),
    ("int8", "model.layers.1.self_attn.v_proj", "no bias"),
]


@pytest.mark.parametrize(("dtype", "where", "kind"), _BUGS)
def test_a_bug_in_one_matrix_is_found_in_its_layer_and_followed_to_it(
    wide: Wide, measured: Measured, dtype: str, where: str, kind: str
) -> None:
    kernel = Kernel(dtype, whole=dtype != "int8")
    bug = Bug(kind, _in(f"{where}.weight"))
    record = measured(wide("qwen2"), QuantisingTarget(f"quantising@cpu/{dtype}", kernel, bug))
    node = ".".join(where.split(".")[:3])
    assert record.verdict == "fail"
    assert [block.name for block in record.facts.blocks if block.verdict == "fail"] == [node]
    fault = record.facts.first_fault
    assert fault is not None
    assert fault.block == node
    assert fault.fragment == where
    assert fault.op == ""
    assert "not judged" in fault.detail


def test_a_dropped_scale_of_one_expert_is_found_in_its_layer(wide: Wide, measured: Measured) -> None:
    model = wide("qwen3_moe")
    node = [node.name for node in model.skeleton.nodes if node.experts][-1]
    wrong = model.stock.get_parameter(f"{node}.mlp.experts.down_proj")[2].bfloat16()
    bug = Bug("no scale", lambda name, shown: shown.shape == wrong.shape and torch.equal(shown, wrong))
    target = QuantisingTarget("quantising@cpu/fp8_e4m3?experts=eager", Kernel("fp8_e4m3"), bug)
    record = measured(model, target)
    assert [block.name for block in record.facts.blocks if block.verdict == "fail"] == [node]
    assert record.facts.first_fault is not None
    assert record.facts.first_fault.fragment == f"{node}.mlp.experts"


def test_a_stack_in_bf16_is_not_taken_for_one_in_fp8(wide: Wide, measured: Measured) -> None:
    record = measured(wide("qwen2"), InProcessTarget("eager@cpu/fp8_e4m3"))
    assert record.verdict == "unverified"
    assert [finding.code for finding in record.findings] == ["NUM014"]
    assert "does not say that it computes in fp8_e4m3: it names bf16, fp32" in record.findings[0].message


@pytest.mark.parametrize("dtype", ["fp4_e2m1", "e8m0"])
def test_a_format_without_a_scheme_stays_unverified(
    wide: Wide, measured: Measured, dtype: str, tmp_path: Path
) -> None:
    target = QuantisingTarget(f"quantising@cpu/{dtype}", Kernel("int8"), claims=("bf16", dtype))
    record = measured(wide("qwen2"), target)
    assert record.verdict == "unverified"
    assert [finding.code for finding in record.findings] == ["NUM014"]
    assert record.facts.blocks == ()

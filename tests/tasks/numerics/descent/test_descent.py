"""Faults of one operator in one layer are found to that operator, whatever way they are made."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.tasks.numerics.descent.descent import Descent, descend
from support.descents import searched, visit_of
from support.observed_target import ObservedTarget
from support.simulated_target import simulated
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
LAYER = "model.layers.1"


@pytest.fixture(autouse=True)
def _few_threads() -> Iterator[None]:
    """Tensors of some thousand elements gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def askew(faulty_stack: Path) -> Any:
    return importlib.import_module("day0_faulty.askew").AskewStack


def found(model: TinyRelease, askew: Any, options: str, *, dtype: str = "bf16", **more: Any) -> Descent:
    """What the search finds in the second layer of a target with these options."""
    target = ObservedTarget(f"askew@cpu/{dtype}?layer={LAYER}&{options}", askew)
    who = searched(model, target)
    visit = visit_of(model, who, LAYER, steps=more.pop("steps", 0), handed_out=more.pop("handed_out", False))
    return descend(visit, who, **more)


WAYS = [
    # A dispatch mode while the whole layer runs, and in its modules too.
    ("how=mode&op=aten.silu.default&factor=1.5", "mlp.act_fn", "aten.silu.default"),
    ("how=mode&op=aten.silu.default&factor=1.5&inside=1", "mlp.act_fn", "aten.silu.default"),
    ("how=mode&op=aten.mm.default&inside=1", "self_attn.q_proj", "aten.mm.default"),
    ("how=mode&op=aten._softmax.default&attn=eager&inside=1", "self_attn", "aten._softmax.default"),
    ("how=mode&op=aten.rsqrt.default&inside=1", "input_layernorm", "aten.rsqrt.default"),
    ("how=mode&op=aten.neg.default&factor=3", "self_attn", "aten.neg.default"),
    # Functions replaced, modules changed, other arguments.
    ("how=patched&op=silu&factor=1.5", "mlp.act_fn", "aten.silu.default"),
    ("how=other", "mlp.act_fn", "aten.silu.default"),
    ("how=forward&module=mlp.act_fn&factor=1.5", "mlp.act_fn", "aten.silu.default"),
    ("how=eps", "input_layernorm", "aten.add.Tensor"),
    ("how=argument&op=aten.mul.Tensor&attn=eager&factor=1.5", "self_attn", "aten.mul.Tensor"),
    # A kernel below all modes.
    ("how=kernel&factor=1.5", "mlp.act_fn", "aten.silu.default"),
    ("how=kernel&factor=1.5&inside=1", "mlp.act_fn", "aten.silu.default"),
    ("how=raises&op=aten.rsqrt.default", "input_layernorm", "aten.rsqrt.default"),
    ("how=raises&op=aten.rsqrt.default&inside=1", "input_layernorm", "aten.rsqrt.default"),
]


@pytest.mark.parametrize(("options", "module", "op"), WAYS)
def test_the_operator_is_named_and_the_module_that_calls_it(
    tiny: Tiny, askew: Any, options: str, module: str, op: str
) -> None:
    descent = found(tiny("llama"), askew, options)
    assert (descent.fragment, descent.op) == (f"{LAYER}.{module}", op), descent.detail


@pytest.mark.parametrize(
    ("options", "module", "op"),
    [
        ("how=write&op=aten.silu.default", "mlp.act_fn", "aten.silu.default"),
        ("how=narrow&op=aten.mm.default", "self_attn.q_proj", "aten.mm.default"),
        ("how=mode&op=aten.silu.default&factor=1.001", "mlp.act_fn", "aten.silu.default"),
    ],
)
def test_in_single_precision_small_errors_show(
    tiny: Tiny, askew: Any, options: str, module: str, op: str
) -> None:
    descent = found(tiny("llama"), askew, options, dtype="fp32")
    assert (descent.fragment, descent.op) == (f"{LAYER}.{module}", op), descent.detail


EXPERTS = [
    ("how=mode&op=aten.silu.default&factor=1.5&inside=1", "mlp.experts.act_fn", "aten.silu.default"),
    ("how=mode&op=aten._grouped_mm.default&factor=1.5&experts=grouped_mm&inside=1", "mlp.experts",
     "aten._grouped_mm.default"),
    pytest.param("how=mode&op=aten.bmm.default&factor=1.5&experts=batched_mm", "mlp.experts",
                 "aten.bmm.default", marks=pytest.mark.slow),
    pytest.param("how=mode&op=aten.topk.default&factor=1.5&inside=1", "mlp.gate", "aten.topk.default",
                 marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.parametrize(("options", "module", "op"), EXPERTS)
def test_experts_are_compared_with_the_implementation_that_the_target_runs(
    tiny: Tiny, askew: Any, options: str, module: str, op: str
) -> None:
    descent = found(tiny("qwen3_moe"), askew, options)
    assert (descent.fragment, descent.op) == (f"{LAYER}.{module}", op), descent.detail


def test_experts_that_are_handed_out_are_put_together_where_they_are_small(tiny: Tiny, askew: Any) -> None:
    options = "how=mode&op=aten.silu.default&factor=1.5"
    descent = found(tiny("qwen3_moe"), askew, options, handed_out=True)
    assert (descent.fragment, descent.op) == (f"{LAYER}.mlp.experts.act_fn", "aten.silu.default")


@pytest.mark.parametrize(
    ("options", "module", "op"),
    [
        ("how=mode&op=aten.silu.default&factor=1.5&inside=1&alone=1", "mlp.experts", "aten.silu.default"),
        ("how=mode&op=aten.silu.default&factor=1.5&inside=1", "mlp.experts", ""),
        ("how=mode&op=aten.rsqrt.default&factor=1.5&inside=1", "input_layernorm", "aten.rsqrt.default"),
        ("how=none", "", ""),
    ],
)
def test_large_experts_run_a_few_at_a_time(
    tiny: Tiny, askew: Any, monkeypatch: pytest.MonkeyPatch, options: str, module: str, op: str
) -> None:
    monkeypatch.setattr("day0.tasks.numerics.descent.part_runs.ASSEMBLED_BYTES", 0)
    descent = found(tiny("qwen3_moe"), askew, options, handed_out=True)
    assert descent.fragment == (f"{LAYER}.{module}" if module else ""), descent.detail
    assert descent.op == op, descent.detail


@pytest.mark.parametrize("inside", ["", "&inside=1"])
def test_a_fault_in_steps_of_decoding_is_looked_for_with_the_cache(
    tiny: Tiny, askew: Any, inside: str
) -> None:
    options = f"how=mode&op=aten._softmax.default&attn=eager&factor=2&decode=1{inside}"
    descent = found(tiny("llama"), askew, options, steps=2)
    assert (descent.fragment, descent.op) == (f"{LAYER}.self_attn", "aten._softmax.default"), descent.detail
    assert descent.detail.startswith("on decode.0")


def test_the_first_of_two_faulty_operators_is_named(tiny: Tiny, askew: Any) -> None:
    target = ObservedTarget(f"askew@cpu/bf16?layer={LAYER}&how=eps", askew)
    who = searched(tiny("llama"), target)
    descent = descend(visit_of(tiny("llama"), who, LAYER), who)
    assert descent.fragment == f"{LAYER}.input_layernorm"  # and not the norm after attention
    assert "eps" in descent.detail or "0.1 where the reference has 1e-06" in descent.detail


def test_a_right_node_has_no_operator_beyond_noise(tiny: Tiny, askew: Any) -> None:
    for name, options in (("llama", "attn=eager"), ("qwen3_moe", "experts=batched_mm")):
        descent = found(tiny(name), askew, options)
        assert (descent.fragment, descent.op, descent.repro) == ("", "", ""), descent.detail


def test_without_observing_operators_are_tried_one_by_one(tiny: Tiny, askew: Any) -> None:
    alone = "how=mode&op=aten.silu.default&factor=1.5&inside=1&blind=1"
    descent = found(tiny("llama"), askew, f"{alone}&alone=1")
    assert (descent.fragment, descent.op) == (f"{LAYER}.mlp.act_fn", "aten.silu.default"), descent.detail
    assert "alone, on the reference's inputs" in descent.detail
    descent = found(tiny("llama"), askew, alone)
    assert (descent.fragment, descent.op, descent.repro) == (f"{LAYER}.mlp.act_fn", "", "")
    assert "each of its operators alone is right" in descent.detail


def test_a_script_shows_the_operator_where_it_is_wrong_alone(
    tiny: Tiny, askew: Any, faulty_stack: Path, tmp_path: Path
) -> None:
    descent = found(tiny("llama"), askew, "how=mode&op=aten.silu.default&inside=1&alone=1")
    assert descent.op == "aten.silu.default"
    assert _exit(descent.repro, tmp_path, faulty_stack) == 1
    assert _exit(descent.repro.replace("'how': 'mode'", "'how': 'none'"), tmp_path, faulty_stack) == 0
    right_alone = found(tiny("llama"), askew, "how=mode&op=aten.silu.default&inside=1")
    assert right_alone.op == "aten.silu.default"
    assert right_alone.repro == ""


def _exit(text: str, folder: Path, package: Path) -> int:
    file = folder / "repro.py"
    file.write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=100, check=False, env=environment
    )
    return done.returncode


@pytest.mark.usefixtures("faulty_stack")
def test_through_a_worker_it_is_the_same(tiny: Tiny) -> None:
    model = tiny("llama")
    text = f"askew@cpu/bf16?layer={LAYER}&how=mode&op=aten.silu.default&factor=1.5"
    with open_target(TargetSpec.parse(text), timeout=100) as target:
        who = searched(model, target)
        descent = descend(visit_of(model, who, LAYER), who)
    assert (descent.fragment, descent.op) == (f"{LAYER}.mlp.act_fn", "aten.silu.default"), descent.detail


@pytest.mark.slow
@pytest.mark.parametrize("op", ["aten.silu.default", "aten.rsqrt.default", "aten.mm.default"])
def test_a_wrong_kernel_of_a_device_is_found_and_its_script_shows_it(
    tiny: Tiny, tmp_path: Path, op: str
) -> None:
    model, stack = tiny("llama"), "support.simulated_nodes:SimulatedNodes"
    with simulated(100.0, "bf16", {"wrong": op}, "npu", stack) as target:
        who = searched(model, target)
        descent = descend(visit_of(model, who, LAYER), who)
    assert descent.op == op, descent.detail
    assert descent.repro


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemma3_text", "gpt_oss", "deepseek_v3", "mamba2", "qwen3_next", "mixtral"])
def test_other_families_are_right_and_their_faults_are_found(tiny: Tiny, askew: Any, name: str) -> None:
    model = tiny(name)
    layer = [node.name for node in model.skeleton.nodes if node.role == "layer"][1]
    for options, op in (
        ("how=none", ""),
        ("how=mode&op=aten.rsqrt.default&factor=1.5", "aten.rsqrt.default"),
    ):
        who = searched(model, ObservedTarget(f"askew@cpu/bf16?layer={layer}&{options}", askew))
        descent = descend(visit_of(model, who, layer), who)
        assert descent.op == op, descent.detail

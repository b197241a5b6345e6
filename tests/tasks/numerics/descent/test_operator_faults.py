"""Whether an operator's result is explained by its inputs, and which operators belong together."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Answer, Call, ObservedOperator
from day0.adapters.models.encoding import Arguments
from day0.tasks.numerics.descent.operator_faults import Suspect, differing, isolated
from day0.tasks.numerics.descent.operator_repro import repro
from day0.tasks.numerics.descent.operator_trace import aligned, hands_on, with_attributes
from day0.tasks.numerics.descent.operator_values import off
from support.observed_target import ObservedTarget

BF16 = torch.bfloat16


def call_of(op: str, *args: object, **kwargs: object) -> OperatorCall:
    made = Arguments(args, kwargs).call(op, module="", phase="prefill")
    return with_attributes(made)


def operator(op: str, *shapes: tuple[int, ...]) -> ObservedOperator:
    tensors = [torch.zeros(shape) for shape in shapes]
    return ObservedOperator(call_of(op, *tensors), tensors, ())


def test_rounding_is_right_and_a_mean_gain_of_two_percent_is_not() -> None:
    exact = torch.randn(64, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    own = exact.to(BF16)
    up = torch.nextafter(own, torch.full_like(own, torch.inf))
    one_off = torch.where(torch.rand(own.shape) < 0.2, up, own)
    assert off(own, exact, own) == ""
    assert off(one_off, exact, own) == ""
    assert "is beyond" in off((exact * 1.02).to(BF16), exact, own)
    assert off(own[:, :3], exact, own) == "shape [64, 3] where [64, 32] is due"
    broken = own.clone()
    broken[3, 3] = torch.nan
    assert off(broken, exact, own) == "nonfinite 1 is beyond 0"


def test_places_of_equal_values_may_differ_and_others_may_not() -> None:
    given = torch.tensor([[3.0, 1.0, 3.0, 2.0]])
    call = call_of("aten.topk.default", given, 2)
    assert off(torch.tensor([[2, 0]]), None, torch.tensor([[0, 2]]), call=call, given=given) == ""
    wrong = off(torch.tensor([[0, 3]]), None, torch.tensor([[0, 2]]), call=call, given=given)
    assert wrong == "1 of 2 values differ"
    assert "differ" in off(torch.tensor([[0, 9]]), None, torch.tensor([[0, 2]]), call=call, given=given)
    largest = call_of("aten.argmax.default", given, -1)
    assert off(torch.tensor([2]), None, torch.tensor([0]), call=largest, given=given) == ""


def test_an_operator_is_judged_on_its_own_inputs() -> None:
    left, right = torch.randn(8, 16).to(BF16), torch.randn(16, 8).to(BF16)
    call = call_of("aten.mm.default", left, right)
    product = torch.mm(left, right)
    assert isolated(call, ObservedOperator(call, [left, right], [product])) == ""
    assert "is beyond" in isolated(call, ObservedOperator(call, [left, right], [product * 1.1]))
    assert isolated(call, ObservedOperator(call, [left, None], [product * 1.1])) == ""
    unknown = call.model_copy(update={"op": "acme.mm.default"})
    assert isolated(unknown, ObservedOperator(unknown, [left, right], [product * 1.1])) == ""


def test_what_only_one_side_calls_stands_before_what_only_the_other_does() -> None:
    both, other = operator("aten.mm.default", (2, 3), (3, 2)), operator("aten.mm.default", (4, 3), (3, 4))
    scaled, silu, sigmoid = (operator(f"aten.{name}.default", (2, 2)) for name in ("mul", "silu", "sigmoid"))
    steps = aligned([both, sigmoid, scaled, other], [both, silu, other])
    assert [(step.target, step.noise) for step in steps] == [
        (0, 0), (1, None), (2, None), (None, 1), (3, 2),
    ]  # fmt: skip
    assert [(step.target, step.noise) for step in aligned([both], [both])] == [(0, 0)]


def test_arguments_that_differ_are_told_by_name() -> None:
    value = torch.ones(2, 3)
    one, other = (call_of("aten.add.Tensor", value, number) for number in (0.1, 1e-6))
    assert differing(one, other) == "other 0.1 where the reference has 1e-06"
    assert differing(one, one) == ""


def test_views_hand_values_on() -> None:
    assert hands_on("aten.view.default")
    assert hands_on("aten._unsafe_view.default")
    assert not hands_on("aten.mul_.Tensor")
    assert not hands_on("acme.view.default")


@pytest.mark.slow
def test_a_script_for_large_inputs_draws_them_in_their_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = torch.randn(200, 300).to(BF16) * 5, torch.randn(300, 200).t().contiguous().t().to(BF16)
    call = call_of("aten.mm.default", left, right)
    target = ObservedTarget("eager@cpu/bf16")
    suspect = Suspect(call, "", [left, right])
    assert repro(suspect, target, "model.layers.0") == ""
    monkeypatch.setattr(target, "run_op", lambda call, tensors: _wrong(target, call, tensors))
    text = repro(suspect, target, "model.layers.0")
    assert "drawn(torch.bfloat16, [200, 300]" in text
    file = tmp_path / "repro.py"
    file.write_text(text)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-I", str(file)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr  # the CPU's own kernel is right


def _wrong(target: ObservedTarget, call: OperatorCall, tensors: Sequence[torch.Tensor]) -> Answer:
    answer = ObservedTarget.run_op(target, call, tensors)
    changed = {name: tensor * 1.2 for name, tensor in answer.outputs.tensors.items()}
    return replace(answer, outputs=Call(answer.outputs.tree, changed))

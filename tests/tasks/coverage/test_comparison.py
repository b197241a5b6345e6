from __future__ import annotations

from typing import Any

import pytest
import torch

from day0.tasks.coverage.comparison import compare
from day0.tasks.operator_reference import NoReference, Reference, compute_reference, flat_outputs
from day0.tasks.thresholds import OPERATOR_TOLERANCE
from day0_worker.operator_inputs import make_inputs
from day0_worker.operators import decode_call, resolve
from support.captured import call_of, meta

_aten = torch.ops.aten
_BF16 = torch.bfloat16


def _case(function: Any, *args: Any, spread: str = "unit", **kwargs: Any) -> tuple[str, list[Any], Reference]:
    """The operator's own outputs and the reference."""
    call = call_of(function, *args, **kwargs)
    encoded = call.model_dump(mode="json")
    tensors = make_inputs(encoded, 1, spread)
    given, named = decode_call(encoded, [tensor.clone() for tensor in tensors])
    return call.op, flat_outputs(resolve(call.op)(*given, **named)), compute_reference(encoded, tensors)


_SOUND = [
    (_aten.mm.default, (meta(64, 256, dtype=_BF16), meta(256, 64, dtype=_BF16)), {}),
    (_aten.mm.default, (meta(64, 256), meta(256, 64)), {}),
    (_aten.exp.default, (meta(512),), {}),
    (_aten._softmax.default, (meta(4, 512, dtype=_BF16), -1, False), {}),
    (_aten._softmax.default, (meta(4, 512), -1, False), {}),
    (_aten._to_copy.default, (meta(99),), {"dtype": torch.float16}),
    (_aten._to_copy.default, (meta(99),), {"dtype": torch.int64}),
    (_aten.add_.Tensor, (meta(9), meta(9)), {}),
    (_aten.sort.default, (meta(3, 300),), {}),
    (_aten.lt.Scalar, (meta(300, dtype=_BF16), 0.5), {}),
    (_aten.silu.default, (meta(300, dtype=_BF16),), {}),
    (_aten.multinomial.default, (meta(2, 30), 4), {}),
    (_aten.empty_like.default, (meta(2, 30),), {}),
    (_aten.argmax.default, (meta(2, 300),), {}),
]


@pytest.mark.parametrize("spread", ["unit", "wide"])
@pytest.mark.parametrize(("function", "args", "kwargs"), _SOUND)
def test_correct_kernels_agree(function: Any, args: Any, kwargs: Any, spread: str) -> None:
    outcome = compare(*_case(function, *args, spread=spread, **kwargs))
    assert outcome.agrees, outcome.reason


def test_a_grouped_product_is_held_against_a_loop() -> None:
    op, outputs, reference = _case(
        _aten._grouped_mm.default,
        meta(32, 16, dtype=_BF16),
        meta(4, 16, 32, dtype=_BF16),
        meta(4, dtype=torch.int32),
    )
    assert reference.kind == "loop"
    assert compare(op, outputs, reference).agrees


def test_what_nothing_can_compute_is_no_evidence() -> None:
    call = call_of(_aten.mm.default, meta(4, 5), meta(5, 6)).model_dump(mode="json")
    call["args"] = call["args"][:1]
    with pytest.raises(NoReference, match="in no precision"):
        compute_reference(call, [torch.ones(4, 5)])


def test_counts_of_whole_numbers_have_a_reference() -> None:
    call = call_of(_aten.histc.default, meta(20, dtype=torch.int32), 8, 0, 7).model_dump(mode="json")
    values = torch.tensor([0, 1, 1, 7, 7, 7], dtype=torch.int32).repeat(4)[:20]
    reference = compute_reference(call, [values])
    assert reference.values[0].tolist() == [4, 7, 0, 0, 0, 0, 0, 9]
    assert compare("aten.histc.default", [reference.values[0].int()], reference).agrees


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, _BF16])
def test_one_percent_more_is_found_where_the_dtype_can_show_it(dtype: torch.dtype) -> None:
    op, (output,), reference = _case(_aten.silu.default, meta(500, dtype=dtype))
    assert compare(op, [output], reference).agrees
    assert compare(op, [output * 1.04], reference).agrees is False


def test_a_clamp_shows_in_the_wide_range_only() -> None:
    for spread, agrees in (("unit", True), ("wide", False)):
        op, (output,), reference = _case(_aten.exp.default, meta(500), spread=spread)
        clamped = output.clamp(max=float(torch.tensor(8.0).exp()))
        assert compare(op, [clamped], reference).agrees is agrees


def test_shape_dtype_and_number_of_outputs_count() -> None:
    op, outputs, reference = _case(_aten.sort.default, meta(3, 20))
    assert "1 outputs where 2" in compare(op, outputs[:1], reference).reason
    op, (output,), reference = _case(_aten.neg.default, meta(3, 20, dtype=_BF16))
    assert "shape" in compare(op, [output[:1]], reference).reason
    assert "dtype float32 where bfloat16" in compare(op, [output.float()], reference).reason


def test_positions_and_flags_must_be_equal() -> None:
    op, (values, positions), reference = _case(_aten.topk.default, meta(2, 90), 5)
    wrong = positions.clone()
    wrong[0, 0] += 1
    outcome = compare(op, [values, wrong], reference)
    assert (outcome.agrees, outcome.reason) == (False, "output 1: 1 of 10 values differ")


def test_nan_and_infinity_are_never_rounding() -> None:
    op, (output,), reference = _case(_aten.neg.default, meta(30))
    broken = output.clone()
    broken[3] = float("nan")
    assert compare(op, [broken], reference).agrees is False
    overflowing = Reference(
        [torch.tensor([1e6], dtype=torch.float64)], [torch.ones(1, dtype=torch.float16)], "fp64"
    )
    assert compare(op, [torch.tensor([float("inf")], dtype=torch.float16)], overflowing).agrees
    assert compare(op, [torch.tensor([float("-inf")], dtype=torch.float16)], overflowing).agrees is False


def test_a_half_precision_detour_of_fp32_is_found() -> None:
    op, _, reference = _case(_aten.mm.default, meta(64, 256), meta(256, 64))
    call = call_of(_aten.mm.default, meta(64, 256), meta(256, 64)).model_dump(mode="json")
    left, right = make_inputs(call, 1)
    detour = (left.half().float() @ right.half().float()).float()
    outcome = compare(op, [detour], reference)
    assert outcome.agrees is False
    assert outcome.error is not None
    assert outcome.error > OPERATOR_TOLERANCE["fp32"]


def test_scaled_products_have_a_reference() -> None:
    """By hand: a block of 128 values shares a scale, the last block is shorter."""
    fp8, fp32 = torch.float8_e4m3fn, torch.float32
    given = [
        torch.ones(2, 160).to(fp8),
        torch.ones(160, 144).to(fp8),
        torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        torch.tensor([[1.0, 10.0], [1.0, 10.0]]),
    ]
    call = call_of(
        _aten._scaled_mm.default, meta(2, 160, dtype=fp8), meta(144, 160, dtype=fp8).t(),
        meta(2, 1, dtype=fp32), meta(1, 144, dtype=fp32), out_dtype=_BF16,
    ).model_dump(mode="json")  # fmt: skip
    for place in (2, 3):  # blocks are for devices only, also on meta
        call["args"][place]["tensor"] |= {"shape": [2, 2], "stride": [2, 1]}
    (value,) = compute_reference(call, given).values
    first, second = 128 * 1.0 + 32 * 2.0, 128 * 3.0 + 32 * 4.0
    assert value[:, 0].tolist() == [first, second]
    assert value[:, 143].tolist() == [10 * first, 10 * second]

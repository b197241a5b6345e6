from __future__ import annotations

import torch

from day0.adapters.base.operator_call import OperatorCall
from day0.tasks.coverage.shrink import elements, runs_on_meta, shrink
from support.captured import call_of, meta

_aten = torch.ops.aten
_BF16 = torch.bfloat16


def _shapes(call: OperatorCall | None) -> list[list[int]]:
    assert call is not None
    return [list(shape) for shape in call.shapes]


def test_what_is_small_stays_as_it_is() -> None:
    call = call_of(_aten.mm.default, meta(64, 32), meta(32, 8))
    assert shrink(call, 10_000) is call


def test_equal_sizes_stay_equal() -> None:
    call = call_of(_aten.mm.default, meta(64, 4096, dtype=_BF16), meta(4096, 11008, dtype=_BF16))
    (rows, inner), (again, columns) = _shapes(shrink(call, 2**20))
    assert inner == again
    assert rows <= 64
    assert 1 < columns < 11008
    smaller = shrink(call, 2**20)
    assert smaller is not None
    assert elements(smaller.shapes) <= 2**20
    assert (smaller.op, list(smaller.dtypes), smaller.row_key) == (call.op, list(call.dtypes), call.row_key)


def test_arguments_that_name_a_size_go_with_it() -> None:
    call = call_of(_aten.view.default, meta(8, 1024, 4096), [8192, 4096])
    smaller = shrink(call, 2**16)
    assert smaller is not None
    assert runs_on_meta(smaller)
    (shape,) = _shapes(smaller)
    target = list(smaller.args[1])
    assert target[0] * target[1] == shape[0] * shape[1] * shape[2]


def test_attributes_that_are_no_sizes_stay() -> None:
    call = call_of(_aten.topk.default, meta(1, 151936), 50)
    smaller = shrink(call, 2**12)
    assert smaller is not None
    assert smaller.args[1] == 50
    assert 50 <= smaller.shapes[0][1] <= 2**12


def test_parts_of_a_dimension_shrink_with_it() -> None:
    call = call_of(_aten.split_with_sizes.default, meta(1, 64, 16, 768), [128, 128, 256, 256], 3)
    smaller = shrink(call, 2**18)
    assert smaller is not None
    first, second, third, fourth = smaller.args[1]
    assert (first, third) == (second, fourth)
    assert 2 * (first + third) == smaller.shapes[0][3]
    assert smaller.args[2] == 3


def test_transposed_inputs_stay_transposed() -> None:
    call = call_of(_aten.mm.default, meta(64, 4096), meta(11008, 4096).t())
    smaller = shrink(call, 2**20)
    assert smaller is not None
    stride = smaller.args[1]["tensor"]["stride"]
    assert stride[0] == 1
    assert stride[1] == smaller.shapes[1][0]


def test_experts_of_a_671b_model_fit() -> None:
    call = call_of(
        _aten._grouped_mm.default,
        meta(512, 7168, dtype=_BF16),
        meta(256, 7168, 4096, dtype=_BF16),
        meta(256, dtype=torch.int32),
    )
    smaller = shrink(call, 2**20)
    assert smaller is not None
    assert elements(smaller.shapes) <= 2**20
    assert runs_on_meta(smaller)


def test_what_cannot_be_made_smaller_is_said() -> None:
    call = call_of(_aten.view.default, meta(3, 7, 11, 13), [3 * 7 * 11 * 13])
    assert shrink(call, 8) is None

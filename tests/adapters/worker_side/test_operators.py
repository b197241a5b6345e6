from __future__ import annotations

import pytest
import torch

from day0_worker.operators import decode_call, resolve, with_strides
from day0_worker.stack import StackError
from support.captured import call_of, meta


def test_names_resolve_to_overloads() -> None:
    assert resolve("aten.mm.default") is torch.ops.aten.mm.default
    for name in ("aten.no_such_thing.default", "aten.mm.no_such", "vendor_x.op.default", "mm"):
        with pytest.raises(StackError) as caught:
            resolve(name)
        assert caught.value.kind == "missing_operator"


def test_a_call_comes_back_as_it_was_captured() -> None:
    x = meta(4, 6, dtype=torch.bfloat16).t()
    call = call_of(torch.ops.aten.clamp.default, x, float("-inf"), 2.5).model_dump(mode="json")
    values = torch.randn(6, 4, dtype=torch.bfloat16)
    args, kwargs = decode_call(call, [values])
    assert torch.equal(args[0], values)
    assert args[0].stride() == (1, 6)
    assert args[1:] == [float("-inf"), 2.5]
    assert kwargs == {}
    cast = call_of(torch.ops.aten._to_copy.default, x, dtype=torch.float8_e4m3fn, device=torch.device("meta"))
    _, kwargs = decode_call(cast.model_dump(mode="json"), [values])
    assert kwargs == {"dtype": torch.float8_e4m3fn, "device": torch.device("cpu")}


def test_one_tensor_in_two_places_stays_one() -> None:
    x = meta(3)
    args, _ = decode_call(call_of(torch.ops.aten.add_.Tensor, x, x).model_dump(mode="json"), [torch.ones(3)])
    assert args[0] is args[1]
    resolve("aten.add_.Tensor")(*args)
    assert args[1].tolist() == [2, 2, 2]


def test_lists_of_tensors() -> None:
    call = call_of(torch.ops.aten.cat.default, [meta(2), meta(3)], 0)
    args, _ = decode_call(call.model_dump(mode="json"), [torch.zeros(2), torch.ones(3)])
    assert resolve(call.op)(*args).tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    "encoded", [{"args": [{"code": "x"}]}, {"args": [{"a": 1, "b": 2}]}, {"args": [{"tensor": {"alias": 7}}]}]
)
def test_what_is_not_in_the_grammar_is_refused(encoded: dict[str, object]) -> None:
    with pytest.raises(StackError):
        decode_call({"op": "aten.neg.default", **encoded}, [torch.ones(1)])


@pytest.mark.parametrize(
    ("shape", "stride"), [((2, 3), (1, 2)), ((2, 3), (5, 1)), ((4, 3), (0, 1)), ((3,), (2,))]
)
def test_strides_keep_the_values(shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
    base = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    laid = with_strides(base, stride)
    assert laid.stride() == stride
    expected = base[:1].expand(shape) if 0 in stride else base
    assert torch.equal(laid, expected)

from __future__ import annotations

from typing import Any

import pytest
import torch

from day0.adapters.models.recorder import capture_calls
from day0_worker.operator_inputs import make_inputs
from day0_worker.operators import decode_call, resolve
from support.captured import call_of, calls_of, meta
from support.tiny_models import TINY

_aten = torch.ops.aten
_INT = torch.int64


def _inputs(function: Any, *args: Any, spread: str = "unit", **kwargs: Any) -> list[torch.Tensor]:
    return make_inputs(call_of(function, *args, **kwargs).model_dump(mode="json"), 3, spread)


def test_equal_seeds_give_equal_tensors() -> None:
    call = call_of(_aten.mm.default, meta(5, 6), meta(6, 7)).model_dump(mode="json")
    one, two, other = make_inputs(call, 1), make_inputs(call, 1), make_inputs(call, 2)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not torch.equal(one[0], other[0])
    assert (one[0].shape, one[0].dtype) == ((5, 6), torch.float32)


def test_the_wide_range_shows_a_clamp() -> None:
    (unit,) = _inputs(_aten.exp.default, meta(400))
    (wide,) = _inputs(_aten.exp.default, meta(400), spread="wide")
    assert unit.abs().max() < 6
    assert wide.max() > 12
    assert wide.min() < -12
    assert (wide.abs() < 0.01).any()


def test_indices_stay_within_what_they_index() -> None:
    (_, rows) = _inputs(_aten.embedding.default, meta(9, 4), meta(50, dtype=_INT))
    assert rows.min() >= 0
    assert rows.max() < 9
    (_, along) = _inputs(_aten.gather.default, meta(3, 5), 1, meta(3, 40, dtype=_INT))
    assert along.max() < 5
    (_, first, second) = _inputs(
        _aten.index.Tensor, meta(4, 30), [meta(60, dtype=_INT), meta(60, dtype=_INT)]
    )
    assert first.max() < 4 <= second.max() < 30


def test_scattered_places_are_written_once() -> None:
    (_, index, _) = _inputs(_aten.scatter.src, meta(3, 8), 1, meta(3, 6, dtype=_INT), meta(3, 6))
    assert all(len(set(row)) == 6 for row in index.tolist())


def test_functions_get_what_they_are_defined_for() -> None:
    for function in (_aten.log.default, _aten.rsqrt.default, _aten.sqrt.default):
        for spread in ("unit", "wide"):
            assert torch.isfinite(function(_inputs(function, meta(99), spread=spread)[0])).all()
    (_, divisor) = _inputs(_aten.div.Tensor, meta(99), meta(99))
    assert divisor.abs().min() > 0.1
    (probabilities,) = _inputs(_aten.multinomial.default, meta(2, 9), 1)
    assert probabilities.min() >= 0


def test_orders_are_decided() -> None:
    (values,) = _inputs(_aten.topk.default, meta(3, 400, dtype=torch.bfloat16), 4)
    assert values.shape == (3, 400)
    (few,) = _inputs(_aten.sort.default, meta(3, 40, dtype=torch.bfloat16))
    assert all(len(set(row)) == 40 for row in few.float().tolist())


def test_every_query_sees_a_key() -> None:
    q, k, v = (meta(1, 2, 6, 8) for _ in range(3))
    mask = meta(1, 1, 6, 6, dtype=torch.bool)
    (call,) = capture_calls(
        torch.nn.Identity(),
        lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        phase="prefill",
    )
    seen = make_inputs(call.model_dump(mode="json"))[3]
    assert seen.any(-1).all()
    assert not seen.all()


def test_groups_end_at_the_last_row() -> None:
    left = meta(32, 16, dtype=torch.bfloat16)
    right = meta(4, 16, 32, dtype=torch.bfloat16)
    tensors = _inputs(_aten._grouped_mm.default, left, right, meta(4, dtype=torch.int32))
    ends = tensors[2].tolist()
    assert ends == sorted(ends)
    assert ends[-1] == 32
    assert ends[0] == ends[1]


@pytest.mark.parametrize("model_type", ["llama", "qwen3_moe", "mamba2"])
def test_every_captured_call_runs_on_its_inputs(model_type: str) -> None:
    assert model_type in TINY
    for call in calls_of(model_type):
        if call.branch == "accelerator":
            continue
        encoded = call.model_dump(mode="json")
        args, kwargs = decode_call(encoded, make_inputs(encoded))
        with torch.no_grad():
            resolve(call.op)(*args, **kwargs)

from __future__ import annotations

from typing import Any

import pytest
import torch

from day0.adapters.models import recorder
from day0.adapters.models.recorder import CaptureOverrun, capture_calls
from support.captured import call_of, calls_in, meta, meta_model
from support.tiny_models import TINY


def test_arguments_are_encoded() -> None:
    x = meta(2, 3, dtype=torch.bfloat16)
    call = call_of(torch.ops.aten.add.Tensor, x, x, alpha=2)
    assert call.op == "aten.add.Tensor"
    tensor = {"tensor": {"dtype": "bf16", "shape": [2, 3], "stride": [3, 1], "alias": 0}}
    assert list(call.args) == [tensor, tensor]
    assert call.kwargs == {"alpha": 2}
    assert (list(call.dtypes), list(map(list, call.shapes))) == (["bf16"], [[2, 3]])
    assert call.row_key == "aten.add.Tensor|bf16|2"


def test_what_json_cannot_hold_is_marked() -> None:
    call = call_of(torch.ops.aten.clamp.default, meta(2), float("-inf"), 1.5)
    assert list(call.args[1:]) == [{"float": "-Infinity"}, 1.5]
    cast = call_of(torch.ops.aten._to_copy.default, meta(2), dtype=torch.float16)
    assert cast.kwargs == {"dtype": {"dtype": "fp16"}}
    assert cast.row_key == "aten._to_copy.default|fp32|1|fp16"
    laid = call_of(torch.ops.aten.clone.default, meta(2, 2).t(), memory_format=torch.contiguous_format)
    assert laid.kwargs == {"memory_format": {"memory_format": "contiguous"}}
    made = call_of(torch.ops.aten.zeros.default, [2], device=torch.device("meta"))
    assert made.kwargs == {"device": {"device": "target"}}


def test_signatures_tell_apart_what_differs() -> None:
    calls = calls_in(lambda: [meta(2, 3).sum(0), meta(2, 3).sum(1), meta(2, 3).sum(0), meta(3, 2).t().sum(0)])
    sums = [call for call in calls if call.op == "aten.sum.dim_IntList"]
    assert [call.count for call in sums] == [2, 1, 1]
    assert len({call.signature for call in sums}) == 3


def test_composites_are_seen_as_what_they_are_made_of() -> None:
    layer = torch.nn.Linear(4, 4, device="meta")
    ops = {call.op for call in capture_calls(layer, lambda: layer(meta(2, 3, 4)), phase="prefill")}
    assert "aten.addmm.default" in ops
    assert not any("linear" in op for op in ops)


def test_attention_is_one_operator() -> None:
    q, kv = meta(1, 4, 8, 16), meta(1, 2, 8, 16)

    def run() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, kv, kv, enable_gqa=True)

    (call,) = capture_calls(torch.nn.Identity(), run, phase="decode")
    assert call.op == "aten.scaled_dot_product_attention.default"
    assert call.kwargs == {"enable_gqa": True}
    assert list(map(list, call.shapes)) == [[1, 4, 8, 16], [1, 2, 8, 16]]


def test_host_work_is_not_the_targets() -> None:
    x = meta(3)

    def run() -> None:
        torch.ones(3).add(1)
        x.neg()

    assert [call.op for call in capture_calls(torch.nn.Identity(), run, phase="prefill")] == [
        "aten.neg.default"
    ]


def test_both_sides_of_a_branch_on_values_are_taken() -> None:
    def run() -> Any:
        x = meta(4)
        return x.exp() if (x > 0).all() else x.log()

    ops = {call.op for call in capture_calls(torch.nn.Identity(), run, phase="prefill")}
    assert {"aten.exp.default", "aten.log.default"} <= ops


def test_a_branch_that_fails_leaves_the_other_one() -> None:
    def run() -> Any:
        if (meta(4) > 0).all():
            raise ValueError("not taken in reality")
        return meta(4).log()

    assert "aten.log.default" in {
        call.op for call in capture_calls(torch.nn.Identity(), run, phase="prefill")
    }
    with pytest.raises(ZeroDivisionError):
        capture_calls(torch.nn.Identity(), lambda: 1 / 0, phase="prefill")


def test_an_endless_loop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_CALLS", 50)

    def run() -> None:
        while True:
            meta(2).neg()

    with pytest.raises(CaptureOverrun, match="more than 50"):
        capture_calls(torch.nn.Identity(), run, phase="prefill")


_FEW = ("llama", "gpt_oss", "mamba2")


@pytest.mark.parametrize(
    "model_type",
    [*_FEW, *(pytest.param(name, marks=pytest.mark.slow) for name in sorted(TINY) if name not in _FEW)],
)
def test_one_layer_of_a_kind_counts_for_all_of_them(model_type: str) -> None:
    layers = 8 if "layer_types" not in TINY[model_type] else TINY[model_type]["num_hidden_layers"]
    model = meta_model(model_type, num_hidden_layers=layers)
    ids = torch.zeros((1, 16), dtype=torch.int64, device="meta")
    seen: dict[str, Any] = {}

    def prepare() -> None:
        output: Any = model(input_ids=ids, use_cache=True)
        seen["cache"] = getattr(output, "cache", None) or output.past_key_values

    def prefill() -> None:
        model(input_ids=ids, use_cache=True)

    def decode() -> None:
        model(input_ids=ids[:, :1], cache=seen["cache"], use_cache=True)

    for run in (prefill, decode):
        shared = capture_calls(model, run, phase="x", prepare=prepare)
        every = capture_calls(model, run, phase="x", prepare=prepare, share_layers=False)
        assert {call.signature: (call.count, call.module, sorted(call.modules)) for call in shared} == {
            call.signature: (call.count, call.module, sorted(call.modules)) for call in every
        }


def test_modules_get_their_own_forwards_back() -> None:
    model = meta_model("llama", num_hidden_layers=6)
    capture_calls(model, lambda: model(input_ids=meta(1, 4, dtype=torch.int64).long()), phase="prefill")
    assert all("forward" not in vars(module) for module in model.modules())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_layer_that_is_told_its_number_stands_for_the_others() -> None:
    ran: list[int] = []

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(meta(4, 4))

        def forward(self, x: torch.Tensor, layer_idx: int, scale: float) -> torch.Tensor:
            ran.append(layer_idx)
            return (x @ self.weight) * scale

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(Layer() for _ in range(9))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for number, layer in enumerate(self.layers):
                x = layer(x, number, 2.0 if number == 5 else 1.0)
            return x

    model = Model()
    calls = capture_calls(model, lambda: model(meta(3, 4)), phase="prefill")
    assert ran == [0, 5, 8]  # the first, the last, and the one that is given something else
    (product,) = [call for call in calls if call.op == "aten.mm.default"]
    assert product.count == 9

from __future__ import annotations

from collections import Counter

import pytest
import torch

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target_spec import TargetSpec
from day0.tasks.coverage.impact import shares, work_of
from day0.tasks.coverage.needs import group, on_target, request_of, retyped
from support.captured import call_of, calls_of, meta

_aten = torch.ops.aten
_BF16 = torch.bfloat16


def test_work_follows_the_formulas() -> None:
    mm = work_of(call_of(_aten.mm.default, meta(8, 16, dtype=_BF16), meta(16, 4, dtype=_BF16)))
    assert (mm.flops, mm.bytes) == (2 * 8 * 16 * 4, 2 * (8 * 16 + 16 * 4 + 8 * 4))
    grouped = work_of(
        call_of(
            _aten._grouped_mm.default,
            meta(32, 16, dtype=_BF16),
            meta(4, 16, 64, dtype=_BF16),
            meta(4, dtype=torch.int32),
        )
    )
    assert grouped.flops == 2 * 32 * 16 * 64
    assert grouped.bytes == 2 * (32 * 16 + 4 * 16 * 64 + 32 * 64) + 4 * 4
    add = work_of(call_of(_aten.add.Tensor, meta(10), meta(10)))
    assert (add.flops, add.bytes) == (10, 120)
    assert work_of(call_of(_aten.view.default, meta(10), [2, 5])).bytes == 0
    table = work_of(call_of(_aten.embedding.default, meta(1000, 8), meta(3, dtype=torch.int64)))
    assert table.bytes == 2 * 3 * 8 * 4


def test_a_decode_step_reads_the_experts_that_its_rows_meet() -> None:
    """8 rows of 256 experts: 8 matrices at most, whether multiplied in place or looked up before."""
    experts = meta(256, 16, 64, dtype=_BF16)
    grouped = call_of(
        _aten._grouped_mm.default, meta(8, 16, dtype=_BF16), experts, meta(256, dtype=torch.int32)
    )
    assert work_of(grouped).bytes == 2 * (8 * 16 + 8 * 16 * 64 + 8 * 64) + 4 * 256
    chosen = meta(8, dtype=torch.int64)
    assert work_of(call_of(_aten.index.Tensor, experts, [chosen])).bytes == 2 * 2 * 8 * 16 * 64
    places = meta(3, 1, dtype=torch.int64)
    second = work_of(call_of(_aten.index.Tensor, experts, [None, places, meta(5, dtype=torch.int64)]))
    assert second.bytes == 2 * 2 * 256 * 3 * 5
    assert work_of(call_of(_aten.index_select.default, experts, 1, chosen)).bytes == 2 * 2 * 256 * 8 * 64
    picked = call_of(_aten.gather.default, meta(4, 100), 1, meta(4, 2, dtype=torch.int64))
    assert work_of(picked).bytes == 2 * 4 * 4 * 2


def test_attention_with_narrower_values() -> None:
    """Latent attention: heads of 192 for queries and keys, of 128 for values."""
    shapes = [(1, 128, 64, 192), (1, 128, 64, 192), (1, 128, 64, 128)]
    call = OperatorCall(
        op="aten.scaled_dot_product_attention.default",
        args=[{"tensor": {"dtype": "fp32", "shape": shape}} for shape in shapes],
        dtypes=["fp32"] * 3,
        shapes=shapes,
    )
    work = work_of(call)
    assert work.flops == 2 * 128 * 64 * 64 * (192 + 128)
    assert work.bytes == 4 * 128 * 64 * (192 + 192 + 128 + 128)


def test_shares_add_up_to_the_whole() -> None:
    assert sum(shares(calls_of("llama")).values()) == pytest.approx(1.0)
    needs = group(calls_of("llama"))
    assert sum(need.impact for need in needs) == pytest.approx(1.0)
    assert [need.impact for need in needs] == sorted((need.impact for need in needs), reverse=True)
    assert needs[0].example.op == "aten.mm.default"


def test_a_need_is_shown_by_a_prefill_call_where_there_is_one() -> None:
    for need in group(calls_of("llama")):
        assert need.example.phase == ("prefill" if "prefill" in need.phases else need.phases[0])


def test_another_dtype_takes_its_casts_away() -> None:
    changed = retyped(calls_of("llama"), "bf16", "fp32")
    assert not any("bf16" in str(call.model_dump(mode="json")) for call in changed)
    casts = [call for call in changed if call.op == "aten._to_copy.default" and set(call.kwargs) == {"dtype"}]
    assert all(list(call.dtypes) != [call.result_dtype] for call in casts)
    assert sum(call.count for call in changed if call.op == "aten.mm.default") == sum(
        call.count for call in calls_of("llama") if call.op == "aten.mm.default"
    )


def test_a_translated_list_is_what_the_other_dtype_calls() -> None:
    from day0.adapters.models.capture import capture_phases
    from support.captured import meta_model

    model = meta_model("llama").float()
    real = capture_phases(model, model.config)
    changed = retyped(calls_of("llama"), "bf16", "fp32")

    # Shapes and not signatures: strides along dimensions of size one may differ.
    def counted(calls: list[OperatorCall]) -> Counter[str]:
        found: Counter[str] = Counter()
        for call in calls:
            found[f"{call.phase} {call.row_key} {[list(shape) for shape in call.shapes]}"] += call.count
        return found

    assert counted(changed) == counted(real)


def test_a_target_gets_the_branch_of_its_kind_of_device() -> None:
    either = call_of(_aten.mul.Tensor, meta(4), meta(4))
    host, device = (either.model_copy(update={"branch": name}) for name in ("cpu", "accelerator"))

    def branches(target: str) -> list[str]:
        calls = on_target([either, host, device], "fp32", TargetSpec.parse(target))
        return [call.branch for call in calls]

    assert branches("eager@cpu/fp32") == ["", "cpu"]
    assert branches("eager@npu/fp32") == ["", "accelerator"]


def test_a_capture_is_asked_for_as_the_target_runs() -> None:
    request = request_of(TargetSpec.parse("eager@npu/bf16?attn=eager&experts=batched_mm&with=loop_experts"))
    assert (request.device, request.dtype, request.attn) == ("npu", "bf16", "eager")
    assert (request.experts, request.ways) == ("batched_mm", "loop_experts")


def test_graph_stacks_are_not_asked_for_what_happens_between_nodes() -> None:
    inside = {"module": "model.layers.0.self_attn"}
    first, later = (
        call_of(_aten.cat.default, [past, meta(1, 2, 4, 8)], -2).model_copy(update=inside)
        for past in (meta(0), meta(1, 2, 1, 8))
    )
    assert on_target([first, later], "fp32", TargetSpec.parse("openvino@cpu/fp32")) == [later]
    assert on_target([first, later], "fp32", TargetSpec.parse("eager@cpu/fp32")) == [first, later]


def test_the_captured_dtype_changes_nothing() -> None:
    calls = calls_of("llama")
    assert retyped(calls, "bf16", "bf16") == list(calls)
    assert retyped(calls, "bf16", None) == list(calls)

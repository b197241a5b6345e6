from __future__ import annotations

import torch

from day0_worker.kept_inputs import changed_inputs, kept_inputs

_aten = torch.ops.aten


def test_what_is_written_over_is_named_and_nan_is_no_change() -> None:
    left, right = torch.tensor([1.0, float("nan")]), torch.ones(2)
    kept = kept_inputs(_aten.add.Tensor, [left, right], {})
    assert changed_inputs(kept) == []
    right.mul_(2)
    assert changed_inputs(kept) == ["other"]


def test_an_operator_in_place_may_change_what_it_says() -> None:
    left, parts = torch.ones(2), [torch.ones(2), torch.ones(3)]
    kept = kept_inputs(_aten.add_.Tensor, [left, left], {})
    left.add_(1)
    assert changed_inputs(kept) == []
    listed = kept_inputs(_aten.cat.default, [parts], {})
    parts[1].zero_()
    assert changed_inputs(listed) == ["tensors"]


def test_every_layout_and_dtype_can_be_watched() -> None:
    for tensor in (
        torch.arange(100.0)[::50][:1],
        torch.ones(2, 3).t(),
        torch.tensor(1.0),
        torch.ones(0, 3),
        torch.ones(1).expand(4),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2, dtype=torch.bool),
        torch.ones(2).to(torch.float8_e4m3fn),
    ):
        kept = kept_inputs(_aten.clone.default, [tensor], {})
        assert len(kept) == 1
        assert changed_inputs(kept) == []


def test_statistics_that_training_keeps_are_not_watched() -> None:
    mean = torch.zeros(3)
    args = [torch.ones(2, 3), None, None, mean, torch.ones(3), True, 0.1, 1e-5]
    assert kept_inputs(_aten.native_batch_norm.default, args, {}) == []

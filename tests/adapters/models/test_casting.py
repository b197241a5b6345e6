from __future__ import annotations

from typing import Any

import torch

from day0.adapters.base.target import Call
from day0.adapters.models.casting import cast_like
from day0_worker.trees import decode_arguments, encode_arguments


def call(*args: Any, **kwargs: Any) -> Call:
    return Call(*encode_arguments(args, kwargs))


def test_each_tensor_takes_the_dtype_of_its_counterpart() -> None:
    hidden, scores, ids = torch.randn(2, 3), torch.randn(3), torch.tensor([1, 2])
    ours = call(hidden, scores=(scores, None), ids=ids)
    theirs = call(torch.zeros(2, 3).bfloat16(), scores=(torch.zeros(3), None), ids=torch.tensor([8, 9]))
    args, kwargs = decode_arguments(*vars(cast_like(ours, theirs)).values())
    assert torch.equal(args[0], hidden.bfloat16())
    assert torch.equal(kwargs["scores"][0], scores)
    assert kwargs["scores"][0].dtype == torch.float32
    assert torch.equal(kwargs["ids"], ids)


def test_masks_are_those_of_the_other_arm() -> None:
    lowest = torch.finfo(torch.float32).min
    ours = call(attention_mask=torch.full((2, 2), lowest))
    theirs = call(attention_mask=torch.full((2, 2), torch.finfo(torch.bfloat16).min, dtype=torch.bfloat16))
    _, kwargs = decode_arguments(*vars(cast_like(ours, theirs)).values())
    assert torch.isfinite(kwargs["attention_mask"]).all()

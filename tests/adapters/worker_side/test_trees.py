from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from transformers import DynamicCache
from transformers.modeling_outputs import BaseModelOutput

from day0_worker import trees
from support.simulated_device import DeviceTensor, register


def handle(values: torch.Tensor) -> DeviceTensor:
    register()
    return DeviceTensor(values)


def crossed(value: Any) -> Any:
    tree, tensors = trees.encode(value)
    return trees.decode(json.loads(json.dumps(tree, allow_nan=False)), tensors)


def test_values_come_back_as_they_were() -> None:
    value = {"a": [1, 2.5, None, True, "x"], "b": (torch.bfloat16, ()), "c": {"d": []}}
    assert crossed(value) == value


@pytest.mark.parametrize("number", [math.inf, -math.inf])
def test_infinities_cross(number: float) -> None:
    assert crossed(number) == number


def test_nan_crosses() -> None:
    assert math.isnan(crossed(math.nan))


def test_arguments_keep_position_and_name() -> None:
    x, y = torch.arange(6.0).reshape(2, 3), torch.tensor([1, 2])
    tree, tensors = trees.encode_arguments([x, (y, None)], {"mask": None, "scale": 2})
    args, kwargs = trees.decode_arguments(tree, tensors)
    assert torch.equal(args[0], x)
    assert torch.equal(args[1][0], y)
    assert args[1][1] is None
    assert kwargs == {"mask": None, "scale": 2}


def test_the_same_tensor_is_sent_once_and_a_view_apart() -> None:
    x = torch.zeros(2, 2)
    _, tensors = trees.encode([x, x, x.view(2, 2), x.t(), x[0]])
    assert [list(tensor.shape) for tensor in tensors.values()] == [[2, 2], [2, 2], [2]]


def test_meta_tensors_are_told_apart_by_object() -> None:
    x, y = torch.empty(2, device="meta"), torch.empty(2, device="meta")
    _, tensors = trees.encode([x, y, x])
    assert len(tensors) == 2


def test_tensors_of_a_device_without_pointers_are_told_apart() -> None:
    first, second = handle(torch.tensor([1.0, 2.0])), handle(torch.tensor([3.0, 4.0]))
    assert first.data_ptr() == second.data_ptr() == 0
    tree, tensors = trees.encode((first, second, first))
    assert tree == {"$tuple": [{"$tensor": "t0"}, {"$tensor": "t1"}, {"$tensor": "t0"}]}
    assert [tensor.tolist() for tensor in tensors.values()] == [[1.0, 2.0], [3.0, 4.0]]


def test_a_tensor_without_a_storage_stands_for_itself() -> None:
    first, second = torch.ones(2).to_sparse(), torch.ones(2).to_sparse()
    assert trees.storage_of(first) == trees.storage_of(first)
    assert trees.storage_of(first) != trees.storage_of(second)


def test_a_cache_crosses_as_state_and_is_put_back_in_place() -> None:
    tree, tensors = trees.encode_arguments([], {"cache": DynamicCache(), "deep": [(DynamicCache(),)]})
    assert tree["kwargs"]["cache"] == {"$state": True}
    assert trees.has_state(tree)
    assert not trees.has_state(tree["args"])
    _, kwargs = trees.decode_arguments(tree, tensors)
    assert kwargs["cache"] is trees.STATE
    cache = object()
    assert trees.with_state(kwargs, cache) == {"cache": cache, "deep": [(cache,)]}


def test_a_model_output_is_read_by_key_attribute_and_index() -> None:
    hidden = torch.ones(1, 2)
    output = crossed(BaseModelOutput(last_hidden_state=hidden))
    assert torch.equal(output.last_hidden_state, hidden)
    assert torch.equal(output[0], hidden)
    assert torch.equal(output["last_hidden_state"], hidden)
    with pytest.raises(AttributeError):
        _ = output.attentions


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"a": [object()]}, r"value\.a\[0\] is a builtins\.object"),
        ([lambda: None], "function"),
        ({1: 2}, "key 1"),
        ([torch.device("cpu")], "torch.device"),
    ],
)
def test_what_cannot_cross_is_named_with_its_place(value: Any, named: str) -> None:
    with pytest.raises(trees.TreeError, match=named):
        trees.encode(value)


def test_endless_nesting_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(trees.TreeError, match="deeper"):
        trees.encode(loop)


@pytest.mark.parametrize(
    "tree",
    [{"$tensor": "t9"}, {"$what": 1}, {"$float": "1e5"}, {"a": 1, "b": 2}, {"$dict": {"x": {"$y": 0}}}],
)
def test_malformed_trees_are_refused(tree: Any) -> None:
    with pytest.raises(trees.TreeError):
        trees.decode(tree, {})

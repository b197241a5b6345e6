"""Models on the shelf, with bugs put into one of them in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from day0_worker.shelf import ModuleShelf
from day0_worker.stack import StackError
from support.tiny_releases import TinyRelease

NODE = "model.layers.1"


@pytest.fixture(scope="module")
def llama(tiny: Callable[[str], TinyRelease]) -> TinyRelease:
    return tiny("llama")


def fragment(tiny: TinyRelease, ways: str) -> dict[str, Any]:
    skeleton = tiny.skeleton
    return {
        "architecture": skeleton.architecture,
        "config": dict(skeleton.config),
        "dtype": "fp32",
        "options": {"with": ways} if ways else {},
    }


def output(tiny: TinyRelease, shelf: ModuleShelf, key: str) -> torch.Tensor:
    modules, stock = shelf.get(key), tiny.stock.model
    hidden = torch.randn(1, 9, 32, generator=torch.Generator().manual_seed(3))
    positions = torch.arange(9)[None]
    mask = torch.zeros(9, 9).masked_fill(torch.ones(9, 9).triu(1).bool(), -1e30)[None, None]
    turned = stock.rotary_emb(hidden, positions)
    weights = dict(stock.layers[1].state_dict())
    given = {"attention_mask": mask, "position_embeddings": turned}
    found: torch.Tensor = modules.run(NODE, weights, [hidden], given)
    return found


def test_bugs_take_turns_in_one_model_and_leave_the_clean_one_alone(llama: TinyRelease) -> None:
    shelf = ModuleShelf("cpu", {})
    clean = shelf.key(fragment(llama, ""))
    right = output(llama, shelf, clean)
    keys = {
        bug: shelf.key(fragment(llama, f"bug:{bug}@{NODE}"))
        for bug in ("mask_off_by_one", "wrong_head_grouping", "norm_eps")
    }
    assert len({id(shelf.get(key)) for key in keys.values()}) == 1
    assert shelf.get(clean) is not shelf.get(keys["norm_eps"])
    first = {bug: output(llama, shelf, key) for bug, key in keys.items()}
    again = {bug: output(llama, shelf, key) for bug, key in reversed(keys.items())}
    for bug, value in first.items():
        assert torch.equal(value, again[bug])
        assert not torch.equal(value, right)
    assert len({value.sum().item() for value in first.values()}) == 3
    assert torch.equal(output(llama, shelf, clean), right)
    elsewhere = shelf.key(fragment(llama, "bug:mask_off_by_one@model.layers.0"))
    assert torch.equal(output(llama, shelf, elsewhere), right)


def test_two_bugs_at_once_and_those_that_the_target_names(llama: TinyRelease) -> None:
    both = "bug:mask_off_by_one@model.layers.1,bug:norm_eps@model.layers.1"
    shelf = ModuleShelf("cpu", {})
    by_fragment = output(llama, shelf, shelf.key(fragment(llama, both)))
    named = ModuleShelf("cpu", {"with": both})
    by_target = output(llama, named, named.key(fragment(llama, "")))
    assert torch.equal(by_fragment, by_target)
    one = output(llama, shelf, shelf.key(fragment(llama, "bug:mask_off_by_one@model.layers.1")))
    assert not torch.equal(one, by_fragment)


def test_a_bug_that_cannot_be_put_in_leaves_the_others(llama: TinyRelease) -> None:
    shelf = ModuleShelf("cpu", {})
    good = shelf.key(fragment(llama, f"bug:norm_eps@{NODE}"))
    value = output(llama, shelf, good)
    with pytest.raises(StackError, match="no stacked experts"):
        shelf.key(fragment(llama, f"bug:expert_row@{NODE}"))
    assert torch.equal(output(llama, shelf, good), value)
    with pytest.raises(StackError, match="nothing was prepared"):
        shelf.get("unknown")

"""Experts over a stack of some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch

from day0_worker.expert_stack import compacted, expert_count
from day0_worker.modules import place
from day0_worker.stack import StackError

TOTAL = 6


class Experts(torch.nn.Module):
    """As transformers writes them, with biases, a norm and a counter of another name as some have."""

    def __init__(self) -> None:
        super().__init__()
        self.num_experts = self.n_routed_experts = TOTAL
        self.hidden_size = TOTAL  # equal by chance, and no counter
        self.proj = torch.nn.Parameter(torch.randn(TOTAL, 4, TOTAL))
        self.bias = torch.nn.Parameter(torch.randn(TOTAL, 4))
        self.scale = torch.nn.Parameter(torch.rand(TOTAL))
        self.norm = torch.nn.LayerNorm(4)
        self.shift: torch.Tensor
        self.register_buffer("shift", torch.tensor(0.5, dtype=torch.float64))

    def forward(self, hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        output = torch.zeros(len(hidden), 4)
        for token, (own, chosen) in enumerate(zip(ids.tolist(), weights, strict=True)):
            for expert, weight in zip(own, chosen, strict=True):
                if expert == self.num_experts == self.n_routed_experts:
                    continue
                row = self.proj[expert] @ hidden[token] + self.bias[expert]
                output[token] += weight * self.scale[expert] * self.norm(row + self.shift.float())
        return output


@pytest.fixture
def experts() -> Experts:
    torch.manual_seed(1)
    return Experts().eval()


def some(experts: Experts, ids: list[int]) -> dict[str, torch.Tensor]:
    stacked = ("proj", "bias", "scale")
    return {
        name: value[ids].clone() if name in stacked else value.clone()
        for name, value in experts.state_dict().items()
    }


@torch.no_grad()
def test_some_experts_give_what_they_give_among_all(experts: Experts) -> None:
    hidden, weights = torch.randn(3, TOTAL), torch.rand(3, 2)
    ids, places = torch.tensor([[5, 2], [2, TOTAL], [4, 5]]), torch.tensor([[2, 0], [0, 3], [1, 2]])
    expected, before = experts(hidden, ids, weights), dict(experts.named_parameters())
    stack = some(experts, [2, 4, 5])
    for name, value in before.items():
        place(experts, name, value.to("meta"))
    with compacted(experts, stack, "cpu") as run:
        assert (experts.num_experts, experts.n_routed_experts, experts.hidden_size) == (3, 3, TOTAL)
        assert torch.equal(run(hidden, places, weights), expected)
    assert (experts.num_experts, experts.n_routed_experts) == (TOTAL, TOTAL)
    assert experts.proj.is_meta
    assert experts.proj.shape == (TOTAL, 4, TOTAL)
    assert set(dict(experts.named_parameters())) == set(before)
    assert experts.shift.dtype == torch.float64


def test_weights_are_evaluated_once_and_cast_one_at_a_time(experts: Experts) -> None:
    class Lazy(Mapping[str, torch.Tensor]):
        asked: list[str] = []  # noqa: RUF012  # one object

        def __init__(self, values: dict[str, torch.Tensor]) -> None:
            self.values_there = values

        def __getitem__(self, name: str) -> torch.Tensor:
            self.asked.append(name)
            return self.values_there[name].bfloat16()

        def __iter__(self) -> Iterator[str]:
            return iter(self.values_there)

        def __len__(self) -> int:
            return len(self.values_there)

    lazy = Lazy(some(experts, [1]))
    with compacted(experts, lazy, "cpu"):
        assert experts.proj.dtype == torch.float32
        assert experts.proj.shape[0] == 1
    assert sorted(lazy.asked) == sorted(lazy)
    assert lazy.asked[0] == "proj"


@pytest.mark.parametrize(
    "change",
    [
        {"proj": torch.zeros(2, 4, 5)},
        {"bias": torch.zeros(3, 4)},
        {"bias": torch.zeros(4)},
        {"proj": torch.zeros(())},
        {"more": torch.zeros(2)},
        {"norm.weight": torch.zeros(2)},
    ],
)
def test_stacks_that_do_not_fit_are_refused_and_leave_nothing(
    experts: Experts, change: dict[str, torch.Tensor]
) -> None:
    before = {name: value.clone() for name, value in experts.state_dict().items()}
    weights = some(experts, [0, 1]) | change
    with pytest.raises(StackError) as caught, compacted(experts, weights, "cpu"):
        pass
    assert caught.value.kind == "key_mismatch"
    after: dict[str, Any] = experts.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert experts.num_experts == TOTAL


def test_a_missing_stack_is_named(experts: Experts) -> None:
    with pytest.raises(StackError, match="proj"), compacted(experts, {}, "cpu"):
        pass


def test_what_does_not_stack_experts_is_unsupported(experts: Experts) -> None:
    assert expert_count(experts) == TOTAL
    with pytest.raises(StackError) as caught:
        expert_count(torch.nn.Linear(2, 2))
    assert caught.value.kind == "unsupported"

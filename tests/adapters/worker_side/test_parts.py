"""Runs that stand still: what they see, what they keep, how they end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from day0_worker.modules import NodeModules
from day0_worker.parts import Paused, PausedRuns, own_forward, pausing_at
from day0_worker.stack import StackError
from day0_worker.trees import decode_arguments
from support.moe_nodes import MoeNode, moe_node
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]


class Experts(torch.nn.Module):
    """Gives twice what it is given."""

    def forward(self, hidden: Any, ids: Any = None, weights: Any = None) -> Any:
        return hidden * 2


class Layer(torch.nn.Module):
    """Calls its experts as often as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = Experts()

    def forward(self, hidden: torch.Tensor, times: int = 1) -> torch.Tensor:
        ids = torch.zeros(len(hidden), 1, dtype=torch.int64)
        for _ in range(times):
            hidden = self.experts(hidden, weights=torch.ones(len(hidden), 1), ids=ids) + 1
        return hidden


class Nothing:
    """No tensor, on any device."""

    def to(self, device: Any) -> None:
        return None


def work(layer: Layer, *args: Any) -> Callable[[], Any]:
    def run() -> Any:
        with pausing_at(layer.experts):
            return layer(*args)

    return run


@pytest.fixture
def runs() -> Iterator[PausedRuns]:
    made = PausedRuns()
    yield made
    made.drop()
    assert not [thread for thread in threading.enumerate() if thread.name == "day0-part"]


@pytest.fixture(scope="module")
def moe(tiny: Tiny) -> MoeNode:
    return moe_node(tiny("qwen3_moe"))


def test_a_run_stands_still_at_each_call_of_its_experts(runs: PausedRuns) -> None:
    layer, hidden = Layer(), torch.randn(3, 4)
    first = runs.start(work(layer, hidden, 2))
    assert isinstance(first, Paused)
    assert torch.equal(first.hidden, hidden)
    assert (first.ids.shape, first.weights.shape) == ((3, 1), (3, 1))
    second = runs.resume(first.key, hidden * 10)
    assert isinstance(second, Paused)
    assert second.key != first.key
    assert torch.equal(second.hidden, hidden * 10 + 1)
    assert torch.equal(runs.resume(second.key, hidden), hidden + 1)
    assert len(runs) == 0


def test_many_stand_at_once_and_go_on_in_any_order(runs: PausedRuns) -> None:
    layer = Layer()
    paused = [runs.start(work(layer, torch.full((1, 2), float(number)))) for number in range(20)]
    assert len(runs) == 20
    for number in (7, *range(7), *range(19, 7, -1)):
        output = runs.resume(paused[number].key, paused[number].hidden * 3)
        assert output.tolist() == [[3.0 * number + 1] * 2]


def test_elsewhere_the_experts_are_what_they_were(runs: PausedRuns) -> None:
    layer, hidden = Layer(), torch.randn(3, 4)
    paused = runs.start(work(layer, hidden))
    assert torch.equal(layer(hidden), hidden * 2 + 1)
    assert torch.equal(own_forward(layer.experts)(hidden), hidden * 2)
    assert torch.equal(runs.resume(paused.key, hidden), hidden + 1)
    assert torch.equal(layer(hidden), hidden * 2 + 1)


def test_a_run_that_never_calls_them_ends_at_once(runs: PausedRuns) -> None:
    assert torch.equal(runs.start(work(Layer(), torch.ones(1, 1), 0)), torch.ones(1, 1))


def test_hooks_are_called_once_and_see_the_whole(runs: PausedRuns) -> None:
    layer, seen = Layer(), []
    layer.experts.register_forward_pre_hook(lambda module, args: (args[0] + 5,))
    layer.experts.register_forward_hook(lambda module, args, output: seen.append(output.clone()))
    paused = runs.start(work(layer, torch.zeros(2, 2)))
    assert paused.hidden.tolist() == [[5.0] * 2] * 2
    runs.resume(paused.key, torch.ones(2, 2))
    assert [output.tolist() for output in seen] == [[[1.0] * 2] * 2]


def test_what_a_run_raises_is_raised_to_whoever_waits(runs: PausedRuns) -> None:
    layer = Layer()
    with pytest.raises(RuntimeError, match="shape"):
        runs.start(lambda: torch.ones(2, 3) @ torch.ones(2, 3))
    paused = runs.start(work(layer, torch.ones(2, 3)))
    with pytest.raises(TypeError, match="NoneType"):
        runs.resume(paused.key, Nothing())  # type: ignore[arg-type]  # what no caller should give
    with pytest.raises(StackError, match="no run waits"):
        runs.resume(paused.key, torch.ones(2, 3))
    assert layer(torch.ones(1, 1)).tolist() == [[3.0]]


def test_a_dropped_run_is_unwound_and_cannot_go_on(runs: PausedRuns) -> None:
    ended: list[str] = []

    def careful() -> Any:
        layer = Layer()
        try:
            with pausing_at(layer.experts):
                try:
                    return layer(torch.ones(1, 1))
                except BaseException:  # as careless model code might
                    return layer(torch.ones(1, 1))
        finally:
            ended.append("yes")

    first, second = runs.start(careful), runs.start(careful)
    runs.drop([first.key, "unknown"])
    assert ended == ["yes"]
    with pytest.raises(StackError, match="no run waits"):
        runs.resume(first.key, torch.ones(1, 1))
    runs.resume(second.key, torch.ones(1, 1))
    assert ended == ["yes", "yes"]


@pytest.mark.parametrize(
    "args",
    [
        (torch.ones(2, 3),),
        (torch.ones(2, 3), torch.zeros(2, 1, dtype=torch.int64), torch.ones(2, 1), True),
        (torch.ones(1, 2, 3), torch.zeros(2, 1, dtype=torch.int64), torch.ones(2, 1)),
        (torch.ones(2, 3), torch.zeros(2, 1, dtype=torch.int64), torch.ones(2, 8)),
        (torch.ones(2, 3), torch.zeros(2, 1), torch.ones(2, 1)),
        (torch.ones(2, 3), torch.zeros(3, 1, dtype=torch.int64), torch.ones(3, 1)),
    ],
)
def test_other_calls_of_experts_are_refused(runs: PausedRuns, args: tuple[Any, ...]) -> None:
    class Odd(torch.nn.Module):
        def forward(self, hidden: Any, ids: Any = None, weights: Any = None, more: Any = None) -> Any:
            return hidden

    odd = Odd()

    def run() -> Any:
        with pausing_at(odd):
            return odd(*args)

    with pytest.raises(StackError, match=r"hidden states \[T, H\]") as caught:
        runs.start(run)
    assert caught.value.kind == "unsupported"


def test_standing_still_needs_a_run() -> None:
    with pytest.raises(StackError, match="not begun"):
        work(Layer(), torch.ones(1, 1))()


def test_the_thread_computes_as_the_one_that_waits(runs: PausedRuns) -> None:
    """Default dtype, seed and number of threads are the process's; gradients are off as the run has them."""
    before = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    try:
        torch.manual_seed(7)
        expected = torch.rand(3)
        torch.manual_seed(7)
        seen = runs.start(lambda: (torch.get_num_threads(), torch.rand(3), torch.is_grad_enabled()))
    finally:
        torch.set_num_threads(before[0])
        torch.set_default_dtype(before[1])
    assert seen[0] == 1
    assert torch.equal(seen[1], expected)
    assert seen[2]


def test_a_node_in_two_parts_is_the_node_as_one(moe: MoeNode) -> None:
    """Two sequences with caches, interleaved, with one load of the weights; experts whole, so to the bit."""
    whole, parts = modules_of(moe), modules_of(moe)
    name, path = moe.node.name, moe.node.experts
    parts.load(name, moe.rest, path)
    for phase in ("prefill", "decode"):
        args, kwargs = decode_arguments(moe.calls[phase].tree, moe.calls[phase].tensors)
        paused = [parts.start(name, args, kwargs, pause=path, state=state) for state in ("a", "b")]
        expected = whole.run(name, moe.weights, args, kwargs, state="a")
        for one in reversed(paused):
            with parts.experts(name, path, moe.experts) as experts:
                output = experts(one.hidden, one.ids, one.weights)
            assert torch.equal(first(parts.paused.resume(one.key, output)), first(expected))
    assert parts.cache("a").get_seq_length(2) == parts.cache("b").get_seq_length(2) == 11
    parts.free(name)
    assert all(value.is_meta for value in parts.model.parameters())


def test_no_gradient_is_kept_and_ways_around_hold_in_the_thread(moe: MoeNode) -> None:
    parts = modules_of(moe)
    entered: list[tuple[int, bool]] = []

    class Ways:
        def active(self) -> Any:
            entered.append((threading.get_ident(), torch.is_grad_enabled()))
            return torch.no_grad()

    parts._ways = Ways()  # type: ignore[assignment]  # only what is entered matters
    parts.load(moe.node.name, moe.rest, moe.node.experts)
    args, kwargs = decode_arguments(moe.calls["prefill"].tree, moe.calls["prefill"].tensors)
    paused = parts.start(moe.node.name, args, kwargs, pause=moe.node.experts)
    assert not paused.hidden.requires_grad
    assert [grad for _, grad in entered] == [False]
    assert entered[0][0] != threading.get_ident()
    parts.paused.drop()


def test_weights_of_experts_are_neither_needed_nor_taken(moe: MoeNode) -> None:
    parts, name, path = modules_of(moe), moe.node.name, moe.node.experts
    parts.load(name, moe.weights, path)
    experts = parts.module(f"{name}.{path}")
    assert all(value.is_meta for value in experts.parameters())
    assert not any(value.is_meta for value in parts.module(f"{name}.self_attn").parameters())
    with pytest.raises(StackError, match="lacks weights"):
        parts.load(name, moe.rest)
    with pytest.raises(StackError, match="lacks weights"):
        parts.load(name, moe.experts, path)


def modules_of(moe: MoeNode) -> NodeModules:
    return NodeModules(moe.skeleton.config, moe.skeleton.architecture, "fp32", {"experts": "eager"})


def first(value: Any) -> torch.Tensor:
    tensor: torch.Tensor = value[0] if isinstance(value, tuple) else value
    return tensor

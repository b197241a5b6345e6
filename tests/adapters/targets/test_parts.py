"""Runs in two parts through a worker process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from day0.adapters.base.errors import RemoteError, UnsupportedError, WorkerError
from day0.adapters.base.target import Answer, Call, Fragment, Paused
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.adapters.targets.target import WorkerTarget
from day0_worker import trees
from support.moe_nodes import MoeNode, moe_node, states
from support.native_services import wait_for
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]


@pytest.fixture(scope="module")
def moe(tiny: Tiny) -> MoeNode:
    return moe_node(tiny("deepseek_v3"), "bf16")


@pytest.fixture(scope="module")
def target() -> Iterator[WorkerTarget]:
    with open_target(TargetSpec.parse("eager@cpu/bf16"), timeout=120) as opened:
        yield opened


def prepared(target: WorkerTarget, moe: MoeNode, phase: str = "prefill", experts: str = "eager") -> str:
    fragment = Fragment(
        node=moe.node.name,
        kind=moe.node.kind,
        architecture=moe.skeleton.architecture,
        config=moe.skeleton.config,
        dtype="bf16",
        options={"experts": experts},
    )
    return target.prepare(fragment, moe.calls[phase], mode=phase)


def started(
    target: WorkerTarget, moe: MoeNode, phase: str = "prefill", state: str = "a", experts: str = "eager"
) -> Paused:
    rest = {name: {"value": value} for name, value in moe.rest.items()}
    handle = prepared(target, moe, phase, experts)
    path, call = moe.node.experts, moe.calls[phase]
    came = target.start(handle, moe.node.name, rest, call, pause=path, state=state)
    assert isinstance(came, Paused)
    return came


def through(target: WorkerTarget, moe: MoeNode, paused: Paused, experts: str = "eager") -> Answer:
    """The experts, on a stack of those alone that were chosen."""
    ids = torch.unique(paused.ids)
    places = torch.searchsorted(ids, paused.ids)
    stack = moe.stack(ids.tolist()).sent
    handle, node = prepared(target, moe, experts=experts), moe.node
    return target.run_experts(handle, node.name, node.experts, stack, paused.hidden, places, paused.weights)


def gone(threads: Callable[[], int]) -> None:
    """Returns once no more of them go: a thread that has been joined is still among them for a moment."""
    last, since = threads(), time.monotonic()
    while time.monotonic() - since < 0.5:
        time.sleep(0.02)
        if (now := threads()) != last:
            last, since = now, time.monotonic()


def output_of(answer: Answer) -> torch.Tensor:
    value = trees.decode(answer.outputs.tree, answer.outputs.tensors)
    assert isinstance(value, torch.Tensor)
    return value


@pytest.mark.parametrize("experts", ["eager", "batched_mm", "grouped_mm"])
def test_a_node_in_two_parts_is_the_node_as_one(target: WorkerTarget, moe: MoeNode, experts: str) -> None:
    """Two sequences with caches, resumed in the other order; the target's own experts, to the bit."""
    for phase in ("prefill", "decode"):
        paused = [started(target, moe, phase, state, experts) for state in ("a", "b")]
        outputs = [output_of(through(target, moe, one, experts)) for one in paused]
        ended = [target.resume(one.key, out) for one, out in zip(paused[::-1], outputs[::-1], strict=True)]
        handle = prepared(target, moe, phase, experts)
        whole = target.run(handle, moe.node.name, moe.sent, moe.calls[phase], state="whole")
        for one in ended:
            assert isinstance(one, Answer)
            assert torch.equal(states(one.outputs), states(whole.outputs))
            assert one.operators == whole.operators
            assert one.operators["experts"] == experts
    for state in ("a", "b", "whole"):
        target.forget(state)


def test_what_is_measured_is_the_run_and_not_the_wait(target: WorkerTarget, moe: MoeNode) -> None:
    """No part says more than what whoever called it saw, though the run stood still for a second between."""
    prepared(target, moe)
    took = []

    def timed(call: Callable[[], Any]) -> Any:
        began = time.monotonic()
        answer = call()
        took.append(time.monotonic() - began)
        return answer

    paused = timed(lambda: started(target, moe))
    answer = timed(lambda: through(target, moe, paused))
    time.sleep(1)
    ended = timed(lambda: target.resume(paused.key, output_of(answer)))
    assert isinstance(ended, Answer)
    for one, seen in zip((paused.measured, answer, ended), took, strict=True):
        assert 0 < one.seconds < seen
        assert one.peak_bytes >= 0
    target.forget("a")


def test_runs_end_when_they_are_dropped_and_leave_no_thread(target: WorkerTarget, moe: MoeNode) -> None:
    def six() -> list[Paused]:
        return [started(target, moe, state=f"{number}") for number in range(6)]

    def threads() -> int:
        return len(os.listdir(f"/proc/{target.pid}/task"))

    first = six()[0]
    target.drop()
    gone(threads)
    before, paused = threads(), six()
    assert threads() >= before + 6
    target.drop([paused[0].key, "unknown"])
    for one in (first, paused[0]):
        with pytest.raises(RemoteError, match="no run waits"):
            target.resume(one.key, one.hidden)
    assert isinstance(target.resume(paused[1].key, paused[1].hidden), Answer)
    target.drop()
    wait_for(lambda: threads() <= before, "the end of the runs' threads", 30)
    with pytest.raises(RemoteError, match="no run waits"):
        target.resume(paused[2].key, paused[2].hidden)


def test_weights_of_another_node_end_runs_that_stand_still(target: WorkerTarget, moe: MoeNode) -> None:
    paused = started(target, moe)
    handle, path, call = prepared(target, moe), moe.node.experts, moe.calls["prefill"]
    rest = {name: {"value": value} for name, value in moe.rest.items()}
    other = target.start(handle, "model.layers.1", rest, call, pause=path)
    assert isinstance(other, Paused)
    with pytest.raises(RemoteError, match="no run waits"):
        target.resume(paused.key, paused.hidden)
    assert isinstance(target.resume(other.key, other.hidden), Answer)


def test_kept_weights_without_experts_do_not_serve_the_whole_node(target: WorkerTarget, moe: MoeNode) -> None:
    paused = started(target, moe)
    handle = prepared(target, moe)
    with pytest.raises(RemoteError, match="no longer here"):
        target.run(handle, moe.node.name, {}, moe.calls["prefill"])
    whole = target.run(handle, moe.node.name, moe.sent, moe.calls["prefill"])
    again = target.start(handle, moe.node.name, {}, moe.calls["prefill"], pause=moe.node.experts)
    assert isinstance(again, Paused)
    for one in (paused, again):
        ended = target.resume(one.key, output_of(through(target, moe, one)))
        assert isinstance(ended, Answer)
        assert torch.equal(states(ended.outputs), states(whole.outputs))
    target.forget("a")


def test_errors_in_either_part_come_back_and_the_worker_lives(target: WorkerTarget, moe: MoeNode) -> None:
    pid, handle = target.pid, prepared(target, moe)
    rest = {name: {"value": value} for name, value in moe.rest.items()}
    call = moe.calls["prefill"]
    broken = replace(call, tensors={name: value[..., :-1] for name, value in call.tensors.items()})
    with pytest.raises(RemoteError) as caught:
        target.start(handle, moe.node.name, rest, broken, pause=moe.node.experts)
    assert caught.value.kind in ("shape", "runtime")
    with pytest.raises(RemoteError) as caught:
        target.start(handle, moe.node.name, rest, call, pause="mlp.nowhere")
    assert caught.value.kind == "key_mismatch"
    paused = started(target, moe)
    with pytest.raises(RemoteError) as caught:
        target.resume(paused.key, torch.ones(3, 5, dtype=torch.bfloat16))
    assert caught.value.kind in ("shape", "runtime")
    paused = started(target, moe)
    with pytest.raises(RemoteError) as caught:
        target.run_experts(
            handle, moe.node.name, moe.node.experts, {}, paused.hidden, paused.ids, paused.weights
        )
    assert caught.value.kind == "key_mismatch"
    target.drop()
    assert target.pid == pid
    target.forget("a")


@pytest.mark.slow
def test_nothing_stands_still_where_it_is_not_claimed(moe: MoeNode) -> None:
    with open_target(TargetSpec.parse("onnxruntime@cpu/fp32"), timeout=120) as target:
        if "parts" in target.describe().capabilities:
            pytest.fail("an exporting stack claims parts")
        asked: tuple[Callable[[], object], ...] = (
            lambda: target.start("h", "n", {}, Call({"args": [], "kwargs": {}}, {}), pause="mlp.experts"),
            lambda: target.resume("1", torch.ones(1, 1)),
            lambda: target.run_experts("h", "n", "e", {}, torch.ones(1), torch.ones(1), torch.ones(1)),
        )
        for ask in asked:
            with pytest.raises(UnsupportedError, match="'parts'"):
                ask()


@pytest.mark.usefixtures("faulty_stack")
def test_a_stack_that_overrides_run_claims_parts_only_if_it_says_so() -> None:
    with open_target(TargetSpec.parse("faulty@cpu/bf16"), timeout=120) as target:
        assert "parts" not in target.describe().capabilities
        assert "fragment" in target.describe().capabilities


def test_a_worker_that_says_nonsense_is_told() -> None:
    from day0.adapters.targets.answers import as_answer, as_paused

    spec, measured = TargetSpec.parse("eager@cpu"), as_answer({}, Call(None, {}))
    ids, weights = torch.zeros(3, 2, dtype=torch.int64), torch.ones(3, 2)
    good = [torch.ones(3, 4), ids, weights]
    assert as_paused("1", Call(*trees.encode(good)), measured, spec).key == "1"
    for given in (
        None,
        good[:2],
        [*good, weights],
        [torch.ones(2, 4), ids, weights],
        [torch.ones(3, 4, 1), ids, weights],
        [good[0], ids.float(), weights],
        [good[0], ids.bool(), weights],
        [good[0], ids, torch.ones(3, 8)],
        {"hidden": good[0]},
    ):
        with pytest.raises(WorkerError) as caught:
            as_paused("1", Call(*trees.encode(given)), measured, spec)
        assert caught.value.code == "E607"
    with pytest.raises(WorkerError):
        as_paused("1", Call([{"$tensor": "t9"}], {}), measured, spec)

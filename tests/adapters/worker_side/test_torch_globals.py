"""Threads that compute never see what another thread changes in torch while it builds a model."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from day0_worker.modules import NodeModules, build_model
from day0_worker.torch_globals import changing, computing, standing_still
from support.native_services import wait_for
from support.tiny_releases import TinyRelease

WAIT = 30.0


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def in_a_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_one_changes_at_a_time_and_none_while_another_computes() -> None:
    for held in (changing, computing):
        inside = threading.Event()

        def change(inside: threading.Event = inside) -> None:
            with changing():
                inside.set()

        with held():
            thread = in_a_thread(change)
            assert not inside.wait(0.2)
        assert inside.wait(WAIT)
        thread.join(WAIT)


def test_many_compute_at_a_time_and_one_that_stands_still_is_not_waited_for() -> None:
    with computing(), computing():
        other = threading.Event()

        def compute() -> None:
            with computing():
                other.set()

        in_a_thread(compute).join(WAIT)
        assert other.is_set()
        changed = threading.Event()

        def change() -> None:
            with changing():
                changed.set()

        thread = in_a_thread(change)
        assert not changed.wait(0.2)
        with standing_still():
            assert changed.wait(WAIT)
        thread.join(WAIT)


def test_a_thread_never_waits_for_itself() -> None:
    with computing(), pytest.raises(RuntimeError, match=r"in the middle of a node's run"), changing():
        pass
    with changing():
        pass


def test_models_are_built_apart_from_runs_that_go_on(tiny: Callable[[str], TinyRelease]) -> None:
    """A run that stands still at its experts lets another thread build; one that computes does not."""
    skeleton = tiny("qwen3_moe").skeleton
    before = torch.get_default_dtype()

    def build() -> NodeModules:
        return NodeModules(skeleton.config, skeleton.architecture, "bf16", {})

    built = threading.Event()

    def build_and_tell() -> None:
        build()
        built.set()

    with computing():
        thread = in_a_thread(build_and_tell)
        assert not built.wait(1.0)
        assert torch.get_default_dtype() == before
    assert built.wait(WAIT)
    thread.join(WAIT)
    threads = [
        in_a_thread(lambda: build_model(skeleton.config, skeleton.architecture, "bf16", {})) for _ in range(4)
    ]
    for thread in threads:
        thread.join(WAIT)
    assert torch.get_default_dtype() == before


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_a_thread_that_stands_still_keeps_no_others_ready(two_threads: None) -> None:
    """Eight that computed with two threads each and wait: eight more threads in all, and the same results."""
    given = torch.rand(300, 300)
    expected = given @ given
    waiting, go_on, found = threading.Semaphore(0), threading.Event(), list[torch.Tensor]()

    def compute() -> None:
        with computing():
            torch.rand(2**20).mul_(2)
            with standing_still():
                waiting.release()
                go_on.wait(4 * WAIT)
            found.append(given @ given)

    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    before = threads()
    standing = [in_a_thread(compute) for _ in range(8)]
    assert all(waiting.acquire(timeout=WAIT) for _ in standing)
    wait_for(lambda: threads() <= before + 8, "the end of the threads that stood by", WAIT)
    go_on.set()
    for thread in standing:
        thread.join(WAIT)
    assert len(found) == 8
    assert all(torch.equal(one, expected) for one in found)

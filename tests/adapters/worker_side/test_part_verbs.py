"""What the worker answers about runs that stand still, for a stack that is not derived from the eager one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from day0_worker.part_verbs import PartVerbs
from day0_worker.parts import pausing_at
from day0_worker.stack import NodeRun, Stack, StackError


class Experts(torch.nn.Module):
    def forward(self, hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return hidden


class Own(Stack):
    """Works for 50 ms before and after its experts; times only what it is told to."""

    def __init__(self, timed: bool) -> None:
        super().__init__("cpu", 1, None, {})
        self.experts, self.is_timed = Experts(), timed

    def run(self, job: NodeRun) -> Any:
        self.used("kernel", f"of {job.node}")
        if not self.is_timed:
            return self._work(job)
        with self.timed():
            return self._work(job)

    def _work(self, job: NodeRun) -> Any:
        time.sleep(0.05)
        (hidden,) = job.args
        ids = torch.zeros(len(hidden), 1, dtype=torch.int64)
        with pausing_at(self.experts):
            output = self.experts(hidden, ids, torch.ones(len(hidden), 1))
        time.sleep(0.05)
        return (output, None)


def job(node: str = "n", weights: Any = None) -> NodeRun:
    return NodeRun("h", node, weights, [torch.ones(2, 3)], {}, None, pause="experts")


@pytest.fixture(params=[True, False])
def stack(request: pytest.FixtureRequest) -> Own:
    return Own(request.param)


@pytest.fixture
def verbs(stack: Own) -> Iterator[PartVerbs]:
    made = PartVerbs(stack)
    yield made
    made.close()


def resume(stack: Own, verbs: PartVerbs, key: str) -> tuple[dict[str, Any], Any]:
    stack.begin_call()
    return verbs.resume({"key": key, "tree": {"$tensor": "o"}}, {"o": torch.full((2, 3), 4.0)})


def test_each_call_is_measured_by_itself_and_names_what_ran(stack: Own, verbs: PartVerbs) -> None:
    stack.begin_call()
    said, tensors = verbs.start(job())
    assert said["tree"] == [{"$tensor": "t0"}, {"$tensor": "t1"}, {"$tensor": "t2"}]
    assert [list(tensor.shape) for tensor in tensors.values()] == [[2, 3], [2, 1], [2, 1]]
    before = stack.end_call()
    time.sleep(0.3)
    said, tensors = resume(stack, verbs, said["paused"])
    after = stack.end_call()
    assert said == {"tree": {"$tuple": [{"$tensor": "t0"}, None]}}
    assert tensors["t0"].tolist() == [[4.0] * 3] * 2
    for measured in (before, after):
        assert 0.05 <= measured["seconds"] < 0.2
        assert measured["operators"] == {"kernel": "of n"}


def test_runs_may_overlap(stack: Own, verbs: PartVerbs) -> None:
    keys = []
    for node in ("a", "b"):
        stack.begin_call()
        keys.append(verbs.start(job(node))[0]["paused"])
    for node, key in zip(("a", "b"), keys, strict=True):
        resume(stack, verbs, key)
        said = stack.end_call()
        assert 0.05 <= said["seconds"] < 0.2
        assert said["operators"] == {"kernel": f"of {node}"}


def test_weights_of_another_node_make_way(verbs: PartVerbs, stack: Own) -> None:
    keys = {node: verbs.start(job(node))[0]["paused"] for node in ("a", "b")}
    verbs.make_way(job("a"))
    verbs.make_way(NodeRun("h", "b", {}, [], {}, None, experts="experts"))
    verbs.make_way(job("a", {}))
    with pytest.raises(StackError, match="no run waits"):
        resume(stack, verbs, keys["b"])
    assert "tree" in resume(stack, verbs, keys["a"])[0]
    verbs.drop(["unknown"])

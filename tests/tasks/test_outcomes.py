"""How an error of a target reads."""

from __future__ import annotations

from day0.adapters.base.errors import RemoteError, WorkerTimeout
from day0.tasks.outcomes import detail_of, outcome_of


def test_what_a_stack_says_comes_without_where_it_was() -> None:
    error = RemoteError(
        "openvino:Stack failed in run_ops: RuntimeError: Exception from src/inference/infer_request.cpp:224: "
        "Exception from src/plugins/node.cpp:794:\n[CPU] Subgraph node 'sdpa': Check 'dims' failed at "
        "src/shape.cpp:12: Broadcast rule incorrect: Check 'false' failed at src/x.cpp:151: no rule",
        kind="shape",
        type_name="RuntimeError",
        log=[],
        place={},
    )
    assert detail_of(error) == (
        "RuntimeError: [CPU] Subgraph node 'sdpa': Check 'dims' failed: Broadcast rule incorrect: no rule"
    )
    assert outcome_of(error) == "shape"


def test_what_the_worker_itself_says_stays_whole() -> None:
    error = WorkerTimeout("the worker failed in run: no answer\nwithin 5 s", log=[])
    assert detail_of(error) == "the worker failed in run: no answer within 5 s"
    assert outcome_of(error) == "hang"

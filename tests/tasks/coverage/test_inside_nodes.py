from __future__ import annotations

import pytest

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.operator_capture import Capture, CaptureRequest
from day0.adapters.base.target_spec import TargetSpec
from day0.tasks.coverage.inside_nodes import between_nodes
from day0.tasks.coverage.needs import needs_of


def call(op: str, *modules: str, size: int = 4) -> OperatorCall:
    fact = {"dtype": "fp32", "shape": [size], "stride": [1], "alias": 0}
    return OperatorCall(
        op=op,
        args=[{"tensor": fact}],
        dtypes=["fp32"],
        shapes=[[size]],
        module=modules[0],
        modules=modules if len(modules) > 1 else (),
    )


CALLS = [
    call("aten.tril.default", "model"),
    call("aten.sort.default", ""),
    call("aten.cos.default", "model.rotary_emb"),
    call("aten.mm.default", "model.layers.0.mlp", "model.layers.1.mlp"),
    call("aten.embedding.default", "model.embed_tokens"),
    call("aten.mul.Tensor", "model", "model.layers.0"),
    call("aten.tanh.default", "lm_head"),
]


def test_containers_and_sampling_are_between_nodes() -> None:
    outside = between_nodes(CALLS)
    assert [one.op for one in CALLS if one.signature in outside] == ["aten.tril.default", "aten.sort.default"]


@pytest.mark.parametrize(
    ("stack", "count"), [("openvino", 5), ("onnxruntime", 5), ("inductor", 7), ("eager", 7)]
)
def test_a_stack_that_is_given_nodes_needs_nothing_else(stack: str, count: int) -> None:
    capture = Capture(request=CaptureRequest(), calls=CALLS, captured_dtype="fp32")
    assert len(needs_of(capture, TargetSpec.parse(f"{stack}@cpu/fp32"))) == count

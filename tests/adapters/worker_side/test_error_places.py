# ruff: noqa: E501  # the texts are the stacks' own
from __future__ import annotations

import pytest

from day0_worker.error_places import locate
from day0_worker.failures import answer

DYNAMO = (
    "RuntimeError when making fake tensor call\n  Explanation: Dynamo failed to run FX node with fake tensors: "
    "call_function aten.mm.default(*(FakeTensor(..., size=(4, 8)), FakeTensor(..., size=(7, 3))), **{}): got "
    "RuntimeError('a and b must have same reduction dim, but got [4, 8] X [7, 3].')"
)
EXPORTER = (
    "Failed to convert the exported program to an ONNX model. \x1b[96mThis is step 3/3\x1b[0m of exporting the "
    "model to ONNX. Next steps:\n- If there is a missing ONNX function, implement it and register it.\n\n"
    "## Exception summary\n\n<class 'torch.onnx._internal.exporter._errors.DispatchError'>: No ONNX function "
    "found for <OpOverload(op='aten.linalg_solve_triangular', overload='default')>. Failure message: No "
    "decompositions registered for the real-valued input\n⬆️\n<class "
    "'torch.onnx._internal.exporter._errors.ConversionError'>: Error when translating node "
    "%linalg_solve_triangular : [num_users=1] = call_function[target=torch.ops.aten.linalg_solve_triangular"
    ".default](args = (%clone, %clone_1), kwargs = {upper: True}). See the stack trace for more information.\n\n"
    "(Refer to the full stack trace above for more information.)"
)
HISTC = (
    "Failed to convert the exported program to an ONNX model. Next steps:\n\n## Exception summary\n\n<class "
    "'NotImplementedError'>: aten_histc with min == max (0.0) is not supported in this export path.\n⬆️\n<class "
    "'torch.onnx._internal.exporter._errors.GraphConstructionError'>: Error when calling function "
    "'TracedOnnxFunction(<function aten_histc>)' with args '[SymbolicTensor(name='clone', shape=Shape([16]))]'\n"
    "(Refer to the full stack trace above for more information.)"
)
TEXTS = {
    "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for MatMul(13) node with name "
    "'node_mm'": {"op": "onnx.MatMul@13", "node": "node_mm"},
    "[ONNXRuntimeError] : 10 : INVALID_GRAPH : This is an invalid model. Type Error: Type 'tensor(int8)' of "
    "input parameter (input_0) of operator (MatMul) in node (node_mm) is invalid": {
        "op": "onnx.MatMul",
        "dtype": "int8",
        "node": "node_mm",
    },
    "Non-zero status code returned while running Add node. Name:'node_add' Status Message: axis == 1 || "
    "axis == largest was false. Attempting to broadcast an axis by a dimension other than 1. 3 by 4": {
        "op": "onnx.Add",
        "node": "node_add",
    },
    "Exception from src/plugins/intel_cpu/src/node.cpp:794:\n[CPU] Subgraph node with name "
    "'scaled_dot_product_attention/aten.scaled_dot_product_attention.default/ScaledDotProductAttention' "
    "Exception from src/common/snippets/src/lowered/expression.cpp:319:\nShape inference of MatMul_6290 failed: "
    "Incompatible MatMul batch dimension. Can't merge dim 4 with dim 2 at index=1": {
        "op": "aten.scaled_dot_product_attention.default",
        "shape": "4 against 2 in dimension 1",
        "node": "scaled_dot_product_attention/aten.scaled_dot_product_attention.default/"
        "ScaledDotProductAttention",
    },
    "Model wasn't fully converted.\nSummary:\n-- No conversion rule found for operations: aten.histc.default": {
        "op": "aten.histc.default"
    },
    "mat1 and mat2 shapes cannot be multiplied (4x8 and 7x3)": {"shape": "4x8, 7x3"},
    "\"addmm_impl_cpu_\" not implemented for 'Half'": {"op": "addmm_impl_cpu_", "dtype": "fp16"},
    "Could not run 'aten::silu.out' with arguments from the 'Abacus' backend.": {"op": "aten.silu.out"},
    DYNAMO: {"op": "aten.mm.default", "shape": "[4, 8], [7, 3], [4, 8], [7, 3]"},
    EXPORTER: {"op": "aten.linalg_solve_triangular.default", "node": "linalg_solve_triangular"},
    "nothing that says where": {},
}


@pytest.mark.parametrize(("text", "place"), TEXTS.items(), ids=[text[-24:] for text in TEXTS])
def test_a_place_is_read_out_of_the_words_of_each_stack(text: str, place: dict[str, str]) -> None:
    assert locate(text) == place


def test_the_exporters_instructions_are_left_out_and_the_cause_decides_the_kind() -> None:
    said = answer(RuntimeError(EXPORTER))
    assert said["kind"] == "missing_operator"
    assert said["message"].startswith("Failed to convert the exported program")
    assert "\x1b" not in said["message"]
    assert "register it." not in said["message"]
    # The shapes of the arguments that follow the cause are no reason to call it an error of shapes.
    assert answer(NotImplementedError(HISTC))["kind"] == "unsupported"


def test_causes_say_where_too() -> None:
    error = RuntimeError("export failed")
    error.__cause__ = ValueError(
        "Error when translating node %mm : call_function[target=torch.ops.aten.mm.default]()"
    )
    assert answer(error)["place"] == {"op": "aten.mm.default", "node": "mm"}

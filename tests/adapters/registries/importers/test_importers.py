"""Support lists as vendors publish them, and as somebody who means harm writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from day0.adapters.base.errors import InputError
from day0.adapters.registries.importers.choose import read_declared

_OP_PLUGIN = """\
all_version: [v2.1, v2.2, v2.3, v2.6, v2.10]
official:
  - func: add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
    acl_op: all_version
    op_api: all_version
  - func: mm(Tensor self, Tensor mat2) -> Tensor
    acl_op: [v2.1, newest]
    gen_opapi:
      out:
        size: self
  - func: old(Tensor self) -> Tensor
    acl_op: [v2.1, v2.6]
  - func: named(Tensor self) -> Tensor
    op_api: v2.1, v2.2
symint:
  - func: view(Tensor(a) self, SymInt[] size) -> Tensor(a)
custom:
  - func: npu_rotary_mul(Tensor self, Tensor r1, Tensor r2) -> Tensor
    op_api: [v2.3, newest]
"""

_KERNELS = """\
## Supported Operators and Data Types

## Operators implemented by CPUExecutionProvider

| Op Name | Parameters | OpSet Version | Types Supported |
|---------|------------|---------------|-----------------|
|**Operator Domain:** *ai.onnx*||||
|Abs|*in* X:**T**<br> *out* Y:**T**|13+|**T** = tensor(double), tensor(float)|
|||[6, 12]|**T** = tensor(float)|
|Grid|*in* a:**T1**<br> *in* b:**T2**|20|**T1** = tensor(float16)<br/> **T2** = tensor(int64)|
|**Operator Domain:** *com.microsoft*||||
|Attention|*in* input:**T**<br> *out* output:**T**|1+|**T** = tensor(float)|

## Operators implemented by CUDAExecutionProvider

|**Operator Domain:** *ai.onnx*||||
|Abs|*in* X:**T**<br> *out* Y:**T**|13+|**T** = tensor(float16)|
"""


def _read(folder: Path, name: str, text: str | bytes, version: str = "") -> dict[str, str]:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    registry = read_declared("acme@npu", path, version)
    assert not registry.rows
    assert {row.method for row in registry.declared.values()} == {"declared"}
    assert all(digest in registry.fingerprints for _, digest in registry.declared)
    return {row.key: row.status for row in registry.declared.values()}


def test_op_plugin_gates_rows_by_version(tmp_path: Path) -> None:
    newest = _read(tmp_path, "list.yaml", _OP_PLUGIN)
    assert newest == {
        "aten.add.Tensor||": "native",
        "aten.mm.default||": "native",
        "aten.old.default||": "missing",
        "aten.named.default||": "missing",
        "aten.view.default||": "native",
        "npu.npu_rotary_mul.default||": "native",
    }
    older = _read(tmp_path, "list.yml", _OP_PLUGIN, "v2.2")
    changed = {key: status for key, status in older.items() if newest[key] != status}
    assert changed == {
        "aten.old.default||": "native",
        "aten.named.default||": "native",
        "npu.npu_rotary_mul.default||": "missing",
    }


def test_kernels_are_read_by_provider_opset_and_type(tmp_path: Path) -> None:
    assert set(_read(tmp_path, "OperatorKernels.md", _KERNELS)) == {
        "onnx.Abs@13|fp64|",
        "onnx.Abs@13|fp32|",
        "onnx.com.microsoft.Attention@1|fp32|",
    }
    assert set(_read(tmp_path, "OperatorKernels.md", _KERNELS, "20")) == {
        "onnx.Abs@13|fp64|",
        "onnx.Abs@13|fp32|",
        "onnx.Grid@20|fp16,int64|",
        "onnx.com.microsoft.Attention@1|fp32|",
    }
    assert "onnx.Abs@6|fp32|" in _read(tmp_path, "OperatorKernels.md", _KERNELS, "7")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.yaml", ""),
        ("list.yaml", "official: 3"),
        ("list.yaml", "- just\n- a list"),
        ("list.yaml", "official: [&a [x, x], *a, *a]"),
        ("list.yaml", "!!python/object/apply:os.system ['true']"),
        ("list.yaml", "[" * 20000),
        ("list.yaml", "official:\n  - func: 12\n  - [a]\n  - func: no schema here"),
        ("list.yaml", b"\xff\xfe\x00"),
        ("list.md", ""),
        ("list.md", "## Operators implemented by Other\n|a|b|c|d|\n"),
        ("list.md", "|" * 100_000),
        ("list.txt", "official: []"),
    ],
)
def test_what_is_no_list_is_said_in_one_sentence(tmp_path: Path, name: str, text: str | bytes) -> None:
    with pytest.raises(InputError, match="E173"):
        _read(tmp_path, name, text)


def test_a_list_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="E173"):
        read_declared("acme@npu", tmp_path / "nothing.md")
    (tmp_path / "OperatorKernels.md").write_text(_KERNELS)
    with pytest.raises(InputError, match="no version of the operator set"):
        read_declared("acme@npu", tmp_path / "OperatorKernels.md", "²²")

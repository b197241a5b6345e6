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
    registry = read_declared("onnxruntime@cpu" if name.endswith(".md") else "acme@npu", path, version)
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
        read_declared("onnxruntime@cpu", tmp_path / "OperatorKernels.md", "²²")


def test_a_list_speaks_of_its_own_stack_and_device(tmp_path: Path) -> None:
    kernels, plugin = tmp_path / "OperatorKernels.md", tmp_path / "list.yaml"
    kernels.write_text(_KERNELS)
    plugin.write_text(_OP_PLUGIN)
    for name, path in (("acme@npu", kernels), ("onnxruntime@cpu", plugin)):
        with pytest.raises(InputError, match="E175"):
            read_declared(name, path)
    cuda = read_declared("onnxruntime@cuda", kernels)
    assert [row.key for row in cuda.declared.values()] == ["onnx.Abs@13|fp16|"]
    with pytest.raises(InputError, match="no table of qnnExecutionProvider"):
        read_declared("onnxruntime@qnn", kernels)


@pytest.mark.parametrize("gate", ["{a: b}", "", "yes", "[v2.1", "v2.1 v2.2", "[[v2.1]]", "all_versions"])
def test_an_entry_whose_gate_is_no_version_is_no_row(tmp_path: Path, gate: str) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(f"{_OP_PLUGIN}  - func: odd(Tensor self) -> Tensor\n    op_api: {gate}\n")
    registry = read_declared("acme@npu", path)
    assert not [row for row in registry.declared.values() if "odd" in row.op]
    (unread,) = registry.unread
    assert unread.startswith("1 entries of the list cannot be read, such as 'func: odd(Tensor self)")


def test_lines_of_a_table_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    path = tmp_path / "OperatorKernels.md"
    path.write_text(_KERNELS.replace("|Grid|", "|Torn|*in* X:**T**|13+\n|Odd|*in* X:**T**|soon|t|\n|Grid|"))
    registry = read_declared("onnxruntime@cpu", path)
    assert len(registry.declared) == 3
    assert [unread.partition(",")[0] for unread in registry.unread] == [
        "2 entries of the list cannot be read"
    ]

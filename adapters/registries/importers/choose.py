"""Which reader a support list takes, by its file's name and content."""

from __future__ import annotations

from pathlib import Path

from ...base.errors import InputError
from ..registry import Registry
from .listed import read_text, unreadable
from .op_plugin import NEWEST, read_op_plugin
from .ort_kernels import read_ort_kernels

_ORT = "onnxruntime"


def read_declared(name: str, path: Path, version: str = "") -> Registry:
    """A support list as declared rows.

    Args:
        name: `STACK@DEVICE` that the rows are for; the device says which provider's table is read.
        path: an `op_plugin_functions.yaml`, or an `OperatorKernels.md`.
        version: of torch (`v2.7`) or of the operator set (`21`) that the rows hold for; empty: the newest.

    Raises:
        InputError: E173, it is neither, or damaged; E175, it speaks of another kind of stack.
    """
    text = read_text(path)
    stack, _, device = name.partition("@")
    if path.suffix.lower() in (".yaml", ".yml"):
        if stack == _ORT:
            raise _of_another(path, "operators of torch", name)
        return read_op_plugin(name, text, version or NEWEST)
    if path.suffix.lower() == ".md":
        if version and not (version.isascii() and version.isdigit() and len(version) < 5):
            raise unreadable(path.name, f"{version!r} is no version of the operator set")
        if stack != _ORT:
            raise _of_another(path, "kernels of ONNX Runtime", name)
        return read_ort_kernels(name, text, int(version or 0), device)
    raise unreadable(path.name, "its name ends neither in .yaml nor in .md")


def _of_another(path: Path, what: str, name: str) -> InputError:
    return InputError(
        f"the support list {path.name!r} declares {what}, which says nothing of {name}",
        code="E175",
        remedy="Name a target whose stack the list is of: OperatorKernels.md is for onnxruntime alone.",
    )

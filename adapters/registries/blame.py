"""Which layer of a stack an error speaks for, and who keeps it."""

from __future__ import annotations

from collections.abc import Mapping

from ..base.entry_points import keeper

_STACKS = "day0.targets"
"""Entry points by which packages offer stacks."""

_COMPILES_FIRST = ("missing_operator", "unsupported", "dtype", "shape", "runtime")

_LAYERS: Mapping[str, Mapping[str, str]] = {
    "eager": {"missing_operator": "adapter", "unsupported": "adapter", "import": "adapter"},
    "inductor": dict.fromkeys(_COMPILES_FIRST, "compiler"),
    "onnxruntime": {**dict.fromkeys(_COMPILES_FIRST, "compiler"), "runtime": "runtime"},
    "openvino": dict.fromkeys(_COMPILES_FIRST, "compiler"),
}
"""Stack -> kind of its error -> layer. In eager mode what is missing was never registered by the package that
plugs the device into torch; a dtype or shape is refused inside the kernel. A compiling stack refuses before
it runs, unless it says that its runtime or device plugin spoke."""

_EXPORT_WORDS = ("torchexporterror", "conversionerror", "opconversionfailure", "torch.export")
_RUNTIME_WORDS = (
    "onnxruntimeerror",
    "ort_",
    "inferencesession",
    "while running",
    "exceptions from src/plugins",
    "exception from src/plugins",
    "exception from src/inference",
)
"""What an error says that comes from the exporter, and what one that comes from the runtime after it."""

_OWNERS: Mapping[tuple[str, str], str] = {
    ("eager", "adapter"): "the package that plugs the device into PyTorch",
    ("eager", "library"): "the device's kernel library",
    ("eager", "runtime"): "the device's kernel library",
    ("inductor", "compiler"): "PyTorch Inductor (github.com/pytorch/pytorch, module: inductor)",
    ("inductor", "library"): "PyTorch Inductor (github.com/pytorch/pytorch, module: inductor)",
    ("inductor", "runtime"): "PyTorch Inductor (github.com/pytorch/pytorch, module: inductor)",
    ("onnxruntime", "compiler"): "PyTorch's ONNX exporter (github.com/pytorch/pytorch, module: onnx)",
    ("onnxruntime", "library"): "ONNX Runtime (github.com/microsoft/onnxruntime)",
    ("onnxruntime", "runtime"): "ONNX Runtime (github.com/microsoft/onnxruntime)",
    ("openvino", "compiler"): "OpenVINO, PyTorch frontend (github.com/openvinotoolkit/openvino)",
    ("openvino", "library"): "OpenVINO, device plugin (github.com/openvinotoolkit/openvino)",
    ("openvino", "runtime"): "OpenVINO, device plugin (github.com/openvinotoolkit/openvino)",
}
_ON_CPU = "PyTorch (github.com/pytorch/pytorch, module: cpu)"


def layer_of(stack: str, kind: str, message: str = "") -> str:
    """The layer at fault for a stack's error.

    Args:
        stack: by name, as in the target grammar; one that is not known here is taken for one in eager mode.
        kind: of the error, out of `day0_worker.stack.ERROR_KINDS`.
        message: the stack's words, which tell a runtime from the exporter before it.
    """
    if kind == "memory":
        return "worker"
    known = _LAYERS.get(stack, _LAYERS["eager"])
    layer = known.get(kind, "adapter" if kind in ("import", "key_mismatch") else "library")
    if "compiler" not in known.values():
        return layer
    spoken = message.lower()
    if any(word in spoken for word in _EXPORT_WORDS):
        return "compiler"
    return "runtime" if any(word in spoken for word in _RUNTIME_WORDS) else layer


def owner_of(stack: str, device: str, layer: str) -> str:
    """Who keeps a layer of a stack; empty where that is not known.

    Of a stack that is none of Day0's own all layers but the process are taken for its package's: whoever
    keeps that knows whom else to ask.
    """
    if stack == "eager" and device == "cpu" and layer in ("adapter", "library", "runtime"):
        return _ON_CPU
    known = _OWNERS.get((stack, layer), "")
    return known or (keeper(_STACKS, stack) if layer not in ("", "worker") else "")

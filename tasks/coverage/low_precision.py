"""What a low-precision checkpoint asks of a target if its weights are to stay as they are stored.

A capture runs in the config's dtype, as a dequantised model does. Here its matrix products get the form that
they have with the weights as stored, as operators of their own: a gap shows before anybody loads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.operator_capture import Kernel

from .needs import Need

WAY = "dequantise"
"""Id of the way around: weights in the config's dtype, which take more memory."""

PRODUCTS = ("aten.mm.default", "aten.addmm.default", "aten._grouped_mm.default", "aten.bmm.default")
_FP8 = ("fp8_e4m3", "fp8_e5m2")
_LOW = {*_FP8, "fp4_e2m1", "int8", "uint8", "int4", "int32"}
_STATED = "config.json#/"
_BLOCK = 128
"""Values of an activation that share a scale in the block-wise fp8 kernels of DeepSeek and transformers."""


class Stored(Protocol):
    """One pattern of the inventory.

    Attributes:
        pattern: name without indices, e.g. `model.layers.{l}.mlp.up_proj.weight`.
        owner: role of the weight that it is or serves.
        role: its own role; `aux` for scales.
        dtype: as stored.
        packing: how several values share an element, empty where none do.
    """

    @property
    def pattern(self) -> str:
        """Name without indices."""

    @property
    def role(self) -> str:
        """Role of the tensor."""

    @property
    def dtype(self) -> str:
        """As stored."""


def low_precision_needs(
    needs: Sequence[Need], scheme: str, group: Any, stored: Iterable[Stored], kernels: Sequence[Kernel]
) -> list[Need]:
    """The rows that the stored weights ask for, each with the share of the products whose place it takes.

    Args:
        needs: of the captured calls.
        scheme: word of the design's vocabulary; `none` gives nothing.
        group: block size, an integer or [rows, columns].
        stored: patterns of the release's tensors.
        kernels: that the model asks for; schemes without an operator of torch's are named by theirs.
    """
    if scheme in ("", "none"):
        return []
    modules = _low_modules(stored)
    kernel = next((one.name for one in kernels if _of_config(one)), f"triton:{scheme}_matmul")
    rows: dict[str, list[OperatorCall]] = {}
    impact: dict[str, float] = {}
    for need in needs:
        if need.example.op not in PRODUCTS:
            continue
        matched = [call for call in need.calls if _is_low(call, modules)]
        for call in matched:
            changed = _as_stored(call, scheme, group, kernel)
            rows.setdefault(changed.row_key, []).append(changed)
            share = need.impact * call.count / sum(one.count for one in need.calls)
            impact[changed.row_key] = impact.get(changed.row_key, 0.0) + share
    return sorted(
        (Need(key, calls, impact[key]) for key, calls in rows.items()),
        key=lambda need: (-need.impact, need.key),
    )


def _of_config(kernel: Kernel) -> bool:
    return kernel.name.startswith(("hub:", "triton:")) and any(
        place.startswith(_STATED) and "quantization" in place for place in kernel.required_by
    )


def _low_modules(stored: Iterable[Stored]) -> list[re.Pattern[str]]:
    """Modules of which a weight is stored in low precision, as regular expressions over their paths.

    Experts stand one by one in most checkpoints and together in transformers: their path ends at the list.
    """
    found = {}
    for one in stored:
        if one.role == "aux" or one.dtype not in _LOW:
            continue
        path = re.split(r"\.\{e\}|\.experts\b", one.pattern)
        module = f"{path[0]}.experts" if len(path) > 1 and "expert" in one.pattern else one.pattern
        module = module.removesuffix(".experts.experts") if module.endswith(".experts.experts") else module
        module = re.sub(r"\.(weight|qweight|weight_packed|\w+_blocks)$", "", module)
        found[module] = re.compile(re.sub(r"\\\{\w+\\\}", r"\\d+", re.escape(module)) + r"$")
    return list(found.values())


def _is_low(call: OperatorCall, modules: Sequence[re.Pattern[str]]) -> bool:
    paths = [path for path in (*call.modules, call.module) if path]
    return any(module.match(path) for path in paths for module in modules)


def _as_stored(call: OperatorCall, scheme: str, group: Any, kernel: str) -> OperatorCall:
    left, right = list(call.shapes[-2]), list(call.shapes[-1])
    if call.op == "aten._grouped_mm.default":
        left, right = list(call.shapes[0]), list(call.shapes[1])
    if scheme.startswith("fp8") and len(left) == 2 and len(right) == 2:
        return _scaled(call, left, right, scheme, group)
    operator = "aten._scaled_grouped_mm.default" if scheme.startswith("fp8") else kernel
    weight = {"mxfp4": "fp4_e2m1", "nvfp4": "fp4_e2m1"}.get(scheme, "fp8_e4m3" if "fp8" in scheme else "int4")
    scale = {"mxfp4": "e8m0", "nvfp4": "fp8_e4m3"}.get(scheme, "fp32")
    given = "fp8_e4m3" if scheme.startswith("fp8") else call.dtypes[0]
    return _call(
        call, operator, {"a": (given, left), "b": (weight, right), "scale": (scale, [*right[:-1], 1])}
    )


def _scaled(
    call: OperatorCall, left: Sequence[int], right: Sequence[int], scheme: str, group: Any
) -> OperatorCall:
    """`_scaled_mm` as torch takes it: the second matrix column by column, scales as the scheme has them."""
    rows, inner, columns = left[0], left[1], right[1]
    if scheme == "fp8_tensor":
        scales: tuple[list[int], list[int]] = ([], [])
    elif scheme == "fp8_channel":
        scales = ([rows, 1], [1, columns])
    else:
        block = group if isinstance(group, list | tuple) else [int(group or _BLOCK)] * 2
        scales = ([rows, -(-inner // block[1])], [-(-inner // block[1]), -(-columns // block[0])])
    low = "fp8_e4m3"
    tensors = {
        "a": (low, [rows, inner]),
        "b": (low, [inner, columns]),
        "scale_a": ("fp32", scales[0]),
        "scale_b": ("fp32", scales[1]),
    }
    made = _call(call, "aten._scaled_mm.default", tensors)
    args = list(made.args)
    args[1] = {"tensor": {**args[1]["tensor"], "stride": [1, inner]}}
    return made.model_copy(update={"args": args, "kwargs": {"out_dtype": {"dtype": call.dtypes[0]}}})


def _call(call: OperatorCall, op: str, tensors: Mapping[str, tuple[str, Sequence[int]]]) -> OperatorCall:
    args = [
        {"tensor": {"dtype": dtype, "shape": list(shape), "stride": _strides(shape), "alias": place}}
        for place, (dtype, shape) in enumerate(tensors.values())
    ]
    return OperatorCall(
        op=op,
        args=args,
        dtypes=[dtype for dtype, _ in tensors.values()],
        shapes=[list(shape) for _, shape in tensors.values()],
        module=call.module,
        modules=call.modules,
        phase=call.phase,
        count=call.count,
        tokens=call.tokens,
    )


def _strides(shape: Sequence[int]) -> list[int]:
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= size
    return found[::-1]

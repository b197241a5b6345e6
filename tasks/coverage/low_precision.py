"""What a low-precision checkpoint asks of a target if its weights are to stay as they are stored.

A capture runs in the config's dtype, as a dequantised model does. Here its matrix products get the form that
they have with the weights as stored, as operators of their own: a gap shows before anybody loads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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
_SIDE_ROLES = ("vision", "projector")
_SIDE = r"(?=.*(?:vision|visual|image|projector))"
"""Whether a path lies beside the text model; both have layers of the same names."""
_SCALED = ("fp8_tensor", "fp8_channel", "fp8_block")
"""Schemes for which torch has operators; grouped products take no blocks (its `_scaled_grouped_mm`)."""
_STORED = {
    "mxfp4": ("fp4_e2m1", "e8m0"),
    "nvfp4": ("fp4_e2m1", "fp8_e4m3"),
    "int4_group": ("int4", "bf16"),
    "int8": ("int8", "fp32"),
}
"""Scheme -> dtypes of weight and scale, for products that torch has no operator for."""


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
    return kernel.name.startswith(("hub:", "triton:", "package:")) and any(
        place.startswith(_STATED) and "quantization" in place for place in kernel.required_by
    )


def _low_modules(stored: Iterable[Stored]) -> list[re.Pattern[str]]:
    """Modules of which a weight is stored in low precision, as regular expressions over their paths."""
    found = {_module(one): None for one in stored if one.role != "aux" and one.dtype in _LOW and one.pattern}
    return [re.compile(text) for text in found]


def _module(one: Stored) -> str:
    """The module of a pattern: its path from the list of layers on; releases name otherwise what is around.

    Experts stand one by one in most checkpoints, under several names, and together in transformers: their
    path ends at the list.
    """
    side = _SIDE if one.role in _SIDE_ROLES else rf"(?!{_SIDE})"
    if "expert" in one.role and "shared" not in one.role:
        return rf"{side}(?:.*\.)?\d+\.(?:[\w.]*\.)?experts$"
    path = re.sub(r"\.(weight|qweight|weight_packed|\w+_blocks)$", "", one.pattern)
    before, layered, inside = path.partition(".{l}.")
    kept = f"{before.rpartition('.')[2]}.{{l}}.{inside}" if layered else path.rpartition(".")[2]
    return rf"{side}(?:.*\.)?" + re.sub(r"\\\{\w+\\\}", r"\\d+", re.escape(kept)) + "$"


def _is_low(call: OperatorCall, modules: Sequence[re.Pattern[str]]) -> bool:
    paths = [path for path in (*call.modules, call.module) if path]
    return any(module.match(path) for path in paths for module in modules)


def _as_stored(call: OperatorCall, scheme: str, group: Any, kernel: str) -> OperatorCall:
    grouped = call.op == "aten._grouped_mm.default"
    left, right = (list(call.shapes[place]) for place in ((0, 1) if grouped else (-2, -1)))
    if scheme in _SCALED and len(left) == 2 and not (scheme == "fp8_block" and len(right) == 3):
        return _scaled(call, left, right, scheme, group)
    weight, scale = _STORED.get(scheme, ("fp8_e4m3" if scheme.startswith("fp8") else "int4", "fp32"))
    shape = [*right[:-2], *_scale_shape(right[-2:], scheme, group)]
    return _call(call, kernel, [(call.dtypes[0], left), (weight, right), (scale, shape)])


def _scaled(
    call: OperatorCall, left: Sequence[int], right: Sequence[int], scheme: str, group: Any
) -> OperatorCall:
    """`_scaled_mm`, or `_scaled_grouped_mm`, which takes a scale a row. The second matrix is column-major."""
    (rows, inner), columns, experts = left, right[-1], list(right[:-2])
    of_weight = _scale_shape(right[-2:], scheme, group)
    scales: list[tuple[str, Sequence[int]]] = [
        ("fp32", [] if scheme == "fp8_tensor" else [rows, of_weight[0]]), ("fp32", of_weight)
    ]  # fmt: skip
    if experts:
        scales = [("fp32", [rows]), ("fp32", [*experts, columns]), ("int32", experts)]
    made = _call(
        call,
        f"aten.{'_scaled_grouped_mm' if experts else '_scaled_mm'}.default",
        [(_FP8[0], left), (_FP8[0], right), *scales],
    )
    args = list(made.args)
    strides = [columns * inner, 1, inner][-len(right) :]
    args[1] = {"tensor": {**args[1]["tensor"], "stride": strides}}
    return made.model_copy(update={"args": args, "kwargs": {"out_dtype": {"dtype": call.dtypes[0]}}})


def _scale_shape(matrix: Sequence[int], scheme: str, group: Any) -> list[int]:
    """Scales of a weight [inner, columns], one each `group` of inner values or block of [columns, inner]."""
    inner, columns = matrix
    if scheme == "fp8_tensor":
        return []
    if scheme == "fp8_channel" or not group:
        return [1, columns]
    high, wide = group if isinstance(group, list | tuple) else (1, int(group))
    return [-(-inner // wide), -(-columns // high)]


def _call(call: OperatorCall, op: str, tensors: Sequence[tuple[str, Sequence[int]]]) -> OperatorCall:
    args = [
        {"tensor": {"dtype": dtype, "shape": list(shape), "stride": _strides(shape), "alias": place}}
        for place, (dtype, shape) in enumerate(tensors)
    ]
    return OperatorCall(
        op=op,
        args=args,
        dtypes=[dtype for dtype, _ in tensors],
        shapes=[list(shape) for _, shape in tensors],
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

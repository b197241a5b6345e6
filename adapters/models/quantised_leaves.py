"""What stands for one unquantised weight in a quantised checkpoint: its tensors, and how they are read.

Tensors are grouped by the names that each format gives them, before transformers' renaming rules see them;
the leaf bears the name that the weight has without quantisation. Names, dtypes and shapes of the header have
to agree with what the config states; what does not fit, or is not known, becomes a reason, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.checkpoint import TensorInfo
from .conversions import Part
from .packed_leaves import (
    Form,
    Stored,
    awq_form,
    blocks_form,
    gptq_form,
    packed_form,
    scaled_form,
)
from .quantisation_statement import Statement, statement_of

_SCALES = ("_scale_inv", "_scale")  # after the name of the weight
_OTHER_SCALES = (".scale", ".qscale_weight")  # after that of its module
_ASIDE = (
    ".input_scale", ".input_zero_point", ".input_global_scale", ".output_scale", ".activation_scale",
    ".weight_shape", ".g_idx",
)  # fmt: skip


@dataclass(frozen=True)
class Unreadable:
    """A weight whose tensors cannot be read.

    Attributes:
        reason: why, as the rest of a sentence about the weight.
        tensors: checkpoint tensors that belong to it.
    """

    reason: str
    tensors: tuple[str, ...]


Leaf = Part | Unreadable


def leaves_of(tensors: Mapping[str, TensorInfo], config: Mapping[str, Any]) -> dict[str, Leaf]:
    """Name that transformers' rules are to see -> leaf; tensors that only serve another have none.

    Args:
        tensors: of the checkpoint.
        config: config.json as parsed.
    """
    statement = statement_of(config)
    found: dict[str, Leaf] = {}
    taken: set[str] = set()
    for name, info in tensors.items():
        group = _group(name, info, tensors)
        if group is None:
            continue
        found[group.weight] = _leaf(group, statement)
        taken.update(group.names)
    for name, info in tensors.items():
        if name not in taken and name not in found:
            found[name] = Part({"tensor": name}, tuple(info.shape), (name,))
    return found


@dataclass(frozen=True)
class _Group:
    """Tensors that stand for one weight: what they are called in the format, and what they are."""

    weight: str
    kind: str
    stored: Stored
    aside: Sequence[str]

    @property
    def names(self) -> tuple[str, ...]:
        return (*(info.name for info in self.stored.values()), *self.aside)


def _group(name: str, info: TensorInfo, tensors: Mapping[str, TensorInfo]) -> _Group | None:
    """The group whose main tensor this is; None where it is plain, or serves another."""
    if name.endswith("_blocks") and (base := name.removesuffix("_blocks")) + "_scales" in tensors:
        return _Group(base, "blocks", {"weight": info, "scale": tensors[f"{base}_scales"]}, ())
    if name.endswith(".weight_packed"):
        module = name.removesuffix(".weight_packed")
        sides = {"scale": "weight_scale", "zero_point": "weight_zero_point", "stored_shape": "weight_shape",
                 "global": "weight_global_scale", "groups": "weight_g_idx"}  # fmt: skip
        return _with_sides(module, "packed", info, sides, tensors)
    if name.endswith(".qweight"):
        sides = {"scale": "scales", "zero_point": "qzeros", "groups": "g_idx"}
        return _with_sides(name.removesuffix(".qweight"), "words", info, sides, tensors)
    return _scaled_group(name, info, tensors)


def _with_sides(
    module: str, kind: str, info: TensorInfo, sides: Mapping[str, str], tensors: Mapping[str, TensorInfo]
) -> _Group:
    stored = {
        key: tensors[f"{module}.{side}"] for key, side in sides.items() if f"{module}.{side}" in tensors
    }
    aside = [f"{module}{end}" for end in _ASIDE if f"{module}{end}" in tensors]
    known = {part.name for part in stored.values()}
    return _Group(
        f"{module}.weight", kind, {"weight": info, **stored}, [name for name in aside if name not in known]
    )


def _scaled_group(name: str, info: TensorInfo, tensors: Mapping[str, TensorInfo]) -> _Group | None:
    """A weight of one number an element beside its scales."""
    small = info.dtype.startswith(("fp8", "fp4")) or info.dtype in ("int8", "uint8")
    module = name.removesuffix(".weight") if name.endswith(".weight") else None
    ends = [name + end for end in (_SCALES if small else _SCALES[:1])]
    ends += [module + end for end in _OTHER_SCALES] if module is not None and small else []
    scale = next((end for end in ends if end in tensors), None)
    if scale is None:
        return None
    stored = {"weight": info, "scale": tensors[scale]}
    if f"{name}_zero_point" in tensors:
        stored["zero_point"] = tensors[f"{name}_zero_point"]
    for end in ("_scale_2", "_global_scale", "_offset"):
        if name + end in tensors:
            stored["global"] = tensors[name + end]
    aside = [f"{module}{end}" for end in _ASIDE if f"{module}{end}" in tensors] if module is not None else []
    return _Group(name, "scaled", stored, aside)


def _leaf(group: _Group, statement: Statement) -> Leaf:
    """The expression on which all readings that the config allows agree."""
    forms = list(_forms(group, statement))
    good = [form for form in forms if not isinstance(form, str)]
    wrong = [form for form in forms if isinstance(form, str)]
    if not good:
        return Unreadable(wrong[0] if wrong else _unknown(group, statement), group.names)
    if any(form != good[0] for form in good):
        name = group.stored["weight"].name
        return Unreadable(f"{statement.words} allows several readings of {name}", group.names)
    expression, shape = good[0]
    read = {info.name for info in group.stored.values()}
    return Part(expression, tuple(shape), tuple(name for name in group.names if name in read))


def _forms(group: _Group, statement: Statement) -> Iterator[Form | str]:
    if group.kind == "blocks":
        yield blocks_form(group.stored, statement)
    elif group.kind == "packed":
        yield from (packed_form(group.stored, weights) for weights in statement.weights)
    elif group.kind == "words" and statement.method == "gptq":
        yield gptq_form(group.stored, statement)
    elif group.kind == "words" and statement.method == "awq":
        yield awq_form(group.stored, statement)
    elif group.kind == "scaled":
        yield from (scaled_form(group.stored, weights, statement) for weights in statement.weights)


def _unknown(group: _Group, statement: Statement) -> str:
    return f"its tensors are stored as {statement.words}, which cannot be dequantised"

"""How a tensor that does not exist yet would be stored: in the precision that the config declares for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, prod

from day0.adapters.base.checkpoint import TensorKind
from day0.adapters.base.dtypes import BITS, num_bytes
from day0.adapters.models.expected_run import ImpliedTensor

from .declaration import Declaration
from .declared_modules import DeclaredModules, module_names
from .name_matching import NameMatcher
from .patterns import Group, Pattern
from .record_quantization import QuantizationPart

# Scheme -> dtype of the weight, bits of one, bytes of one scale.
_FORMS: Mapping[str, tuple[str, int, int]] = {
    "fp8_block": ("fp8_e4m3", 8, 4),
    "fp8_channel": ("fp8_e4m3", 8, 4),
    "fp8_tensor": ("fp8_e4m3", 8, 4),
    "mxfp4": ("fp4_e2m1", 4, 1),
    "nvfp4": ("fp4_e2m1", 4, 1),
    "int4_group": ("int4", 4, 2),
    "gptq": ("int4", 4, 2),
    "awq": ("int4", 4, 2),
    "bnb": ("int4", 4, 4),
    "int8": ("int8", 8, 4),
    "modelslim": ("int8", 8, 4),
}
_USUAL_GROUP = {"mxfp4": 32, "nvfp4": 16, "int4_group": 32, "gptq": 128, "awq": 128, "bnb": 64}
# Linear by class, and in no published release in low precision unless it is named.
_PLAIN = ("lm_head", "router", "gate")

# Where the names of the text model begin; a section within its config says nothing of other parts.
_TEXT_STACKS = (
    "language_model.", "model.language_model.", "llm.", "text_model.", "thinker.", "model.layers.", "layers.",
)  # fmt: skip


class DeclaredStorage:
    """The declared quantisation, asked tensor by tensor.

    Args:
        declarations: of config and files.
        dtype: that the config states; releases store matrices in it that a class keeps in fp32 at run time.
    """

    def __init__(self, declarations: Sequence[Declaration], dtype: str) -> None:
        self._dtype = dtype
        self._modules = DeclaredModules(declarations)
        self._nested = bool(declarations) and all(item.nested for item in declarations)
        self._excluded = [(item.nested, NameMatcher(item.excluded)) for item in declarations]

    def stored(self, tensor: ImpliedTensor) -> tuple[TensorKind, str]:
        """Dtype, logical shape and bytes with its scales; how it would be packed, empty for plain weights."""
        part = self._part(tensor) if tensor.linear else None
        dtype = self._dtype if self._dtype in BITS and len(tensor.shape) > 1 else tensor.dtype
        plain = TensorKind(dtype, tensor.shape, num_bytes(dtype, prod(tensor.shape)))
        if part is None or part.scheme not in _FORMS:
            return plain, ""
        low, bits, scale = _FORMS[part.scheme]
        bits = part.bits or bits
        weights = ceil(prod(tensor.shape) * bits / 8)
        size = weights + scale * _scales(part, tensor.shape)
        said = f"{part.scheme}, {bits} bits declared, scales included"
        return TensorKind(low if bits != 8 or "8" in low else "int8", tensor.shape, size), said

    def _part(self, tensor: ImpliedTensor) -> QuantizationPart | None:
        name = tensor.published
        if len(tensor.shape) < 2 or name.removesuffix(".weight").rpartition(".")[2] in _PLAIN:
            return None
        if self._nested and not name.startswith(_TEXT_STACKS):
            return None
        for nested, matcher in self._excluded:
            if any(matcher.matched(module) for module in module_names(name, nested=nested)):
                return None
        group = Group(Pattern(name, -1, -1), None, tensor.dtype, tensor.shape, name)
        return self._modules.part_of(group)


def _scales(part: QuantizationPart, shape: tuple[int, ...]) -> int:
    """How many scales a weight of that shape has."""
    rows, columns = prod(shape[:-1]), shape[-1]
    if part.scheme == "fp8_tensor":
        return 1
    if not isinstance(part.group, int):
        if len(part.group) != 2 or not all(part.group):
            return 0
        blocks = ceil(shape[-2] / part.group[0]) * ceil(columns / part.group[1])
        return prod(shape[:-2]) * blocks
    group = part.group or _USUAL_GROUP.get(part.scheme, 0)
    return rows * ceil(columns / group) if group > 0 else rows

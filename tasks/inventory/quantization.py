"""The quantisation in one normal form, whatever its dialect, by declaration and by what the tensors show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .declaration import Declaration, joint_form, make_part
from .patterns import Group
from .quantization_files import declarations
from .record_quantization import KvCache, Quantization, QuantizationPart
from .roles import Place
from .stored_weights import StoredWeights

# GGUF block types -> (bits, block length), llama.cpp `ggml-common.h`.
_GGUF = {"q4_0": (4, 32), "q4_1": (4, 32), "q5_0": (5, 32), "q5_1": (5, 32), "q8_0": (8, 32),
         "q2_k": (2, 256), "q3_k": (3, 256), "q4_k": (4, 256), "q5_k": (5, 256), "q6_k": (6, 256),
         "mxfp4": (4, 32), "iq4_nl": (4, 32), "iq4_xs": (4, 256)}  # fmt: skip


@dataclass(frozen=True)
class DeclaredQuantization:
    """What the config and the files beside it declare.

    Attributes:
        normal: in the normal form; None where nothing is declared.
        pointer: where in config.json; empty where config.json does not declare it.
        dialect: the method's own word.
        known: whether this dialect is understood.
        source: file and pointer of the one that holds.
        declarations: all of them.
    """

    normal: Quantization | None
    pointer: str = ""
    dialect: str = ""
    known: bool = True
    source: str = ""
    declarations: Sequence[Declaration] = ()


def declared_quantization(
    config: Mapping[str, Any], held: Mapping[str, bytes] | None = None
) -> DeclaredQuantization:
    """Everything that is declared; the first known section holds, config.json before other files.

    Args:
        config: config.json.
        held: small files of the release by path.
    """
    found = declarations(config, held or {})
    stated = [item for item in found if not item.dialect.startswith("expert_dtype")]
    if not found:
        return DeclaredQuantization(None)
    main = next((item for item in stated if item.part is not None), (stated or found)[0])
    beside = [item for item in found if item not in stated]
    source = main.source
    pointer = source.partition("#")[2] if source.startswith("config.json#") else ""
    return DeclaredQuantization(
        _normal(main, beside, found), pointer, main.dialect, main.part is not None, source, found
    )


def _normal(main: Declaration, beside: Sequence[Declaration], found: Sequence[Declaration]) -> Quantization:
    parts = [*main.parts(), *(part for item in beside for part in item.parts() if item is not main)]
    scheme, bits, group = joint_form(parts) if main.part is not None else ("mixed", 0, 0)
    mixed = len(parts) > 1
    activations = {part.activations for part in parts}
    return Quantization(
        scheme=scheme,
        bits=bits,
        group=group,
        excluded=tuple(item.shown for item in main.excluded),
        dialect=main.dialect,
        activations=activations.pop() if len(activations) == 1 else None,
        symmetric=main.symmetric,
        kv_cache=_kv(found),
        parts=tuple(parts) if mixed else (),
        sources=tuple(item.summary() for item in found),
        raw=main.raw,
    )


def _kv(found: Sequence[Declaration]) -> KvCache | None:
    stated = [item for item in found if item.kv_dtype]
    if not stated:
        return None
    first = stated[0]
    return KvCache(
        dtype=first.kv_dtype, scheme=first.kv_scheme, declared=tuple(item.source for item in stated)
    )


def observed_quantization(placed: Sequence[tuple[Group, Place]], stored: StoredWeights) -> Quantization:
    """What the tensors alone show: the formats of the low-precision weights, the one of most bytes first."""
    sizes: dict[tuple[str, int, str], int] = {}
    parts: dict[tuple[str, int, str], QuantizationPart] = {}
    zero_points = False
    gguf: dict[str, tuple[int, int]] = {}
    modules: dict[tuple[str, int, str], int] = {}
    for group, place in placed:
        if not place.counts:
            continue
        if group.dtype in _GGUF:
            gguf[group.dtype] = _GGUF[group.dtype]
            continue
        found = stored.format(group)
        if found is None:
            continue
        key = (found.scheme, found.bits, str(found.group))
        parts.setdefault(key, make_part(found.scheme, found.bits, found.group))
        sizes[key] = sizes.get(key, 0) + group.bytes
        modules[key] = modules.get(key, 0) + group.count
        zero_points |= found.zero_points
    if gguf:
        return _of_gguf(gguf)
    if not parts:
        return Quantization()
    order = sorted(parts, key=lambda key: (-sizes[key], key))
    ranked = [parts[key].model_copy(update={"modules": modules[key]}) for key in order]
    scheme, bits, group_size = joint_form(ranked)
    shown = tuple(ranked) if len(ranked) > 1 else ()
    return Quantization(scheme=scheme, bits=bits, group=group_size, parts=shown, zero_points=zero_points)


def _of_gguf(blocks: Mapping[str, tuple[int, int]]) -> Quantization:
    (bits, length), *others = blocks.values()
    scheme = "mixed" if others else {4: "int4_group", 8: "int8"}.get(bits, "mixed")
    return Quantization(
        scheme=scheme, bits=0 if others else bits, group=0 if others else length, dialect="gguf"
    )

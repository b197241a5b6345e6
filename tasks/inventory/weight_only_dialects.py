"""Dialects of weights alone: GPTQ, AWQ, AutoRound, MLX, torchao, and those of a single scheme."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .declaration import Declaration, NamePattern, count, flag, make_part, mapping, name_patterns, word
from .packed import MX_GROUP, NVFP4_GROUP
from .quantization_schemes import number_dtype
from .record_quantization import Activations, QuantizationPart

Section = Mapping[str, Any]
Reader = Callable[[Section], Declaration | None]
# Keys under which a section lists what it leaves out, whichever dialect it is.
_LISTS = ("modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules", "skip_modules", "ignore",
          "exclude_modules", "exclude", "exclude_layers", "unquantized_modules")  # fmt: skip


def left_out(section: Section, kind: str, *, marked: bool = False) -> tuple[NamePattern, ...]:
    """What a section leaves out, whichever key it uses."""
    return tuple(
        dict.fromkeys(
            found for key in _LISTS for found in name_patterns(section.get(key), kind, marked=marked)
        )
    )


def made(part: QuantizationPart | None, **more: Any) -> Declaration:
    """A declaration whose place is filled in later."""
    return Declaration("", "", part, **more)


def read_gptq(section: Section) -> Declaration:
    """GPTQ, with the rules of gptqmodel's `dynamic`."""
    bits = count(section.get("bits")) or 4
    symmetric = flag(section.get("sym"))
    rules: list[tuple[NamePattern, QuantizationPart | None]] = []
    part = make_part("gptq", bits, count(section.get("group_size")))
    for pattern, change in mapping(
        section.get("dynamic")
    ).items():  # gptqmodel: `+:` changes, `-:` leaves out
        if pattern.startswith("-:"):
            rules.append((NamePattern(pattern[2:], "regex", pattern), None))
        else:
            own, text = mapping(change), pattern.removeprefix("+:")
            given = make_part(
                "gptq", count(own.get("bits")) or bits, count(own.get("group_size")) or part.group
            )
            rules.append((NamePattern(text, "regex", pattern), given))
    left = tuple(pattern for pattern, own in rules if own is None)
    return made(
        part, excluded=(*left_out(section, "substring"), *left), rules=tuple(rules), symmetric=symmetric,
        zero_points=None if symmetric is None else not symmetric, act_order=section.get("desc_act") is True,
    )  # fmt: skip


def read_awq(section: Section) -> Declaration:
    """AutoAWQ, under the keys of its own file and of transformers."""
    bits = count(section.get("bits")) or count(section.get("w_bit")) or 4
    group = count(section.get("group_size")) or count(section.get("q_group_size"))
    zero = flag(section.get("zero_point"))
    return made(
        make_part("awq", bits, group), excluded=left_out(section, "substring"), zero_points=zero,
        symmetric=None if zero is None else not zero,
    )  # fmt: skip


def read_auto_round(section: Section) -> Declaration:
    """AutoRound, with the modules that it treats differently."""
    bits = count(section.get("bits")) or 4
    symmetric = flag(section.get("sym"))
    layout = word(section.get("packing_format"))
    scheme = "awq" if "awq" in layout else "gptq"
    named: dict[str, QuantizationPart | None] = {}
    rules: list[tuple[NamePattern, QuantizationPart | None]] = []
    for name, own in mapping(section.get("extra_config")).items():
        width = count(mapping(own).get("bits"))
        part = (
            None if width >= 16 else make_part(scheme, width or bits, count(mapping(own).get("group_size")))
        )
        if re.search(r"[\\*^$|+(\[]", name):
            rules.append((NamePattern(name, "regex", name), part))
        else:
            named[name] = part
    left = tuple(NamePattern(name, "exact", name) for name, part in named.items() if part is None)
    left += tuple(pattern for pattern, part in rules if part is None)
    return made(
        make_part(scheme, bits, count(section.get("group_size"))), excluded=left, named=named,
        rules=tuple(rules), symmetric=symmetric, zero_points=None if symmetric is None else not symmetric,
    )  # fmt: skip


def read_mlx(section: Section) -> Declaration | None:
    """MLX: bits and group for all, and a module's name with its own values or `false`."""
    bits = count(section.get("bits"))
    if not bits:
        return None
    named: dict[str, QuantizationPart | None] = {}
    for name, own in section.items():
        if own is False:
            named[name] = None
        elif isinstance(own, Mapping) and count(own.get("bits")):
            named[name] = _mlx_part({**section, **own})
    left = tuple(NamePattern(name, "exact", name) for name, part in named.items() if part is None)
    affine = word(section.get("mode")) in ("", "affine")
    return made(_mlx_part(section), excluded=left, named=named, symmetric=not affine, zero_points=affine)


def _mlx_part(section: Section) -> QuantizationPart:
    bits, group, mode = (
        count(section.get("bits")),
        count(section.get("group_size")),
        word(section.get("mode")),
    )
    if mode in ("mxfp4", "nvfp4"):
        return make_part(mode, 4, group or (MX_GROUP if mode == "mxfp4" else NVFP4_GROUP))
    if mode == "mxfp8":
        return make_part("fp8_block", 8, [1, group or MX_GROUP])
    return make_part({4: "int4_group", 8: "int8"}.get(bits, "mixed"), bits, group)


# torchao's config classes and the words of its older versions -> scheme, bits, activations.
_TORCHAO = (
    (re.compile(r"IntxWeight"), ("int8", 8, 0, "int", 8)),
    (re.compile(r"int4|uint4", re.I), ("int4_group", 4, 128, "int", 4)),
    (re.compile(r"nvfp4", re.I), ("nvfp4", 4, NVFP4_GROUP, "float", 4)),
    (re.compile(r"mxfp4|MXDynamic", re.I), ("mxfp4", 4, MX_GROUP, "float", 4)),
    (re.compile(r"float8|fp8", re.I), ("fp8_tensor", 8, 0, "float", 8)),
    (re.compile(r"int8", re.I), ("int8", 8, 0, "int", 8)),
)  # fmt: skip


def read_torchao(section: Section) -> Declaration | None:
    """torchao: a config class with its data, or a word with arguments."""
    kind = section.get("quant_type")
    default = mapping(mapping(kind).get("default"))
    name, data = (kind, mapping(section.get("quant_type_kwargs"))) if isinstance(kind, str) else (
        word(default.get("_type")), mapping(default.get("_data")))  # fmt: skip
    known = next((form for pattern, form in _TORCHAO if pattern.search(name)), None)
    if known is None:
        return None
    scheme, bits, usual, number, width = known
    if "IntxWeight" in name:  # integers of any width, one a byte
        return _torchao_any_width(name, data, left_out(section, "transformers"))
    group = count(data.get("group_size")) or (usual if scheme != "fp8_tensor" else 0)
    rows = "PerRow" in str(data.get("granularity")) or re.search(r"weight_?only", name, re.I)
    if rows and scheme == "fp8_tensor":
        scheme = "fp8_channel"
    if scheme == "int8" and "group_size" not in data:
        group = 0
    live = re.search(r"dynamic|dq", name, re.I)
    width = 8 if "int8" in name.lower() and bits == 4 else width
    activations = Activations(bits=width, dtype=number_dtype(number, width), dynamic=True) if live else None
    return made(make_part(scheme, bits, group, activations), excluded=left_out(section, "transformers"))


def _torchao_any_width(name: str, data: Section, left: tuple[NamePattern, ...]) -> Declaration | None:
    """`IntxWeightOnlyConfig` and the like: bits as a dtype, the group within the granularity."""
    stated = data.get("weight_dtype")
    found = re.fullmatch(r"(?:torch\.)?u?int([1-8])", word(mapping(stated).get("_data")) or word(stated))
    grain = mapping(mapping(data.get("weight_granularity")).get("_data"))
    group = count(grain.get("group_size")) or count(data.get("group_size"))
    bits = int(found[1]) if found else 8
    live = Activations(bits=8, dtype="int8", dynamic=True) if "Dynamic" in name else None
    scheme = {4: "int4_group", 8: "int8"}.get(bits, "mixed")
    return made(make_part(scheme, bits, group, live), excluded=left)


def one_scheme(scheme: str, usual: int, keys: tuple[str, ...]) -> Reader:
    """A dialect of one scheme: its bits stand under one of these keys, possibly one level down."""

    def read(section: Section) -> Declaration:
        inner = mapping(mapping(section.get("quant_config")).get("weight_quant_params"))
        places = (section, inner, mapping(section.get("quant_config")))
        bits = next(
            (count(place.get(key)) for place in places for key in keys if count(place.get(key))), usual
        )
        group = next(
            (count(place.get("group_size")) for place in places if count(place.get("group_size"))), 0
        )
        named = {"int4": 4, "int8": 8, "int2": 2, "float8": 8}.get(word(section.get("weights")))
        bits = named or bits
        chosen = scheme or {4: "int4_group", 8: "int8"}.get(bits, "mixed")
        chosen = "fp8_tensor" if word(section.get("weights")) == "float8" else chosen
        weights = name_patterns(section.get("linear_weights_not_to_quantize"), "exact")
        left = tuple(replace(item, pattern=item.pattern.removesuffix(".weight")) for item in weights)
        return made(make_part(chosen, bits, group), excluded=(*left_out(section, "transformers"), *left))

    return read

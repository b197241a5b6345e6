"""Each dialect of a quantisation section, read into the one normal form.

Shapes of the sections follow their writers: transformers `utils/quantization_config.py`, compressed-tensors
`quant_config.py`, NVIDIA modelopt `hf_quant_config.json`, AMD Quark's export, AutoGPTQ, AutoAWQ, MLX.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .declaration import (
    Declaration,
    NamePattern,
    count,
    flag,
    make_part,
    mapping,
    name_patterns,
    raw_text,
    sequence,
    word,
)
from .packed import MX_GROUP, NVFP4_GROUP
from .quantization_schemes import (
    compressed_part,
    kv_cache,
    modelopt_part,
    number_dtype,
    quark_part,
)
from .record_quantization import Activations, QuantizationPart

Section = Mapping[str, Any]
_KV_KEYS = ("kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_quant_method", "kv_cache_dtype",
            "kv_cache_quant_config", "kv_quant_type", "kv_cache_type")  # fmt: skip
# Keys under which a section lists what it leaves out, whichever dialect it is.
_LISTS = ("modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules", "skip_modules", "ignore",
          "exclude_modules", "exclude", "exclude_layers", "unquantized_modules")  # fmt: skip


def read_section(section: Section, source: str, *, nested: bool = False, file: str = "") -> Declaration:
    """What a section declares; `part` is None where its dialect is not known.

    Args:
        section: a stranger's JSON.
        source: file and pointer.
        nested: whether it stands in the config of one part of the model.
        file: name of the file where that alone tells the dialect.
    """
    inner = mapping(section.get("quantization"))
    if inner and "quant_method" not in section:  # hf_quant_config.json, and its text pasted into config.json
        section, source = inner, f"{source}/quantization"
    method = word(section.get("quant_method"))
    key = method.lower().replace("-", "_")
    reader = _READERS.get(key) if method else _reader_by_keys(section, file)
    name = method or _NAMES.get(reader, source.rpartition("/")[2])
    declaration = reader(section) if reader else None
    if declaration is None:
        declaration = Declaration("", "", None, excluded=_excluded(section, "exact"), raw=raw_text(section))
    kv = next((kv_cache(section[key]) for key in _KV_KEYS if section.get(key)), ("", ""))
    return replace(declaration, source=source, dialect=name, kv_dtype=kv[0], kv_scheme=kv[1], nested=nested)


def _reader_by_keys(section: Section, file: str) -> Reader | None:
    """The dialect of a section that names none."""
    if "quant_algo" in section or "quantized_layers" in section:
        return _modelopt
    if "config_groups" in section:
        return _compressed
    if "global_quant_config" in section:
        return _quark
    if file or "desc_act" in section or "w_bit" in section:
        return _awq if {"w_bit", "zero_point", "version"} & set(section) else _gptq
    return _mlx if count(section.get("bits")) else None


def _excluded(section: Section, kind: str, *, marked: bool = False) -> tuple[NamePattern, ...]:
    return tuple(
        dict.fromkeys(
            found for key in _LISTS for found in name_patterns(section.get(key), kind, marked=marked)
        )
    )


def _made(part: QuantizationPart | None, **more: Any) -> Declaration:
    return Declaration("", "", part, **more)


def _fp8(section: Section) -> Declaration:
    block = [count(size) for size in sequence(section.get("weight_block_size"))]
    scheme = word(section.get("activation_scheme"))
    dynamic = {"dynamic": True, "static": False}.get(scheme)
    layout = {"e5m2": "fp8_e5m2"}.get(word(section.get("fmt")), "fp8_e4m3")
    activations = Activations(bits=8, dtype=layout, dynamic=dynamic) if scheme else None
    part = (
        make_part("fp8_block", 8, block, activations)
        if len(block) == 2 and all(block)
        else make_part("fp8_tensor", 8, 0, activations)
    )
    return _made(part, excluded=_excluded(section, "transformers"), symmetric=True, zero_points=False)


def _fbgemm(section: Section) -> Declaration:
    part = make_part("fp8_channel", 8, 0, Activations(bits=8, dtype="fp8_e4m3", dynamic=True))
    return _made(part, excluded=_excluded(section, "transformers"), symmetric=True, zero_points=False)


def _fp4(scheme: str, group: int) -> Reader:
    def read(section: Section) -> Declaration:
        part = make_part(scheme, 4, count(section.get("group_size")) or group)
        return _made(
            part, excluded=_excluded(section, "transformers"), lists=True, symmetric=True, zero_points=False
        )

    return read


def _gptq(section: Section) -> Declaration:
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
    return _made(
        part, excluded=(*_excluded(section, "substring"), *left), rules=tuple(rules), symmetric=symmetric,
        zero_points=None if symmetric is None else not symmetric, act_order=section.get("desc_act") is True,
    )  # fmt: skip


def _awq(section: Section) -> Declaration:
    bits = count(section.get("bits")) or count(section.get("w_bit")) or 4
    group = count(section.get("group_size")) or count(section.get("q_group_size"))
    zero = flag(section.get("zero_point"))
    return _made(
        make_part("awq", bits, group), excluded=_excluded(section, "substring"), zero_points=zero,
        symmetric=None if zero is None else not zero,
    )  # fmt: skip


def _auto_round(section: Section) -> Declaration:
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
    return _made(
        make_part(scheme, bits, count(section.get("group_size"))), excluded=left, named=named,
        rules=tuple(rules), symmetric=symmetric, zero_points=None if symmetric is None else not symmetric,
    )  # fmt: skip


def _bitsandbytes(section: Section) -> Declaration:
    four = section.get("load_in_4bit") is True or section.get("_load_in_4bit") is True
    return _made(
        make_part("bnb", 4, 64) if four else make_part("bnb", 8, 0),
        excluded=_excluded(section, "transformers"), symmetric=True, zero_points=False,
    )  # fmt: skip


def _compressed(section: Section) -> Declaration | None:
    """compressed-tensors: groups by targets; one that targets a class holds for what no other names."""
    layout = word(section.get("format"))
    general: QuantizationPart | None = None
    rules: list[tuple[NamePattern, QuantizationPart | None]] = []
    symmetric: set[bool | None] = set()
    for group in mapping(section.get("config_groups")).values():
        weights = mapping(mapping(group).get("weights"))
        if not weights:
            continue  # a group of activations only
        part = compressed_part(group, word(mapping(group).get("format")) or layout)
        if part is None:
            return None
        targets = name_patterns(mapping(group).get("targets"), "exact", marked=True)
        part = part.model_copy(update={"targets": tuple(target.shown for target in targets)})
        symmetric.add(flag(weights.get("symmetric")))
        if any(_is_class(target) for target in targets) or not targets:
            if general is not None:  # which of two holds is for the engine to say: both are shown
                rules.append((NamePattern("", "class", targets[0].shown if targets else "all"), part))
            general = general or part
        rules += [(target, part) for target in targets if not _is_class(target)]
    if general is None and not rules:
        return None
    even = symmetric.pop() if len(symmetric) == 1 else None
    classes = name_patterns(section.get("ignore"), "exact", marked=True)
    excluded = tuple(replace(item, kind="class") if _is_class(item) else item for item in classes)
    return _made(
        general or make_part("none", 0), excluded=excluded, lists=True, rules=tuple(rules), symmetric=even,
        zero_points=None if even is None else not even,
    )  # fmt: skip


def _is_class(target: NamePattern) -> bool:
    """Whether a target is the name of a class (`Linear`, `LlamaAttention`) and not of a module."""
    return target.kind == "exact" and target.pattern[:1].isupper() and "." not in target.pattern


def _modelopt(section: Section) -> Declaration | None:
    algorithm = section.get("quant_algo")
    layers = mapping(section.get("quantized_layers"))
    excluded = _excluded(section, "glob")
    named: dict[str, QuantizationPart | None] = {}
    for name, own in layers.items():
        part = modelopt_part(mapping(own).get("quant_algo"), mapping(own).get("group_size"))
        if part is not None:
            named[name] = part if part.scheme != "none" else None
    if word(algorithm).upper() == "MIXED_PRECISION" or (algorithm is None and layers):
        return _made(make_part("none", 0), excluded=excluded, named=named) if named else None
    if algorithm is None and "config_groups" in section:
        found = _compressed(section)
        return replace(found, excluded=excluded) if found else None
    general = modelopt_part(algorithm, section.get("group_size"))
    if general is None:
        return None
    zero = {"awq": None, "gptq": None}.get(general.scheme, False)
    return _made(general, excluded=excluded, lists=True, named=named, symmetric=True, zero_points=zero)


def _quark(section: Section) -> Declaration | None:
    general = quark_part(section.get("global_quant_config"))
    rules = []
    for pattern, own in mapping(section.get("layer_quant_config")).items():
        part = quark_part(own)
        if part is not None:
            kept = part if part.scheme != "none" else None
            rules.append((NamePattern(pattern, "glob", pattern), kept))
    if general is None and not rules:
        return None
    return _made(
        general or make_part("none", 0), excluded=_excluded(section, "glob", marked=True), lists=True,
        rules=tuple(rules), symmetric=flag(mapping(mapping(section.get("global_quant_config")).get("weight")).get("symmetric")),
    )  # fmt: skip


def _mlx(section: Section) -> Declaration | None:
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
    return _made(_mlx_part(section), excluded=left, named=named, symmetric=not affine, zero_points=affine)


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
    (re.compile(r"int4|uint4", re.I), ("int4_group", 4, 128, "int", 4)),
    (re.compile(r"nvfp4", re.I), ("nvfp4", 4, NVFP4_GROUP, "float", 4)),
    (re.compile(r"mxfp4|MXDynamic", re.I), ("mxfp4", 4, MX_GROUP, "float", 4)),
    (re.compile(r"float8|fp8", re.I), ("fp8_tensor", 8, 0, "float", 8)),
    (re.compile(r"int8", re.I), ("int8", 8, 0, "int", 8)),
)  # fmt: skip


def _torchao(section: Section) -> Declaration | None:
    kind = section.get("quant_type")
    default = mapping(mapping(kind).get("default"))
    name, data = (kind, mapping(section.get("quant_type_kwargs"))) if isinstance(kind, str) else (
        word(default.get("_type")), mapping(default.get("_data")))  # fmt: skip
    known = next((form for pattern, form in _TORCHAO if pattern.search(name)), None)
    if known is None:
        return None
    scheme, bits, usual, number, width = known
    group = count(data.get("group_size")) or (usual if scheme != "fp8_tensor" else 0)
    if "PerRow" in str(data.get("granularity")) and scheme == "fp8_tensor":
        scheme = "fp8_channel"
    if scheme == "int8" and "group_size" not in data:
        group = 0
    live = re.search(r"dynamic|dq", name, re.I)
    width = 8 if "int8" in name.lower() and bits == 4 else width
    activations = Activations(bits=width, dtype=number_dtype(number, width), dynamic=True) if live else None
    return _made(make_part(scheme, bits, group, activations), excluded=_excluded(section, "transformers"))


def _fixed(scheme: str, usual: int, keys: tuple[str, ...]) -> Reader:
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
        return _made(make_part(chosen, bits, group), excluded=(*_excluded(section, "transformers"), *left))

    return read


Reader = Callable[[Section], Declaration | None]
_READERS: dict[str, Reader] = {
    "fp8": _fp8, "finegrained_fp8": _fp8, "fbgemm_fp8": _fbgemm,
    "mxfp4": _fp4("mxfp4", MX_GROUP), "gpt_oss_mxfp4": _fp4("mxfp4", MX_GROUP),
    "nvfp4": _fp4("nvfp4", NVFP4_GROUP),
    "gptq": _gptq, "gptqmodel": _gptq, "marlin": _gptq, "gptq_marlin": _gptq,
    "awq": _awq, "awq_marlin": _awq,
    "auto_round": _auto_round, "intel/auto_round": _auto_round,
    "bitsandbytes": _bitsandbytes,
    "compressed_tensors": _compressed, "sparseml": _compressed,
    "modelopt": _modelopt, "modelopt_fp4": _modelopt, "modelopt_fp8": _modelopt, "modelopt_mixed": _modelopt,
    "quark": _quark, "torchao": _torchao, "mlx": _mlx, "metal": _mlx,
    "hqq": _fixed("", 4, ("nbits", "bits")), "eetq": _fixed("int8", 8, ()),
    "quanto": _fixed("", 8, ()), "aqlm": _fixed("mixed", 2, ("nbits_per_codebook_total",)),
    "vptq": _fixed("mixed", 2, ("bits",)), "spqr": _fixed("mixed", 3, ("bits",)),
    "smoothquant": _fixed("int8", 8, ("bits",)), "w8a8_int8": _fixed("int8", 8, ()),
    "experts_int8": _fixed("int8", 8, ()),
    "modelslim": _fixed("modelslim", 8, ("bits",)), "ascend": _fixed("modelslim", 8, ("bits",)),
}  # fmt: skip
_NAMES: dict[Reader | None, str] = {
    _modelopt: "modelopt", _compressed: "compressed-tensors", _quark: "quark", _gptq: "gptq", _awq: "awq",
    _mlx: "mlx",
}  # fmt: skip

"""Each dialect of a quantisation section, read into the one normal form.

Shapes of the sections follow their writers: transformers `utils/quantization_config.py`, compressed-tensors
`quant_config.py`, NVIDIA modelopt `hf_quant_config.json`, AMD Quark's export, AutoGPTQ, AutoAWQ, MLX.
"""

from __future__ import annotations

from dataclasses import replace

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
    quark_part,
)
from .record_quantization import Activations, QuantizationPart
from .weight_only_dialects import (
    Reader,
    Section,
    left_out,
    made,
    one_scheme,
    read_auto_round,
    read_awq,
    read_gptq,
    read_mlx,
    read_torchao,
)

_KV_KEYS = ("kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_quant_method", "kv_cache_dtype",
            "kv_cache_quant_config", "kv_quant_type", "kv_cache_type")  # fmt: skip


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
        declaration = Declaration("", "", None, excluded=left_out(section, "exact"), raw=raw_text(section))
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
        return read_awq if {"w_bit", "zero_point", "version"} & set(section) else read_gptq
    return read_mlx if count(section.get("bits")) else None


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
    if word(section.get("fmt")) in ("e4m3", "e5m2"):
        part = part.model_copy(update={"dtype": layout})
    return made(part, excluded=left_out(section, "transformers"), symmetric=True, zero_points=False)


def _fbgemm(section: Section) -> Declaration:
    part = make_part("fp8_channel", 8, 0, Activations(bits=8, dtype="fp8_e4m3", dynamic=True))
    return made(part, excluded=left_out(section, "transformers"), symmetric=True, zero_points=False)


def _fp4(scheme: str, group: int) -> Reader:
    def read(section: Section) -> Declaration:
        part = make_part(scheme, 4, count(section.get("group_size")) or group)
        return made(
            part, excluded=left_out(section, "transformers"), lists=True, symmetric=True, zero_points=False
        )

    return read


def _bitsandbytes(section: Section) -> Declaration:
    four = section.get("load_in_4bit") is True or section.get("_load_in_4bit") is True
    part = make_part("bnb", 4, 64) if four else make_part("bnb", 8, 0)
    kind = word(section.get("bnb_4bit_quant_type")).lower()
    return made(
        part.model_copy(update={"dtype": kind}) if four and kind in ("nf4", "fp4") else part,
        excluded=left_out(section, "transformers"), symmetric=True, zero_points=False,
    )  # fmt: skip


def _compressed(section: Section) -> Declaration | None:
    """compressed-tensors: groups by targets; one that targets a class holds for what no other names."""
    layout = word(section.get("format"))
    general: QuantizationPart | None = None
    rules: list[tuple[NamePattern, QuantizationPart | None]] = []
    symmetric: set[bool | None] = set()
    ordered = False
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
        ordered |= weights.get("actorder") in (True, "group", "dynamic")  # "weight" and "static" store none
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
    return made(
        general or make_part("none", 0), excluded=excluded, lists=True, rules=tuple(rules), symmetric=even,
        zero_points=None if even is None else not even, act_order=ordered,
    )  # fmt: skip


def _is_class(target: NamePattern) -> bool:
    """Whether a target is the name of a class (`Linear`, `LlamaAttention`) and not of a module."""
    return target.kind == "exact" and target.pattern[:1].isupper() and "." not in target.pattern


def _modelopt(section: Section) -> Declaration | None:
    algorithm = section.get("quant_algo")
    layers = mapping(section.get("quantized_layers"))
    excluded = left_out(section, "glob")
    named: dict[str, QuantizationPart | None] = {}
    for name, own in layers.items():
        part = modelopt_part(mapping(own).get("quant_algo"), mapping(own).get("group_size"))
        if part is not None:
            named[name] = part if part.scheme != "none" else None
    if word(algorithm).upper() == "MIXED_PRECISION" or (algorithm is None and layers):
        return made(make_part("none", 0), excluded=excluded, named=named) if named else None
    if algorithm is None and "config_groups" in section:
        found = _compressed(section)
        return replace(found, excluded=excluded) if found else None
    general = modelopt_part(algorithm, section.get("group_size"))
    if general is None:
        return None
    zero = {"awq": None, "gptq": None}.get(general.scheme, False)
    return made(general, excluded=excluded, lists=True, named=named, symmetric=True, zero_points=zero)


def _quark(section: Section) -> Declaration | None:
    whole = mapping(section.get("global_quant_config"))
    general = quark_part(section.get("global_quant_config"))
    rules = []
    for pattern, own in mapping(section.get("layer_quant_config")).items():
        part = quark_part(own)
        if part is not None:
            kept = part if part.scheme != "none" else None
            rules.append((NamePattern(pattern, "glob", pattern), kept))
    if general is None and not rules:
        return None
    return made(
        general or make_part("none", 0), excluded=left_out(section, "glob", marked=True), lists=True,
        rules=tuple(rules), symmetric=flag(mapping(whole.get("weight")).get("symmetric")),
    )  # fmt: skip


_READERS: dict[str, Reader] = {
    "fp8": _fp8, "finegrained_fp8": _fp8, "fbgemm_fp8": _fbgemm,
    "mxfp4": _fp4("mxfp4", MX_GROUP), "gpt_oss_mxfp4": _fp4("mxfp4", MX_GROUP),
    "nvfp4": _fp4("nvfp4", NVFP4_GROUP),
    "gptq": read_gptq, "gptqmodel": read_gptq, "marlin": read_gptq, "gptq_marlin": read_gptq,
    "awq": read_awq, "awq_marlin": read_awq,
    "auto_round": read_auto_round, "intel/auto_round": read_auto_round,
    "bitsandbytes": _bitsandbytes,
    "compressed_tensors": _compressed, "sparseml": _compressed,
    "modelopt": _modelopt, "modelopt_fp4": _modelopt, "modelopt_fp8": _modelopt, "modelopt_mixed": _modelopt,
    "quark": _quark, "torchao": read_torchao, "mlx": read_mlx, "metal": read_mlx,
    "hqq": one_scheme("", 4, ("nbits", "bits")), "eetq": one_scheme("int8", 8, ()),
    "quanto": one_scheme("", 8, ()), "aqlm": one_scheme("mixed", 2, ("nbits_per_codebook_total",)),
    "vptq": one_scheme("mixed", 2, ("bits",)), "spqr": one_scheme("mixed", 3, ("bits",)), 
    "bitnet": one_scheme("mixed", 2, ("bits",)),
    "exl2": one_scheme("mixed", 4, ("bits",)),
    "exl3": one_scheme("mixed", 4, ("bits",)),
    "smoothquant": one_scheme("int8", 8, ("bits",)), "w8a8_int8": one_scheme("int8", 8, ()),
    "experts_int8": one_scheme("int8", 8, ()),
    "modelslim": one_scheme("modelslim", 8, ("bits",)), "ascend": one_scheme("modelslim", 8, ("bits",)),
}  # fmt: skip
_NAMES: dict[Reader | None, str] = {
    _modelopt: "modelopt", _compressed: "compressed-tensors", _quark: "quark", read_gptq: "gptq",
    read_awq: "awq", read_mlx: "mlx",
}  # fmt: skip

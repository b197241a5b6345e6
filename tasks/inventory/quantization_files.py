"""Where a release declares its quantisation: sections of config.json at any depth, and files of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from day0.adapters.base.values import Anomaly
from day0.adapters.checkpoints.strict_json import JsonError, parse_strict, shorten

from .declaration import Declaration, NamePattern, make_part, mapping, raw_text, word
from .packed import MX_GROUP
from .quantization_dialects import read_section
from .quantization_schemes import kv_cache, modelslim_part
from .record_quantization import QuantizationPart

SECTIONS = ("quantization_config", "compression_config", "quantization")
_DEPTH = 6  # a section lies at most three deep in published configs
_FILES = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
_DESCRIPTION = re.compile(r"quant_model_description[^/]*\.json")
# Expert tensors of every published naming, the shared experts left out.
_EXPERTS = r".*(^|\.)(experts|switch_mlp)(\.|$)"
_MOST_NAMES = 1_000  # modules that a description leaves plain and that are listed one by one
_MOST_DEEP = 64


def declarations(config: Mapping[str, Any], held: Mapping[str, bytes]) -> Sequence[Declaration]:
    """Everything that is declared, config.json first and outermost first; none twice."""
    found = [*_of_config(config, "", _DEPTH), *_expert_dtypes(config, "", _DEPTH)]
    for path in sorted(held, key=lambda path: (path not in _FILES, path)):
        if path in _FILES or _DESCRIPTION.fullmatch(path):
            found += _of_file(path, held[path])
    return tuple(found)


def unreadable(held: Mapping[str, bytes]) -> Sequence[Anomaly]:
    """The files among them that are no JSON object."""
    found = []
    for path in sorted(held):
        if path in _FILES or _DESCRIPTION.fullmatch(path):
            why = _parsed(held[path])
            if isinstance(why, str):
                message = f"{shorten(path)} cannot be read: {why}"
                found.append(Anomaly(code="text_left_out", subject=path, message=message, evidence=path))
    return tuple(found)


def _of_config(part: Mapping[str, Any], pointer: str, depth: int) -> Iterable[Declaration]:
    inner = []
    for key, value in part.items():
        if not isinstance(value, Mapping) or not value:
            continue
        if key in SECTIONS:
            yield read_section(value, f"config.json#{pointer}/{key}", nested=bool(pointer))
        elif depth:
            inner.append((value, f"{pointer}/{key}"))
    for value, below in inner:
        yield from _of_config(value, below, depth - 1)


def _expert_dtypes(part: Mapping[str, Any], pointer: str, depth: int) -> Iterable[Declaration]:
    """`expert_dtype: fp4` of DeepSeek-V4, which stands outside the section."""
    dtype = word(part.get("expert_dtype")).lower()
    if dtype:
        known = {"fp4": ("mxfp4", 4, MX_GROUP), "mxfp4": ("mxfp4", 4, MX_GROUP), "int4": ("int4_group", 4, 0),
                 "int8": ("int8", 8, 0)}  # fmt: skip
        made = make_part(*known[dtype]) if dtype in known else None
        if made is not None:
            rule = NamePattern(_EXPERTS, "regex", "experts")
            yield Declaration(f"config.json#{pointer}/expert_dtype", f"expert_dtype {dtype}",
                              make_part("none", 0), rules=((rule, made),), nested=bool(pointer))  # fmt: skip
    if depth:
        for key, value in part.items():
            if isinstance(value, Mapping) and key not in SECTIONS:
                yield from _expert_dtypes(value, f"{pointer}/{key}", depth - 1)


def _of_file(path: str, data: bytes) -> Iterable[Declaration]:
    parsed = _parsed(data)
    if isinstance(parsed, str) or not parsed:
        return
    if _DESCRIPTION.fullmatch(path):
        yield _description(path, parsed)
    else:
        yield read_section(parsed, f"{path}#", file=path)


def _parsed(data: bytes) -> dict[str, Any] | str:
    """The object that a file holds, or why it holds none."""
    try:
        parsed = parse_strict(data)
    except JsonError as error:
        return str(error)
    if not isinstance(parsed, dict):
        return f"it holds a {type(parsed).__name__} instead of an object"
    return parsed if _shallow(parsed) else f"it is nested more than {_MOST_DEEP} deep"


def _shallow(value: Any) -> bool:
    level = [value]
    for _ in range(_MOST_DEEP):
        level = [item for outer in level for item in (outer.values() if isinstance(outer, dict) else outer)
                 if isinstance(item, dict | list)]  # fmt: skip
        if not level:
            return True
    return False


def _description(path: str, parsed: Mapping[str, Any]) -> Declaration:
    """Ascend ModelSlim's description: tensor name -> word, and a few general keys."""
    named: dict[str, QuantizationPart | None] = {}
    known: dict[str, QuantizationPart | None] = {}
    plain, unknown = [], []
    for name, value in parsed.items():
        if not name.endswith(".weight") or not isinstance(value, str):
            continue
        if value not in known:
            known[value] = modelslim_part(value)
        part, module = known[value], name.removesuffix(".weight")
        if part is None:
            unknown.append(value)
            continue
        low = part.scheme != "none"
        named[module] = part if low else None
        if not low and "norm" not in module.rpartition(".")[2]:
            plain.append(NamePattern(module, "exact", module))
    general = modelslim_part(parsed.get("model_quant_type"))
    kv = next(
        (kv_cache(parsed[key]) for key in ("kv_quant_type", "kv_cache_type") if parsed.get(key)), ("", "")
    )
    dialect = word(parsed.get("model_quant_type")) or "modelslim"
    if general is None and not any(named.values()):
        return Declaration(f"{path}#", dialect, None, raw=raw_text(unknown[:5] or dict(mapping(parsed))))
    return Declaration(
        f"{path}#", dialect, make_part("none", 0) if named else general, excluded=tuple(plain[:_MOST_NAMES]),
        named=named, kv_dtype=kv[0], kv_scheme=kv[1], symmetric=None,
    )  # fmt: skip

"""Weights beside the canonical set: copies in another format or precision, and what only looks like one."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from day0.adapters.base.source import SourceFile
from day0.adapters.checkpoints.naming import families, natural_key, pickle_files

from ..finding import Finding, Subject, make_finding
from .extra_files import ExtraFile, read_extra
from .readable import plural
from .record_reconciliation import RedundantSet
from .seen import Part, Seen

_EXAMPLES = 5
_FOLDERS = ("original", "metal", "onnx", "openvino", "coreml", "consolidated")
_KINDS = {"onnx": "onnx", "original": "original", "metal": "metal", "consolidated": "consolidated"}
_ONNX = re.compile(r"\.onnx(\.data|_data([._]\d+)?)?$|\.ort$")
_FOREIGN = re.compile(
    r"(\.h5|\.msgpack|\.ot|\.mlmodel|\.tflite|\.npz|\.nemo|\.pb)$|(^|/)weights?\.bin$|\.mlpackage/"
)
_ADAPTER = re.compile(r"(^|/)(adapter_model|adapters?|pytorch_lora_weights|lora)([-_.][^/]*)?$")
# What follows the canonical stem in the name of the same weights in another precision.
_PRECISION = re.compile(
    r"[._-]((fp|bf|f|int|iq|q|w|nf|mxfp|nvfp)[0-9]+[a-z0-9_]*|awq|gptq|non_ema|ema)$", re.IGNORECASE
)
_NO_COPY = ("adapter", "component", "extra")


@dataclass(frozen=True)
class _Set:
    """Files of one kind that belong together."""

    kind: str
    name: str
    files: tuple[str, ...]


def redundant_sets(seen: Seen) -> Part:
    """Every set of weights beside the canonical one, and the bytes that nobody needs."""
    source = seen.release.source
    listed = {file.path: file for file in source.files()} if source else {}
    canonical = tuple(path for path in seen.release.checkpoint.shards if path in listed)
    sets = _sets(listed, canonical, seen.release.checkpoint.format) if canonical else []
    extras = read_extra(seen, [path for item in sets if item.kind == "extra" for path in item.files])
    records, findings = [], []
    for item in sets:
        held = [extras[path] for path in item.files if path in extras]
        records.append(_record(item, listed, canonical, held))
        findings += [_disjoint(extra) for extra in held if extra.disjoint]
    saved = sum(record.bytes for record in records if record.redundant)
    sources = {"/redundant": "computed:the source's listing", "/bytes_saved": "computed:the source's listing"}
    return Part({"redundant": records, "bytes_saved": saved}, findings, sources)


def _sets(listed: Mapping[str, SourceFile], canonical: Sequence[str], form: str) -> list[_Set]:
    taken = set(canonical)
    folders = {posixpath.dirname(path) for path in listed if posixpath.basename(path) == "config.json"}
    top = posixpath.dirname(canonical[0])
    found: dict[tuple[str, str], list[str]] = {}

    def note(kind: str, name: str, files: Iterable[str]) -> None:
        found.setdefault((kind, name), []).extend(files)

    for suffix in (".safetensors", ".gguf"):
        for family in families(listed, suffix):
            rest = [path for path in family.files if path not in taken]
            if not rest:
                continue
            name = posixpath.join(family.folder, family.stem)
            note(_kind(name, family.folder, suffix, folders, top, canonical, form), name, rest)
    sizes = {path: file.size for path, file in listed.items()}
    for path in pickle_files(sizes):
        if path not in taken and not _FOREIGN.search(path):
            name = posixpath.join(posixpath.dirname(path), "*" + posixpath.splitext(path)[1])
            note(_folder_kind(path) or _component(path, folders, top) or "pickle", name, [path])
    for path in sizes:
        if _ONNX.search(path):
            note("onnx", posixpath.dirname(path) or "*.onnx", [path])
        elif _FOREIGN.search(path) and path not in taken:
            note("other", posixpath.dirname(path) or posixpath.splitext(path)[0], [path])
    ordered = sorted(found.items(), key=lambda item: natural_key(item[0][1]))
    return [_Set(kind, name, tuple(sorted(files, key=natural_key))) for (kind, name), files in ordered]


def _kind(
    name: str, folder: str, suffix: str, folders: set[str], top: str, canonical: Sequence[str], form: str
) -> str:
    """What a set of tensor files is, by its place and name."""
    known = _folder_kind(name)
    if known:
        return known
    if _ADAPTER.search(name):
        return "adapter"
    if suffix == ".gguf":
        return "variant" if form == "gguf" else "gguf"
    if form == "gguf":
        return "other"
    component = _component(f"{name}.safetensors", folders, top)
    if component:
        return component
    stem, first = posixpath.basename(name), posixpath.basename(canonical[0])
    base = re.split(r"[-_.]\d", first.removesuffix(".safetensors"))[0]
    if folder == top and stem.startswith(base) and _PRECISION.match(stem[len(base) :]):
        return "variant"
    return "extra" if folder == top else "other"


def _folder_kind(path: str) -> str:
    parts = path.lower().split("/")
    folder = next((part for part in parts[:-1] if part in _FOLDERS), "")
    if not folder and parts[-1].startswith("consolidated"):
        folder = "consolidated"
    return _KINDS.get(folder, "other") if folder else ""


def _component(path: str, folders: set[str], top: str) -> str:
    """A folder with a config of its own holds another model: a part of a pipeline, not a copy."""
    folder = posixpath.dirname(path)
    return "component" if folder != top and folder in folders else ""


def _record(
    item: _Set, listed: Mapping[str, SourceFile], canonical: Sequence[str], extras: Sequence[ExtraFile]
) -> RedundantSet:
    files = [listed[path] for path in item.files]
    part = any(extra.disjoint for extra in extras) or (item.kind == "extra" and not extras)
    return RedundantSet(
        kind="other" if item.kind == "extra" else item.kind,
        name=item.name,
        files=len(files),
        bytes=sum(file.size for file in files),
        redundant=item.kind not in _NO_COPY or (item.kind == "extra" and not part),
        same_as_canonical=_same(files, [listed[path] for path in canonical]),
        examples=item.files[:_EXAMPLES],
    )


def _same(files: Sequence[SourceFile], canonical: Sequence[SourceFile]) -> str:
    """Whether the files are the canonical ones again; the same tensors in other files show as different."""
    hashes = [file.sha256 for file in files]
    others = [file.sha256 for file in canonical]
    if None in hashes or None in others:
        return "unknown"
    return "true" if sorted(map(str, hashes)) == sorted(map(str, others)) else "false"


def _disjoint(extra: ExtraFile) -> Finding:
    message = (
        f"{extra.path} holds {plural(extra.tensors, 'tensor')} with {extra.bytes:,} bytes"
        f"{', e.g.' if extra.tensors > 1 else ':'} {extra.example}, which neither index nor numbering names "
        f"and no other file holds; {'they are' if extra.tensors > 1 else 'it is'} not counted"
    )
    return make_finding(
        "INV044", Subject(kind="file", name=extra.path), message, evidence=[f"header of {extra.path}"]
    )

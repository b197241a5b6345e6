"""The quantisation of a release: what is declared, what the tensors show, and where the two part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..finding import Finding, Subject, make_finding
from .checkpoint_findings import anomaly_findings
from .declaration import Declaration, form_of
from .exclusions import ExclusionCheck, check_exclusions
from .member_sets import Tally, members
from .module_contradictions import module_contradictions
from .quantization_families import families, family
from .quantization_files import unreadable
from .quantization_scales import ScaleCheck, check_scales
from .readable import plural, readable
from .record_quantization import KvCache, Quantization, QuantizationChecks, QuantizationPart
from .roles import SIDE_OF_CACHE
from .seen import Part, Seen

_CONFIG = Subject(kind="config", name="config.json")
_PLAIN_CACHE = ("dynamic",)


def quantization_part(seen: Seen) -> Part:
    """Everything about the quantisation, checked."""
    main = _main(seen)
    scales = check_scales(seen.counted, seen.stored, main, seen.awaited)
    left_out = (
        check_exclusions(seen.counted, seen.stored, seen.declared.declarations, main)
        if main is not None and seen.counted
        else ExclusionCheck()
    )
    quantization = _quantization(seen, scales, left_out)
    findings: list[Finding] = [
        *anomaly_findings(unreadable(seen.texts.held)),
        *_unknown(seen),
        *(_declared_and_shown(seen) if seen.counted else ()),
        *module_contradictions(seen, left_out.left_out, main.source if main else ""),
        *_between_declarations(seen),
        *scales.findings,
        *(item for item in left_out.findings if not (seen.awaited.any and item.code == "INV052")),
        *_doubts(seen),
        *(_cache(seen, quantization.kv_cache) if seen.counted else ()),
    ]
    source = seen.declared.source or "computed:headers"
    sources = {
        "/quantization": source,
        "/quantization/checks": "computed:headers",
        "/quantization/exclusions": f"computed:{source} against headers",
        "/quantization/parts": f"computed:{source} and headers",
        "/quantization/zero_points": "computed:headers",
        "/quantization/kv_cache/scales": "computed:headers",
    }
    return Part({"quantization": quantization}, findings, sources)


def _main(seen: Seen) -> Declaration | None:
    """The declaration that holds; None where none is understood."""
    return next((item for item in seen.declared.declarations if item.source == seen.declared.source
                 and item.part is not None), None)  # fmt: skip


def _quantization(seen: Seen, scales: ScaleCheck, left_out: ExclusionCheck) -> Quantization:
    declared, observed = seen.declared.normal, seen.observed
    checks = QuantizationChecks(
        weights=scales.weights,
        with_scale=scales.with_scale,
        without_scale=scales.without_scale,
        wrong_shape=scales.wrong_shape,
        orphans=scales.orphans,
        excluded_plain=left_out.excluded_plain,
        excluded_quantized=left_out.excluded_quantized,
        targeted_plain=left_out.targeted_plain,
        awaited=scales.awaited,
    )
    base = declared or observed
    change: dict[str, Any] = {
        "checks": checks,
        "exclusions": tuple(left_out.exclusions),
        "zero_points": observed.zero_points,
    }
    if declared is not None and observed.scheme != "none":
        more = families(observed) - families(declared)
        disjoint = bool(more) and not families(observed) & families(declared)
        if not seen.declared.known or disjoint:  # nothing that is declared helps: the tensors have the word
            change |= {"scheme": observed.scheme, "bits": observed.bits, "group": observed.group}
            change["parts"] = observed.parts
        elif more:
            change |= {"scheme": "mixed", "bits": 0, "group": 0}
            change["parts"] = observed.parts or (_as_part(observed),)
        elif declared.parts:
            change["parts"] = tuple(_with_modules(part, observed) for part in declared.parts)
    if base.kv_cache is not None:
        stored = sum(item.group.count for item in seen.counted if _is_cache_scale(item.group.pattern.text))
        change["kv_cache"] = base.kv_cache.model_copy(update={"scales": stored})
    return base.model_copy(update=change)


def _as_part(found: Quantization) -> QuantizationPart:
    return QuantizationPart(scheme=found.scheme, bits=found.bits, group=found.group)


def _with_modules(part: QuantizationPart, observed: Quantization) -> QuantizationPart:
    """A declared part with the number of weights that are stored in exactly that form."""
    number = sum(item.modules for item in observed.parts if form_of(item)[:2] == form_of(part)[:2])
    return part.model_copy(update={"modules": number})


def _unknown(seen: Seen) -> Iterable[Finding]:
    for item in seen.declared.declarations:
        if item.part is None:
            message = f"{_file(item)} declares the quantisation {item.dialect!r}, which is not known here"
            yield make_finding("INV031", Subject(kind="config", name=_file_name(item)), message,
                               evidence=[item.source])  # fmt: skip


def _file(item: Declaration) -> str:
    return "the config" if item.source.startswith("config.json#") else readable(_file_name(item))


def _file_name(item: Declaration) -> str:
    return item.source.partition("#")[0]


def _declared_and_shown(seen: Seen) -> Iterable[Finding]:
    declared, observed = seen.declared, seen.observed
    source = [declared.source] if declared.source else []
    if not declared.known:
        return
    if declared.normal is not None and observed.scheme == "none":
        if declared.normal.scheme != "none" and not seen.awaited.any:
            message = (
                f"the config declares {declared.normal.scheme}, yet every weight is stored in plain precision"
            )
            yield make_finding("INV022", _CONFIG, message, evidence=source)
    elif declared.normal is None and observed.scheme != "none":
        if seen.facts.config and observed.dialect != "gguf":
            message = f"the config declares no quantisation, yet the tensors show {observed.scheme}"
            yield make_finding("INV022", _CONFIG, message, evidence=["headers"])
    elif declared.normal is not None:
        yield from _parts_differ(declared.normal, observed, source, seen.awaited.any)


def _parts_differ(
    declared: Quantization, observed: Quantization, source: list[str], partial: bool
) -> Iterable[Finding]:
    """What the two do not share; of a part of the tensors alone, only what they show beyond the config."""
    stated, shown = families(declared), families(observed)
    if not declared.parts and not observed.parts:
        if shown - stated if partial else stated != shown:
            message = f"the config declares {declared.scheme}, the tensors show {observed.scheme}"
            yield make_finding("INV022", _CONFIG, message, evidence=[*source, "headers"])
        return
    more, less = shown - stated, stated - shown
    if more:
        kinds = [
            f"{part.scheme} in {part.modules} tensors"
            for part in observed.parts
            if family(part.scheme) in more
        ]
        kinds = kinds or [f"{observed.scheme}"]
        message = f"the config declares {_listed(stated)}, the tensors also show {', '.join(kinds)}"
        yield make_finding("INV022", _CONFIG, message, evidence=[*source, "headers"])
    if less and not partial:
        said = f"yet no weight is stored so; the tensors show {_listed(shown)}"
        message = f"the config declares {_listed(less)}, {said}"
        subject = Subject(kind="config", name="config.json parts")
        yield make_finding("INV022", subject, message, evidence=[*source, "headers"])


def _listed(families: Iterable[str]) -> str:
    return ", ".join(sorted(families)) or "none"


def _between_declarations(seen: Seen) -> Iterable[Finding]:
    """What one file says and another contradicts or leaves unsaid."""
    stated = [item for item in seen.declared.declarations
              if item.part is not None and not item.dialect.startswith("expert_dtype")]  # fmt: skip
    if len(stated) < 2:
        return
    first = stated[0]
    for other in stated[1:]:
        for what, said in _differences(first, other):
            subject = Subject(kind="config", name=f"{other.source} {what}")
            message = f"{first.source} and {other.source} differ in {what}: {said}"
            yield make_finding("INV053", subject, message, evidence=[first.source, other.source])


def _differences(first: Declaration, other: Declaration) -> Iterable[tuple[str, str]]:
    one, two = first.summary(), other.summary()
    if {family(part.scheme) for part in first.parts()} != {family(part.scheme) for part in other.parts()}:
        yield "scheme", f"{one.scheme} against {two.scheme}"
    elif one.bits and two.bits and one.bits != two.bits:
        yield "bits", f"{one.bits} against {two.bits}"
    elif one.group and two.group and one.group != two.group:
        yield "group size", f"{one.group} against {two.group}"
    if first.kv_dtype != other.kv_dtype:
        yield "the KV cache", f"{first.kv_dtype or 'nothing'} against {other.kv_dtype or 'nothing'}"
    left, right = ({item.shown for item in part.excluded} for part in (first, other))
    if left != right and (left or first.lists) and (right or other.lists):
        only = [f"only the first leaves out {_few(left - right)}"] if left - right else []
        only += [f"only the second leaves out {_few(right - left)}"] if right - left else []
        yield "what they leave out", "; ".join(only)


def _few(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - 3:,} more" if len(ordered) > 3 else ""
    return ", ".join(readable(name) for name in ordered[:3]) + more


def _doubts(seen: Seen) -> Iterable[Finding]:
    """Bits that shapes and declaration disagree about, that are assumed, and counts that are not whole."""
    tallies: dict[tuple[str, str, str], Tally] = {}
    for item in seen.counted:
        found = seen.stored.format(item.group) if item.place.counts else None
        if found is None or not item.group.elements:
            continue
        text, group = item.group.pattern.text, item.group
        if found.doubt:
            code = "INV022" if "declared" in found.doubt else "INV058"
            tallies.setdefault((code, text, found.doubt), Tally()).add(group, members(group))
        if found.packing is not None and not found.packing.is_whole(group.elements):
            said = f"{list(group.shape)} holds no whole number of {found.bits}-bit weights"
            tallies.setdefault(("INV058", text, said), Tally()).add(group, members(group))
    for (code, text, said), tally in tallies.items():
        lines = [line for line in tally.lines() if line]
        message = f"{readable(text)}: {said}, in {plural(tally.number, 'tensor')}"
        yield make_finding(code, Subject(kind="tensor", name=text), message, evidence=[tally.example, *lines])


def _is_cache_scale(pattern: str) -> bool:
    segments = pattern.split(".")
    name = segments[-1]
    if name == "output_scale":  # modelopt before 0.20 and compressed-tensors keep the cache's scale there
        return len(segments) > 1 and segments[-2] in ("k_proj", "v_proj", "qkv_proj")
    return name in SIDE_OF_CACHE and not name.startswith(("q_", "prob"))


def _stored(patterns: int) -> str:
    return f"{plural(patterns, 'pattern')} of k and v scales {'is' if patterns == 1 else 'are'}"


def _cache(seen: Seen, cache: KvCache | None) -> Iterable[Finding]:
    stored: Sequence[str] = [
        item.group.example for item in seen.counted if _is_cache_scale(item.group.pattern.text)
    ]
    plain = cache is not None and cache.scheme.endswith(_PLAIN_CACHE)
    if cache is not None and not stored and not plain and not seen.awaited.any:
        message = (
            f"a KV cache in {cache.dtype} is declared, yet no k or v scale is stored: stacks take 1.0 or "
            "measure their own"
        )
        yield make_finding(
            "INV056", Subject(kind="config", name="KV cache"), message, evidence=cache.declared
        )
    if cache is None and stored:
        message = f"{_stored(len(stored))} stored, yet nothing declares a quantised KV cache"
        yield make_finding("INV056", Subject(kind="config", name="KV cache"), message, evidence=stored[:5],
                           severity="info")  # fmt: skip

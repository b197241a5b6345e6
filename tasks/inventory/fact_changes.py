"""Everything but tensors that differs between two inventories, by topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from day0.adapters.base.values import Value

from .config_facts import text_part
from .index_sets import format_indices
from .record import InventoryFacts
from .record_structure import Tokenizer
from .structural_change import Changed
from .tensor_changes import left_out_parts, one_is_announced

KINDS = "kind of layers "
"""How the name of a change of layers begins; their exact set follows."""
MOST_CONFIG = 100  # config keys that a person reads; the rest is counted
_DEEPEST = 12
_LATE = (
    "transformers_version",
    "_name_or_path",
    "_commit_hash",
)  # say where a config was saved, not what it is
_PLACES = frozenset({"source", "sources", "declared", "files", "checks", "exclusions", "raw"})
_EXPERTS = ("experts", "shared_experts", "top_k", "moe_intermediate_size")


def fact_changes(before: InventoryFacts, after: InventoryFacts) -> Iterator[Changed]:
    """All of them but config keys."""
    for change in _facts(before, after):
        yield change.model_copy(update={"name": change.name.strip("/")})


def _facts(before: InventoryFacts, after: InventoryFacts) -> Iterator[Changed]:
    yield from _architecture(before, after)
    yield from _layers(before, after)
    yield from _quantization(before, after)
    if one_is_announced(before, after):  # all else is in files that a config alone does not have
        if "none" not in (before.basis, after.basis):
            yield from _leaves("totals", "", _announced(before, after), _announced(after, before))
        return
    for topic, of in _TOPICS:
        yield from _leaves(topic, "", of(before), of(after))
    yield from _tokenizer(before, after)
    yield from _code(before, after)


def _announced(facts: InventoryFacts, other: InventoryFacts) -> Mapping[str, Any]:
    """Totals by what a config implies: without side tensors' numbers and what no class builds."""
    gone = left_out_parts(facts) or left_out_parts(other)
    without = ("shards", "tensors", "aux_elements", *(("mtp_params", "logical_params") if gone else ()))
    totals = _plain(facts.totals, *without)
    if facts.basis == "headers":
        totals["data_bytes"] = sum(
            row.bytes
            for row in facts.patterns
            if row.part not in gone and row.role != "buffer" and not row.pattern.endswith("_shape")
        )
    return totals


def config_changes(before: InventoryFacts, after: InventoryFacts) -> tuple[Sequence[Changed], int]:
    """Config keys that differ, by JSON pointer, and how many there are beyond those listed."""
    found = list(_config(before, after))
    found.sort(key=lambda change: change.name.rpartition("/")[2] in _LATE)
    return found[:MOST_CONFIG], max(0, len(found) - MOST_CONFIG)


def _config(before: InventoryFacts, after: InventoryFacts) -> Iterator[Changed]:
    """Key by key; where only one keeps the text model in a part of its own, that part is looked into."""
    old, new = text_part(before.config), text_part(after.config)
    if old[1] == new[1]:
        yield from _leaves("config", "", before.config, after.config)
        return
    flat = _flattened(before.config, old), _flattened(after.config, new)
    for change in _leaves("config", "", *flat):
        key = change.name.split("/")[1]
        gone = change.after is None
        (text, pointer), config = (old, before.config) if gone else (new, after.config)
        inside = key in text and key not in config
        yield change.model_copy(update={"name": f"{pointer if inside else ''}{change.name}"})


def _flattened(config: Mapping[str, Any], part: tuple[Mapping[str, Any], str]) -> Mapping[str, Any]:
    outer = part[1].split("/")[1] if part[1] else ""
    return {**part[0], **{key: value for key, value in config.items() if key != outer}}


def _architecture(before: InventoryFacts, after: InventoryFacts) -> Iterator[Changed]:
    old, new = _plain(before.architecture, "custom_code"), _plain(after.architecture, "custom_code")
    for change in _leaves("architecture", "", old, new):
        name = change.name.strip("/")
        yield change.model_copy(
            update={"topic": "experts" if name in _EXPERTS else "architecture", "name": name}
        )
    if before.format != after.format and not one_is_announced(before, after):
        yield Changed(topic="architecture", name="format", before=before.format, after=after.format)


def _layers(before: InventoryFacts, after: InventoryFacts) -> Iterator[Changed]:
    """Layers that both have and that are of another kind now, and the state that layers keep."""
    old, new = _kinds(before), _kinds(after)
    moved: dict[tuple[str, str], list[int]] = {}
    for index in (index for index in new if index in old and old[index] != new[index]):
        moved.setdefault((old[index], new[index]), []).append(index)
    for (was, now), indices in moved.items():
        yield Changed(topic="layers", name=f"{KINDS}{format_indices(indices)}", before=was, after=now)
    for name in ("kv_bytes_per_token", "kv_bytes_per_token_growing", "state_bytes_per_sequence"):
        if getattr(before, name) != getattr(after, name):
            yield Changed(topic="layers", name=name, before=getattr(before, name), after=getattr(after, name))


def _kinds(facts: InventoryFacts) -> Mapping[int, str]:
    return {layer.index: " ".join(filter(None, (layer.kind, layer.feed_forward))) for layer in facts.layers}


def _quantization(before: InventoryFacts, after: InventoryFacts) -> Iterator[Changed]:
    old, new = _plain(before.quantization), _plain(after.quantization)
    listed = [set(facts.quantization.excluded) for facts in (before, after)]
    for form in (old, new):
        for name in [*_PLACES, "excluded"]:
            form.pop(name, None)
        form["kv_cache"] = (form.get("kv_cache") or {}).get("dtype", "")
        if one_is_announced(before, after):  # only tensors show these
            for name in ("parts", "zero_points"):
                form.pop(name, None)
    yield from _leaves("quantization", "", old, new)
    yield from _sets("quantization", "excluded", *listed)


def _tokenizer(before: InventoryFacts, after: InventoryFacts) -> Iterator[Changed]:
    old, new = before.tokenizer, after.tokenizer
    if old is None or new is None:
        if old is not new:
            kinds = [(tokenizer.kind or "of unknown kind") if tokenizer else None for tokenizer in (old, new)]
            yield Changed(topic="tokenizer", name="tokenizer", before=kinds[0], after=kinds[1])
        return
    for name in ("kind", "tokenizer_class", "base_tokens", "added_tokens", "tokens", "ids", "embedding_rows"):
        if getattr(old, name) != getattr(new, name):
            yield Changed(topic="tokenizer", name=name, before=getattr(old, name), after=getattr(new, name))
    for name, of in _NAMED:
        yield from _leaves("tokenizer", name, of(old), of(new))


def _tokens(tokenizer: Tokenizer) -> Mapping[str, Any]:
    return {token.text: token.id for token in tokenizer.special_tokens}


def _ids(tokenizer: Tokenizer) -> Mapping[str, Any]:
    return {stated.source: list(stated.ids) for stated in tokenizer.stated_ids}


def _templates(tokenizer: Tokenizer) -> Mapping[str, Any]:
    return {template.name: template.sha256 for template in tokenizer.chat_templates}


_NAMED = (("special token ", _tokens), ("stated ids ", _ids), ("chat template ", _templates))


def _code(before: InventoryFacts, after: InventoryFacts) -> Iterator[Changed]:
    pairs = [
        {
            "class asked for": {reference.target for reference in facts.code.references},
            "kernel": set(facts.code.kernels),
            "package": set(facts.code.packages),
            "class": {f"{file.path}:{one.name}" for file in facts.code.files for one in file.classes},
            "call": {f"{call.kind} {call.what} in {call.file}" for call in facts.code.calls},
        }
        for facts in (before, after)
    ]
    for name in pairs[0]:
        yield from _sets("code", name, pairs[0][name], pairs[1][name])


def _structure(facts: InventoryFacts) -> Mapping[str, Any]:
    """What the architecture's own fields do not tell already."""
    structure = facts.structure
    return {
        "norms": _plain(structure.norms, "eps", "dtypes"),
        "activation": _plain(structure.activation),
        "position": _plain(structure.position),
        "attention": _plain(structure.attention, "heads", "kv_heads", "head_dim"),
        "router": {} if structure.router is None else _plain(structure.router, "top_k"),
    }


def _needs(facts: InventoryFacts) -> Mapping[str, str]:
    return {f"{need.role} stays": need.need for need in facts.precision}


def _support(facts: InventoryFacts) -> Mapping[str, Any]:
    return {"known to transformers since": facts.transformers.known_since}


def _totals(facts: InventoryFacts) -> Mapping[str, Any]:
    active = {f"active {name}": number for name, number in facts.active_params}
    return {**_plain(facts.totals, "shards"), **active}


def _files(facts: InventoryFacts) -> Mapping[str, Any]:
    return {
        "shards": facts.totals.shards,
        "header bytes": facts.header_bytes_total,
        "state": facts.readiness.state,
    }


def _plain(value: Value, *without: str) -> dict[str, Any]:
    return value.model_dump(mode="json", exclude=set(without))


def _tied(facts: InventoryFacts) -> Mapping[str, Any]:
    tied = facts.tied_embeddings
    return {"tied by config": tied.config, "tied by tensors": tied.tensors}


_TOPICS: Sequence[tuple[str, Callable[[InventoryFacts], Mapping[str, Any]]]] = (
    ("architecture", _structure), ("precision", _needs), ("embeddings", _tied), ("support", _support),
    ("totals", _totals), ("files", _files),
)  # fmt: skip


def _sets(topic: str, name: str, before: set[str], after: set[str]) -> Iterator[Changed]:
    yield from (Changed(topic=topic, name=name, before=item) for item in sorted(before - after))
    yield from (Changed(topic=topic, name=name, after=item) for item in sorted(after - before))


def _leaves(topic: str, name: str, before: Any, after: Any, depth: int = _DEEPEST) -> Iterator[Changed]:
    """Every leaf that differs, mappings walked key by key; lists are leaves."""
    if depth and isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            escaped = str(key).replace("~", "~0").replace("/", "~1")
            place = f"{name}{key}" if name.endswith(" ") else f"{name}/{escaped}"
            yield from _leaves(topic, place, before.get(key), after.get(key), depth - 1)
    elif before != after and not (topic != "config" and _says_nothing(before) and _says_nothing(after)):
        yield Changed(topic=topic, name=name, before=before, after=after)


def _says_nothing(value: Any) -> bool:
    """Whether a fact is left open, in whichever way; a config may mean something by a null."""
    return value is None or (isinstance(value, str | list | tuple | Mapping) and not value)

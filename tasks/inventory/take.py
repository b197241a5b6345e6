"""Takes the inventory of a release: headers and config in, one record out; nothing of the release is run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from day0.adapters.base.release import Release

from ..finding import Finding, Subject, make_finding
from .checkpoint_findings import anomaly_findings
from .config_facts import ConfigFacts, read_config
from .config_statements import statement_findings
from .contradictions import Seen, contradictions, experts_of, main_stack, stored_tied
from .counts import (
    Counted,
    LayerCount,
    active_params,
    count_groups,
    pattern_table,
    role_sizes,
    text_layers,
    totals,
)
from .layer_kinds import feed_forwards, layer_kinds
from .packed import PackedWeights
from .patterns import Listing, list_tensors
from .quantization import DeclaredQuantization, declared_quantization, observed_quantization
from .record import (
    Identity,
    InventoryFacts,
    InventoryObservations,
    InventoryRecord,
    Layer,
    Quantization,
    Shard,
    TiedEmbeddings,
)
from .roles import look_around, place_of
from .state import LayerState, layer_states

_MODEL = Subject(kind="model", name="model")


def take_inventory(release: Release) -> InventoryRecord:
    """The complete inventory of a release, from headers and config alone.

    Works for any checkpoint format, for a bare config (no tensors) and for unknown architectures.
    """
    began = time.perf_counter()
    facts = read_config(release.config)
    listing = list_tensors(release.checkpoint.tensors)
    declared = declared_quantization(release.config)
    counted, observed = _count(listing, facts, declared)
    layers, states, kinds_source = _layers(counted, facts)
    seen = Seen(facts, counted, text_layers(counted), declared, observed)
    gguf = release.checkpoint.format == "gguf"
    findings = [
        *anomaly_findings(release.checkpoint.anomalies),
        *statement_findings(facts, counted, seen.layers, gguf=gguf),
        *_findings(seen, layers, states),
    ]
    record_facts, sources = _facts(release, seen, listing, layers, states, kinds_source)
    return InventoryRecord.conclude(
        findings=findings,
        facts=record_facts,
        sources=sources,
        observations=InventoryObservations(seconds=time.perf_counter() - began),
    )


def _count(
    listing: Listing, facts: ConfigFacts, declared: DeclaredQuantization
) -> tuple[Sequence[Counted], Quantization]:
    around = look_around(listing.groups, facts.architecture.layers, facts.mtp_layers > 0)
    placed = [(group, place_of(group, around)) for group in listing.groups]
    bits = declared.normal.bits if declared.normal else 0
    return count_groups(placed, PackedWeights(listing.groups, bits)), observed_quantization(placed)


def _layers(
    counted: Sequence[Counted], facts: ConfigFacts
) -> tuple[Sequence[Layer], Sequence[LayerState], str]:
    """The text model's layers by the tensors, or by the config alone where there are none."""
    found = text_layers(counted)
    stack = main_stack(found)
    number = facts.architecture.layers or len(stack)
    kinds, source = layer_kinds(facts, number)
    if not source and found:
        kinds = [_kind_by_tensors(stack, index) or kind for index, kind in enumerate(kinds)]
    states = layer_states(facts, kinds)
    by_config = feed_forwards(facts, number)
    if not found:
        bare = [LayerCount(f"model.layers.{index}", index, ()) for index in range(number)]
        return [_layer(bare[i], kinds[i], by_config[i], states[i]) for i in range(number)], states, source
    layers, kept = [], []
    for layer in found:
        known = layer.index < number
        state = states[layer.index] if known else LayerState()
        feed = "moe" if layer.has_experts else "dense" if _has_feed_forward(layer) else ""
        kept.append(state)
        layers.append(_layer(layer, kinds[layer.index] if known else "", feed, state))
    return layers, kept, source


def _kind_by_tensors(stack: Sequence[LayerCount], index: int) -> str:
    """What a layer's own tensors show where the config says nothing; empty for plain attention."""
    names = {
        segment
        for layer in stack
        if layer.index == index
        for item in layer.groups
        for segment in item.group.pattern.segments
    }
    if names & {"A_log", "ssm_a"}:
        return "linear" if "linear_attn" in names else "state_space"
    return ""


def _has_feed_forward(layer: LayerCount) -> bool:
    return any(item.place.role in ("dense_mlp", "shared_expert") for item in layer.groups)


def _layer(count: LayerCount, kind: str, feed_forward: str, state: LayerState) -> Layer:
    return Layer(
        name=_module_path(count.name),
        index=count.index,
        kind=kind,
        feed_forward=feed_forward,
        params=count.params,
        bytes=count.bytes,
        kv_bytes_per_token=state.per_token,
        window=state.window,
        state_bytes_per_sequence=state.per_sequence,
        roles=count.roles,
    )


def _module_path(name: str) -> str:
    """GGUF's `blk.3` under the name that every other room uses for that layer."""
    stack, _, index = name.rpartition(".")
    return f"model.layers.{index}" if stack == "blk" else name


def _findings(seen: Seen, layers: Sequence[Layer], states: Sequence[LayerState]) -> Sequence[Finding]:
    findings: list[Finding] = []
    if seen.counted:
        findings += contradictions(seen)
    code = seen.facts.architecture.custom_code
    if code:
        message = (
            f"the config asks for {len(code)} classes of the repository's own code: {', '.join(code[:5])}"
        )
        findings.append(make_finding("INV016", _MODEL, message, evidence=["config.json#/auto_map"]))
    findings += [
        make_finding(
            "INV027", Subject(kind="config", name=said), f"the config states {said}: no model has that"
        )
        for said in seen.facts.absurd
    ]
    unknown = _unknown_patterns(seen.counted)
    if unknown:
        number = sum(item.group.count for item in seen.counted if item.place.role == "unknown")
        message = f"{number} tensors in {len(unknown)} patterns have no known role, e.g. {unknown[0]}"
        findings.append(make_finding("INV015", _MODEL, message, evidence=unknown[:20]))
    unstated = [layer.name for layer, state in zip(layers, states, strict=True) if not state.formula]
    if unstated:
        message = (
            f"state of {len(unstated)} of {len(layers)} layers is not computable, the first is {unstated[0]}"
        )
        findings.append(make_finding("INV024", _MODEL, message, evidence=unstated[:10]))
    if _experts(seen) and not seen.facts.architecture.top_k:
        message = f"the config does not say how many of {_experts(seen)} experts a token uses"
        findings.append(make_finding("INV026", _MODEL, message))
    return findings


def _unknown_patterns(counted: Sequence[Counted]) -> list[str]:
    return list(dict.fromkeys(item.group.pattern.text for item in counted if item.place.role == "unknown"))


def _experts(seen: Seen) -> int:
    """Routed experts a layer: as the tensors show, else as the config says."""
    held = [len(indices) for layer in seen.layers for indices in experts_of(layer).values()]
    if held:
        return max(held)
    stacked = [
        item.group.shape[0]
        for item in seen.counted
        if item.place.role == "expert" and item.group.pattern.expert_slot < 0 and item.group.shape
    ]
    return seen.facts.architecture.experts or (max(stacked) if stacked else 0)


def _facts(
    release: Release,
    seen: Seen,
    listing: Listing,
    layers: Sequence[Layer],
    states: Sequence[LayerState],
    kinds_source: str,
) -> tuple[InventoryFacts, Mapping[str, str]]:
    counted, checkpoint = seen.counted, release.checkpoint
    architecture = seen.facts.architecture
    tied = TiedEmbeddings(config=seen.facts.tied, tensors=stored_tied(counted))
    one_matrix = tied.tensors is True or (tied.tensors is False and tied.config is True)
    windows: dict[int, int] = {}
    for layer in layers:
        if layer.window:
            windows[layer.window] = windows.get(layer.window, 0) + layer.kv_bytes_per_token
    facts = InventoryFacts(
        identity=_identity(release),
        format=checkpoint.format,
        totals=totals(counted, len(checkpoint.shards)),
        active_params=active_params(counted, _experts(seen), architecture.top_k, one_matrix),
        kv_bytes_per_token=sum(layer.kv_bytes_per_token for layer in layers),
        kv_bytes_per_token_growing=sum(layer.kv_bytes_per_token for layer in layers if not layer.window),
        kv_window_bytes=dict(sorted(windows.items())),
        state_bytes_per_sequence=sum(layer.state_bytes_per_sequence for layer in layers),
        layers=layers,
        roles=role_sizes(counted),
        quantization=seen.declared.normal or seen.observed,
        tied_embeddings=tied,
        architecture=architecture,
        config=dict(release.config),
        shards=_shards(release, listing),
        patterns=pattern_table(counted),
        header_bytes_total=checkpoint.header_bytes,
        unknown_tensors=_unknown_patterns(counted),
    )
    return facts, _sources(seen, states, kinds_source)


def _identity(release: Release) -> Identity:
    return Identity(
        model=release.model,
        revision=release.revision,
        config_digest=release.config_digest,
        structure_digest=release.structure_digest,
        weights_digest=release.weights_digest,
    )


def _shards(release: Release, listing: Listing) -> Sequence[Shard]:
    sizes = {file.path: file.size for file in release.source.files()} if release.source else {}
    shards = []
    for path in release.checkpoint.shards:
        held = listing.files.get(path)
        dtypes = tuple(sorted(held.dtypes)) if held else ()
        shards.append(
            Shard(path=path, size=sizes.get(path, 0), tensors=held.tensors if held else 0, dtypes=dtypes)
        )
    return shards


def _sources(seen: Seen, states: Sequence[LayerState], kinds_source: str) -> Mapping[str, str]:
    pointer = seen.facts.pointer
    formula = next((state.formula for state in states if state.formula), "nothing stated")
    kinds = (
        f"config.json#{pointer}/{kinds_source}" if kinds_source else "computed:no kind is stated, all full"
    )
    declared = seen.declared.pointer
    return {
        **seen.facts.sources,
        "/identity": "computed:digests of config.json, headers and file identities",
        "/totals": "computed:headers",
        "/active_params": "computed:headers x config.json experts per token / experts",
        "/kv_bytes_per_token": f"computed:sum over layers, e.g. {formula}",
        "/kv_bytes_per_token_growing": "computed:sum over layers without a window",
        "/kv_window_bytes": "computed:sum over layers with that window",
        "/state_bytes_per_sequence": "computed:sum over layers",
        "/layers": f"computed:headers; kind {kinds}; state {formula}",
        "/roles": "computed:headers",
        "/quantization": f"config.json#{declared}" if declared else "computed:headers",
        "/tied_embeddings/config": f"config.json#{pointer}/tie_word_embeddings",
        "/tied_embeddings/tensors": "computed:headers",
        "/config": "config.json#",
        "/format": "computed:the source's listing",
        "/unknown_tensors": "computed:headers",
        "/shards": "computed:headers and the source's listing",
        "/patterns": "computed:headers",
        "/header_bytes_total": "computed:headers",
    }

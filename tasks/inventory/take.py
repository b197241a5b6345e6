"""Takes the inventory of a release: headers and config in, one record out; nothing of the release is run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.release import Release

from .checkpoint_findings import anomaly_findings, file_anomalies
from .config_facts import ConfigFacts, read_config
from .config_place import placed
from .config_statements import statement_findings
from .counts import (
    Counted,
    active_params,
    count_groups,
    pattern_table,
    role_sizes,
    text_layers,
    totals,
)
from .declared_modules import DeclaredModules
from .distribution import distribution
from .fact_sources import fact_sources
from .finding_order import explaining_first
from .implied import NOT_ASKED, ask, implied_tensors, read_implied, shares_matrix
from .moved import look_again
from .patterns import Listing, list_tensors
from .pickles import read_pickles
from .precision import read_precision
from .provenance import read_provenance
from .quantization import declared_quantization, observed_quantization
from .quantization_part import quantization_part
from .read_layers import read_layers
from .readiness import readiness
from .reconciliation import reconciliation
from .record import (
    Identity,
    InventoryFacts,
    InventoryObservations,
    InventoryRecord,
    Quantization,
    Shard,
    TiedEmbeddings,
)
from .redundant import redundant_sets
from .remarks import remarks, routed_experts, unknown_patterns
from .repository_code import read_repository_code
from .roles import look_around, place_groups
from .row_widths import row_widths
from .seen import Part, Seen
from .small_files import content_of, read_small_files
from .stored_weights import StoredWeights
from .structure import read_structure
from .support import read_support
from .texts import read_texts
from .tied_embeddings import read_tied, tied_by_tensors
from .tokenizer import read_tokenizer

_PARTS: tuple[Callable[[Seen], Part], ...] = (
    quantization_part,
    read_tokenizer,
    read_structure,
    read_precision,
    read_support,
    read_repository_code,
    read_pickles,
    read_provenance,
    read_small_files,
    look_again,
    read_tied,
    read_implied,
    reconciliation,
    readiness,
    redundant_sets,
)
"""Whatever is found beside the counts: each part looks at everything and hands back its own facts."""


def take_inventory(
    release: Release,
    *,
    layouts: Sequence[str] = (),
    expected: bool | None = None,
    progress: Progress = silent,
) -> InventoryRecord:
    """The complete inventory of a release, from headers and config alone.

    Works for any checkpoint format, for a bare config (no tensors) and for unknown architectures.

    Args:
        release: opened.
        layouts: that memory per rank is told for, as `parse_layout` reads them; empty: the usual ones.
        expected: whether a process builds the model to tell which tensors the config implies; None: only
            where there are no tensors to look at.
        progress: told of what takes seconds.
    """
    began = time.perf_counter()
    if expected is None:
        expected = release.checkpoint.format == "none"
    seen, kinds_source = _look(release, layouts, expected, progress)
    gguf = release.checkpoint.format == "gguf"
    findings = [
        *anomaly_findings((*file_anomalies(release.checkpoint), *seen.texts.anomalies)),
        *statement_findings(seen.facts, seen.counted, seen.stack, gguf=gguf),
        *remarks(seen),
    ]
    fields, sources = _counts(seen), dict(fact_sources(seen, kinds_source))
    parts = [part(seen) for part in _PARTS]
    for found in (*parts, distribution(seen)):
        fields |= found.fields
        findings += found.findings
        sources |= found.sources
    told, places = placed(findings, sources, release.config_file)
    return InventoryRecord.conclude(
        findings=explaining_first(told),
        facts=InventoryFacts(**fields),
        sources=places,
        observations=InventoryObservations(seconds=time.perf_counter() - began),
    )


def _look(release: Release, layouts: Sequence[str], expected: bool, progress: Progress) -> tuple[Seen, str]:
    """Everything that the parts look at, and the config key that states the layers' kinds."""
    withheld = not release.config and any(a.code == "listing_only" for a in release.checkpoint.anomalies)
    texts = read_texts(None if withheld else release.source)
    facts = read_config(release.config)
    listing = list_tensors(release.checkpoint.tensors)
    declared = declared_quantization(release.config, texts.held)
    part_of = DeclaredModules(declared.declarations).part_of
    stored = StoredWeights(listing.groups, part_of, row_widths(facts))
    counted, observed = _count(listing, facts, stored)
    stack = text_layers(counted)
    answer = NOT_ASKED
    if expected:
        answer = ask(release.config, counted, release.checkpoint.faults, progress)
    implied = implied_tensors(facts, declared, answer)
    layers, states, kinds_source = read_layers(counted or implied, facts)
    seen = Seen(
        release, texts, facts, listing, counted, stack, layers, states, declared, observed, stored, implied,
        layouts, answer,
    )  # fmt: skip
    return seen, kinds_source


def _count(
    listing: Listing, facts: ConfigFacts, stored: StoredWeights
) -> tuple[Sequence[Counted], Quantization]:
    around = look_around(listing.groups, facts.architecture.layers, facts.mtp_layers > 0)
    placed = place_groups(listing.groups, around)
    return count_groups(placed, stored), observed_quantization(placed, stored)


def _counts(seen: Seen) -> dict[str, Any]:
    """The fields of the facts that counting alone gives."""
    release, layers = seen.release, seen.layers
    counted, checkpoint = seen.counted, release.checkpoint
    architecture = seen.facts.architecture
    known = seen.known
    tied = TiedEmbeddings(config=seen.facts.tied, tensors=tied_by_tensors(seen))
    one_matrix = tied.tensors is True or (tied.tensors is False and tied.config is True)
    if not counted:
        one_matrix = shares_matrix(known, seen.answer)
    windows: dict[int, int] = {}
    for layer in layers:
        if layer.window:
            windows[layer.window] = windows.get(layer.window, 0) + layer.kv_bytes_per_token
    return {
        "identity": _identity(release),
        "format": checkpoint.format,
        "basis": seen.basis,
        "totals": totals(known, len(checkpoint.shards)),
        "active_params": active_params(known, routed_experts(seen), architecture.top_k, one_matrix),
        "kv_bytes_per_token": sum(layer.kv_bytes_per_token for layer in layers),
        "kv_bytes_per_token_growing": sum(layer.kv_bytes_per_token for layer in layers if not layer.window),
        "kv_window_bytes": dict(sorted(windows.items())),
        "state_bytes_per_sequence": sum(layer.state_bytes_per_sequence for layer in layers),
        "layers": layers,
        "roles": role_sizes(known),
        "quantization": seen.declared.normal or seen.observed,
        "tied_embeddings": tied,
        "architecture": architecture,
        "config": dict(release.config),
        "shards": _shards(release, seen.listing),
        "patterns": pattern_table(counted),
        "header_bytes_total": checkpoint.header_bytes,
        "unknown_tensors": unknown_patterns(counted),
    }


def _identity(release: Release) -> Identity:
    return Identity(
        model=release.model,
        revision=release.revision,
        config_digest=release.config_digest,
        structure_digest=release.structure_digest,
        weights_digest=release.weights_digest,
    )


def _shards(release: Release, listing: Listing) -> Sequence[Shard]:
    listed = {file.path: file for file in release.source.files()} if release.source else {}
    shards = []
    for path in release.checkpoint.shards:
        held = listing.files.get(path)
        dtypes = tuple(sorted(held.dtypes)) if held else ()
        file = listed.get(path)
        shards.append(
            Shard(
                path=path,
                size=file.size if file else 0,
                tensors=held.tensors if held else 0,
                dtypes=dtypes,
                content=content_of(file) if file else "",
            )
        )
    return shards

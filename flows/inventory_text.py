"""The inventory as a person reads it in a terminal: what it is, what is wrong, how much, how it is spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from day0.reports.partial import awaited_text, partial_text
from day0.reports.words import bytes_text, count_text, exact_text, listed, plural
from day0.tasks.inventory.record import InventoryFacts, InventoryRecord

from .findings_text import finding_lines
from .inventory_table_text import NARROW, distribution_lines, memory_lines
from .reconciliation_text import reconciliation_lines
from .text_layout import PIPED, wrapped
from .verification_text import verification_lines

_MOST_NAMES = 4
_STATES = {
    "complete": "complete",
    "arriving": "still arriving",
    "listing_only": "listed, not readable",
    "partly_read": "read in part",
    "no_config": "weights without a config",
    "config_only": "only a config",
    "broken": "broken",
}


def inventory_text(record: InventoryRecord, width: int = PIPED) -> Iterator[str]:
    """Identity and readiness, findings and notes, numbers, the folded table, memory per rank.

    Args:
        record: of the inventory.
        width: columns; below `NARROW` numbers are told short.
    """
    facts = record.facts
    yield from _identity(record, width)
    yield ""
    yield from finding_lines(record.findings, width)
    yield ""
    told = [
        *_parameters(facts, width < NARROW),
        *reconciliation_lines(facts.reconciliation),
        *_structure(facts),
        *_quantization(facts),
        *_tokenizer(facts),
        *_trust(facts),
        *verification_lines(facts.verification),
    ]
    yield from _labelled(told, width)
    if facts.distribution is not None:
        yield ""
        yield from distribution_lines(facts.distribution, width)
        yield ""
        if facts.readiness.partial:
            yield "of the tensors that are here so far, not of the whole model:"
        yield from memory_lines(facts.distribution.memory, width)


def _identity(record: InventoryRecord, width: int) -> Iterator[str]:
    facts = record.facts
    named = f"{facts.identity.model} at {facts.identity.revision}: {record.verdict.value}"
    yield from wrapped(named, width, "", "  ")
    shape, ready = facts.architecture, facts.readiness
    known = f"{shape.architecture or 'unknown architecture'} ({shape.model_type or 'no model type'})"
    yield from wrapped(f"{known}, {_STATES.get(ready.state, ready.state)}", width, "", "  ")
    for reason in ready.reasons[:_MOST_NAMES]:
        yield from wrapped(reason, width, "  ", "    ")
    if ready.awaited:
        yield from wrapped(awaited_text(facts, _MOST_NAMES), width, "  ", "    ")
    partial = partial_text(facts)
    if partial:
        yield from wrapped(f"so far {partial}; every number below is of these alone", width, "  ", "    ")


Labelled = tuple[str, str]


def _labelled(lines: Sequence[Labelled], width: int) -> Iterator[str]:
    """Label and text; a label that repeats is told once."""
    margin = max(len(label) for label, _ in lines) + 2
    before = ""
    for label, text in lines:
        shown = label if label != before else ""
        yield from wrapped(text, width, f"{shown:<{margin}}", " " * (margin + 2))
        before = label


def _parameters(facts: InventoryFacts, short: bool) -> Iterator[Labelled]:
    totals, active = facts.totals, facts.active_params
    number_text = count_text if short else exact_text
    if facts.basis == "none":
        yield from ((label, "unknown") for label in ("parameters", "active"))
    else:
        logical, main = totals.logical_params, totals.main_params
        both = "" if short else f" ({count_text(logical)})"
        more = f"{number_text(main)} without multi-token prediction"
        more = _implied_by(facts) if facts.basis == "implied" else more
        more += " so far" if facts.readiness.partial else ""
        yield "parameters", f"{number_text(logical)} logical{both}, {more}"
        parts = (
            ("in routed experts", totals.routed_expert_params),
            ("in multi-token prediction", totals.mtp_params),
            ("in vision and projector", totals.vision_params),
            ("elements of scales and other side tensors beside them", totals.aux_elements),
        )
        told = [f"{number_text(number)} {what}" for what, number in parts if number]
        yield from (("parameters", line) for line in told)
        for name, number in active:
            both = "" if short else f" ({count_text(number)})"
            yield "active", f"{number_text(number)}{both} {name.replace('_', ' ')}{_one_matrix(facts, name)}"
    yield from _storage(facts, short)
    if not facts.kv_bytes_per_token and not facts.state_bytes_per_sequence:
        yield "cache", "unknown, not computable from the config"
        return
    yield "cache", _cache(facts)


def _implied_by(facts: InventoryFacts) -> str:
    """What a bare config's total is of, and what it is not of."""
    left = listed(list(facts.implied.left_out))
    without = f"without {left}, which the class does not build" if facts.implied.left_out else ""
    return ", ".join(filter(None, ("implied by the config", without)))


def _one_matrix(facts: InventoryFacts, name: str) -> str:
    """Why a convention gives the same number as the one before it."""
    active = facts.active_params
    same = name == "without_embedding" and active.without_embedding == active.with_embedding_and_head
    return (
        ": embedding and head are one matrix, counted as the head"
        if same and active.without_embedding
        else ""
    )


def _cache(facts: InventoryFacts) -> str:
    kept = f"{exact_text(facts.kv_bytes_per_token)} bytes a token in bf16"
    growing = facts.kv_bytes_per_token_growing
    if growing != facts.kv_bytes_per_token:
        kept += (
            f" until windows are full, {exact_text(growing)} from then on"
            if growing
            else (" until windows are full, none from then on")
        )
    if facts.state_bytes_per_sequence:
        kept += f"; {exact_text(facts.state_bytes_per_sequence)} bytes a sequence"
    return kept


def _storage(facts: InventoryFacts, short: bool) -> Iterator[Labelled]:
    """What is stored and, of a bare config, what would be."""
    totals, implied = facts.totals, facts.implied
    number_text = count_text if short else exact_text
    size = bytes_text(totals.data_bytes)
    held = size if short else f"{exact_text(totals.data_bytes)} bytes ({size})"
    shards = f"{plural(totals.shards, 'shard')} of {facts.format}"
    if facts.basis == "headers":
        yield "stored", f"{held} in {plural(totals.tensors, 'tensor')} and {shards}"
    else:
        tree = facts.reconciliation.tree
        listed_size = f", {bytes_text(tree.bytes)} as listed" if tree.bytes else ""
        hashed = f", {tree.hashed} of them with a sha256" if tree.hashed else ""
        files = shards if facts.format != "none" else plural(tree.shards, "tensor file")
        yield "stored", f"unknown, in {files}{listed_size}{hashed}" if tree.shards else "nothing"
    for redundant in facts.redundant[:_MOST_NAMES]:
        yield "stored", f"beside them {redundant.kind}: {redundant.name}, {bytes_text(redundant.bytes)}"
    if facts.basis == "implied":
        yield "implied", f"{held} in {plural(totals.tensors, 'tensor')} by {implied.by}"
        yield from (("implied", f"without {left}") for left in implied.left_out)
    elif implied.totals is not None:
        told = f"{number_text(implied.totals.logical_params)} parameters"
        yield "implied", f"{told}, {bytes_text(implied.totals.data_bytes)} by {implied.by}"
    elif facts.format == "none":
        yield "implied", f"tensors not worked out: {implied.reason}"


def _structure(facts: InventoryFacts) -> Iterator[Labelled]:
    shape, structure = facts.architecture, facts.structure
    pattern = structure.layer_pattern
    kinds = "; ".join(
        f"{group.layers} {' '.join(filter(None, (group.kind, group.feed_forward)))}"
        for group in pattern.groups[:_MOST_NAMES]
    )
    number = shape.layers or len(facts.layers)
    yield (
        "layers",
        ", ".join(filter(None, (exact_text(number) if number else "unknown", pattern.text, kinds))),
    )
    stated = {
        f"hidden size {exact_text(shape.hidden_size)}": shape.hidden_size,
        plural(shape.heads, "head"): shape.heads,
        plural(shape.kv_heads, "KV head"): shape.kv_heads,
    }
    sizes = [words for words, size in stated.items() if size]
    if shape.experts:
        shared = f" and {shape.shared_experts} shared" if shape.shared_experts else ""
        sizes.append(f"{shape.top_k} of {plural(shape.experts, 'expert')}{shared}")
    if shape.vocab_size:
        sizes.append(f"vocabulary {exact_text(shape.vocab_size)}")
    yield "structure", ", ".join(sizes) or "unknown, the config states no sizes"
    details = [structure.norms.kind and f"{structure.norms.kind} norms", structure.activation.kind,
               structure.position.kind, structure.position.scaling]  # fmt: skip
    if any(details):
        yield "structure", ", ".join(detail for detail in details if detail)
    tied = facts.tied_embeddings
    yield "tied", f"by the config {_yes(tied.config)}, by the tensors {_yes(tied.tensors)}"
    needs = {(need.need, need.role): need for need in facts.precision}
    for (kept, role), need in list(needs.items())[:_MOST_NAMES]:
        yield "precision", f"{role} stays {kept}, e.g. {need.pattern} (stored {need.stored})"
    if facts.unknown_tensors:
        yield (
            "unknown",
            f"{plural(len(facts.unknown_tensors), 'pattern')} without a role: "
            f"{listed(list(facts.unknown_tensors), _MOST_NAMES)}",
        )


def _yes(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "cannot tell"}[value]


def _quantization(facts: InventoryFacts) -> Iterator[Labelled]:
    form = facts.quantization
    if form.scheme == "none":
        yield "quantised", "no, plain weights" if facts.basis == "headers" else "none declared"
    else:
        group = list(form.group) if not isinstance(form.group, int) else form.group
        dialect = f", dialect {form.dialect}" if form.dialect else ""
        yield "quantised", f"{form.scheme}, {plural(form.bits, 'bit')}, group {group}{dialect}"
    for part in form.parts[:_MOST_NAMES]:
        yield "quantised", f"{part.scheme}, {plural(part.bits, 'bit')} in {plural(part.modules, 'module')}"
    checks = form.checks
    rest = checks.weights - checks.with_scale
    if checks.weights:
        yield (
            "quantised",
            f"{exact_text(checks.with_scale)} of {plural(checks.weights, 'low-precision weight')} "
            f"{'has its' if checks.weights == 1 else 'have their'} scales"
            + (", the rest may be in files that are not here" if facts.readiness.partial and rest else ""),
        )
    if form.excluded:
        yield "quantised", f"not in {listed(list(form.excluded), _MOST_NAMES)}"
    if form.kv_cache is not None:
        yield (
            "quantised",
            f"KV cache declared {form.kv_cache.dtype}, {plural(form.kv_cache.scales, 'scale')} stored",
        )


def _tokenizer(facts: InventoryFacts) -> Iterator[Labelled]:
    tokenizer = facts.tokenizer
    if tokenizer is None or not tokenizer.files:
        return
    rows = f", {plural(tokenizer.embedding_rows, 'embedding row')}" if tokenizer.embedding_rows else ""
    yield (
        "tokenizer",
        f"{tokenizer.kind or 'unknown kind'}, {plural(tokenizer.tokens, 'token')}{rows}, "
        f"{plural(len(tokenizer.chat_templates), 'chat template')}",
    )


def _trust(facts: InventoryFacts) -> Iterator[Labelled]:
    support, code, origin = facts.transformers, facts.code, facts.provenance
    if support.model_type:
        since = f"since {support.known_since}" if support.known_since else "not known"
        newest = f" up to {support.newest_checked}" if support.newest_checked else ""
        yield "transformers", f"{support.model_type}: {since}{'' if support.known_since else newest}"
    if code.files or code.references:
        own = len({item.target for item in code.references if not item.repository})
        asked = f", {plural(own, 'class', 'classes')} of its own asked for" if own else ""
        yield "code", f"{plural(len(code.files), 'file')} of its own{asked}; read, never run"
        foreign = {item.repository for item in code.references if item.repository}
        if foreign:
            yield "code", f"asks for code of {listed(sorted(foreign), _MOST_NAMES)}"
    if code.kernels:
        yield "code", f"kernels: {listed(list(code.kernels), _MOST_NAMES)}"
    if code.calls:
        calls = [f"{call.what} ({call.file}:{call.line})" for call in code.calls]
        yield "code", f"can do more than compute: {listed(calls, _MOST_NAMES)}"
    for pickle in facts.pickles[:_MOST_NAMES]:
        yield "pickle", f"{pickle.path}: {pickle.verdict}, {plural(len(pickle.globals), 'global')}"
    licence = origin.licence_name or origin.licence
    if licence or origin.base_models:
        made = f", made from {listed(list(origin.base_models), 2)}" if origin.base_models else ""
        yield "origin", f"licence {licence or 'not stated'}{made}"

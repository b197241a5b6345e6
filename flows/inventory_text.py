"""The inventory as a person reads it in a terminal: what it is, what is wrong, how much, how it is spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from day0.reports.words import bytes_text, count_text, exact_text, listed, plural
from day0.tasks.finding import Finding
from day0.tasks.inventory.record import InventoryFacts, InventoryRecord
from day0.tasks.inventory.record_distribution import Distribution, LayoutMemory, Share
from day0.tasks.inventory.table import fold_layers

from .verification_text import verification_lines

_MOST_FINDINGS = 10
_MOST_ROWS = 40
_MOST_NAMES = 4
_TABLE_NUMBERS = (1, 4, 5, 6)  # columns set to the right
_SEVERITY = ("error", "warning", "info")
_STATES = {
    "complete": "complete",
    "arriving": "still arriving",
    "listing_only": "listed, not readable",
    "config_only": "only a config",
    "broken": "broken",
}


def inventory_text(record: InventoryRecord, width: int = 0) -> Iterator[str]:
    """Identity and readiness, findings, numbers, the folded table, memory per rank.

    Args:
        record: of the inventory.
        width: of the terminal; where the table is wider, it comes without activations. 0: no bound.
    """
    facts = record.facts
    yield from _identity(record)
    yield ""
    yield from _findings(record.findings)
    yield ""
    yield from _labelled(
        [
            *_parameters(facts),
            *_structure(facts),
            *_quantization(facts),
            *_tokenizer(facts),
            *_trust(facts),
            *verification_lines(facts.verification),
        ]
    )
    if facts.distribution is not None:
        yield ""
        yield from _table(facts.distribution, width)
        yield ""
        yield from _memory(facts.distribution.memory)


def aligned(rows: Sequence[Sequence[str]], numeric: Sequence[int] = ()) -> Iterator[str]:
    """Columns of equal width; those named in `numeric` set to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    for row in rows:
        cells = [
            cell.rjust(width) if column in numeric else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _identity(record: InventoryRecord) -> Iterator[str]:
    facts = record.facts
    yield f"{facts.identity.model} at {facts.identity.revision}: {record.verdict.value}"
    shape, ready = facts.architecture, facts.readiness
    known = f"{shape.architecture or 'unknown architecture'} ({shape.model_type or 'no model type'})"
    yield f"{known}, {_STATES.get(ready.state, ready.state)}"
    for reason in ready.reasons[:_MOST_NAMES]:
        yield f"  {reason}"
    if ready.awaited:
        more = len(ready.awaited) + ready.more_awaited
        yield f"  {plural(more, 'file')} awaited: {listed(list(ready.awaited), _MOST_NAMES)}"


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    told = sorted(findings, key=lambda finding: _SEVERITY.index(finding.severity))
    acting = [finding for finding in told if finding.severity != "info"]
    notes = len(told) - len(acting)
    if not acting:
        yield f"Nothing to act on; {plural(notes, 'note')}."
    for finding in acting[:_MOST_FINDINGS]:
        yield f"{finding.severity:<8} {finding.code} {finding.subject.name}: {finding.message}"
        if finding.remedy:
            yield f"         {finding.remedy}"
    left = len(acting) - _MOST_FINDINGS
    if left > 0:
        yield f"... and {plural(left, 'more finding', 'more findings')}; all of them with --json"
    if acting and notes:
        yield f"{plural(notes, 'note')} besides; with --json"


Labelled = tuple[str, str]


def _labelled(lines: Sequence[Labelled]) -> Iterator[str]:
    """Label and text; a label that repeats is told once."""
    width = max(len(label) for label, _ in lines)
    before = ""
    for label, text in lines:
        yield f"{(label if label != before else ''):<{width}}  {text}"
        before = label


def _parameters(facts: InventoryFacts) -> Iterator[Labelled]:
    totals, active = facts.totals, facts.active_params
    if facts.format != "none":
        yield (
            "parameters",
            f"{exact_text(totals.logical_params)} logical ({count_text(totals.logical_params)}), "
            f"{exact_text(totals.main_params)} without multi-token prediction",
        )
        parts = (
            ("in routed experts", totals.routed_expert_params),
            ("in multi-token prediction", totals.mtp_params),
            ("in vision and projector", totals.vision_params),
            ("elements of scales and other side tensors beside them", totals.aux_elements),
        )
        told = [f"{exact_text(number)} {what}" for what, number in parts if number]
        yield from (("parameters", line) for line in told)
        for name, number in active:
            yield "active", f"{exact_text(number)} ({count_text(number)}) {name.replace('_', ' ')}"
        yield (
            "stored",
            f"{exact_text(totals.data_bytes)} bytes ({bytes_text(totals.data_bytes)}) in "
            f"{plural(totals.tensors, 'tensor')} and {plural(totals.shards, 'shard')} of {facts.format}",
        )
        for redundant in facts.redundant[:_MOST_NAMES]:
            yield "stored", f"beside them {redundant.kind}: {redundant.name}, {bytes_text(redundant.bytes)}"
    kept = f"{exact_text(facts.kv_bytes_per_token)} bytes a token in bf16"
    if facts.kv_bytes_per_token_growing != facts.kv_bytes_per_token:
        kept += f", {exact_text(facts.kv_bytes_per_token_growing)} of them without end"
    if facts.state_bytes_per_sequence:
        kept += f"; {exact_text(facts.state_bytes_per_sequence)} bytes a sequence"
    yield "cache", kept
    if facts.implied.totals is not None:
        implied = facts.implied
        yield (
            "implied",
            f"{exact_text(facts.implied.totals.logical_params)} parameters, "
            f"{bytes_text(facts.implied.totals.data_bytes)} by {implied.by}",
        )
    elif facts.format == "none":
        yield "implied", f"tensors not worked out: {facts.implied.reason}"


def _structure(facts: InventoryFacts) -> Iterator[Labelled]:
    shape, structure = facts.architecture, facts.structure
    pattern = structure.layer_pattern
    kinds = "; ".join(
        f"{group.layers} {' '.join(filter(None, (group.kind, group.feed_forward)))}"
        for group in pattern.groups[:_MOST_NAMES]
    )
    yield "layers", ", ".join(filter(None, (f"{shape.layers}", pattern.text, kinds)))
    sizes = [f"hidden size {shape.hidden_size}", f"{shape.heads} heads", f"{shape.kv_heads} KV heads"]
    if shape.experts:
        shared = f" and {shape.shared_experts} shared" if shape.shared_experts else ""
        sizes.append(f"{shape.top_k} of {shape.experts} experts{shared}")
    sizes.append(f"vocabulary {shape.vocab_size}")
    yield "structure", ", ".join(sizes)
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
        yield "quantised", "no, plain weights"
    else:
        group = list(form.group) if not isinstance(form.group, int) else form.group
        dialect = f", dialect {form.dialect}" if form.dialect else ""
        yield "quantised", f"{form.scheme}, {form.bits} bits, group {group}{dialect}"
    for part in form.parts[:_MOST_NAMES]:
        yield "quantised", f"{part.scheme}, {part.bits} bits in {plural(part.modules, 'module')}"
    checks = form.checks
    if checks.weights:
        yield (
            "quantised",
            f"{exact_text(checks.with_scale)} of {exact_text(checks.weights)} low-precision weights have "
            "their scales",
        )
    if form.excluded:
        yield "quantised", f"not in {listed(list(form.excluded), _MOST_NAMES)}"
    if form.kv_cache is not None:
        yield "quantised", f"KV cache declared {form.kv_cache.dtype}, {form.kv_cache.scales} scales stored"


def _tokenizer(facts: InventoryFacts) -> Iterator[Labelled]:
    tokenizer = facts.tokenizer
    if tokenizer is None or not tokenizer.files:
        return
    rows = f", {exact_text(tokenizer.embedding_rows)} embedding rows" if tokenizer.embedding_rows else ""
    yield (
        "tokenizer",
        f"{tokenizer.kind or 'unknown kind'}, {exact_text(tokenizer.tokens)} tokens{rows}, "
        f"{plural(len(tokenizer.chat_templates), 'chat template')}",
    )


def _trust(facts: InventoryFacts) -> Iterator[Labelled]:
    support, code, origin = facts.transformers, facts.code, facts.provenance
    if support.model_type:
        since = f"since {support.known_since}" if support.known_since else "not known to"
        newest = f" up to {support.newest_checked}" if support.newest_checked else ""
        yield "transformers", f"{support.model_type}: {since}{'' if support.known_since else newest}"
    if code.files or code.references:
        asked = f", {plural(len(code.references), 'class', 'classes')} asked for" if code.references else ""
        yield "code", f"{plural(len(code.files), 'file')} of its own{asked}; read, never run"
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


def _table(distribution: Distribution, width: int) -> Iterator[str]:
    head = ("layers", "x", "kind", "role", "parameters", "active", "bytes", "activations")
    rows: list[Sequence[str]] = [head]
    for fold in fold_layers(distribution):
        kind = " ".join(filter(None, (fold.rows[0].kind, fold.rows[0].feed_forward)))
        for number, share in enumerate(fold.rows):
            first = number == 0
            place = (fold.place, str(fold.number), kind) if first else ("", "", "")
            rows.append((*place, share.role, *_amounts(share), _activations(share)))
    told = {"tensors": "", "implied": ", implied by the config", "config": ": state and shapes alone"}
    yield f"one of each set of equal layers{told[distribution.basis]}"
    shown = rows[: _MOST_ROWS + 1]
    lines = [f"  {line}" for line in aligned(shown, numeric=_TABLE_NUMBERS)]
    if width and max(map(len, lines)) > width:
        lines = [f"  {line}" for line in aligned([row[:-1] for row in shown], numeric=_TABLE_NUMBERS)]
    yield from lines
    if len(rows) > _MOST_ROWS + 1:
        yield f"  ... and {plural(len(rows) - _MOST_ROWS - 1, 'more row', 'more rows')}; all with --csv FILE"


def _amounts(share: Share) -> tuple[str, str, str]:
    return exact_text(share.params), exact_text(share.active_params), exact_text(share.bytes)


def _activations(share: Share) -> str:
    return " -> ".join(filter(None, (share.input, share.inner, share.output)))


def _memory(layouts: Sequence[LayoutMemory]) -> Iterator[str]:
    if not layouts:
        return
    rows: list[Sequence[str]] = [("layout", "ranks", "weights", "emptiest", "KV/token", "state", "")]
    for item in layouts:
        layout = _short(item.layout)
        if not item.possible:
            rows.append((layout, str(item.ranks), "", "", "", "", f"not possible: {item.reason}"))
            continue
        rows.append(
            (
                layout,
                str(item.ranks),
                bytes_text(item.weights_bytes_max),
                bytes_text(item.weights_bytes_min),
                exact_text(item.kv_bytes_per_token_max),
                exact_text(item.state_bytes_per_sequence_max),
                "; ".join(item.notes),
            )
        )
    yield "expected on the fullest rank, before activations and an engine's reserve"
    yield from (f"  {line}" for line in aligned(rows, numeric=(1, 2, 3, 4, 5)))


def _short(layout: str) -> str:
    """The layout without what is 1."""
    return ",".join(part for part in layout.split(",") if not part.endswith("=1")) or "one rank"

"""What the model is made of: config facts, quantisation, tokenizer, precision."""

from __future__ import annotations

from collections.abc import Iterator

from day0.tasks.inventory.record import InventoryFacts
from day0.tasks.inventory.record_structure import Tokenizer

from ..pointers import pointer_to
from ..words import exact_text, listed, plural
from .fact_rows import FactRows
from .ledger import Ledger
from .parts import Cell, Column, Row, Table

_PARTS = ("norms", "activation", "position", "attention", "router")


def structure_tables(ledger: Ledger, facts: InventoryFacts, limit: int) -> Iterator[Table]:
    """Config facts, quantisation, tokenizer, what must not be rounded; each folded."""
    yield from _architecture(ledger, facts)
    yield from _quantization(ledger, facts)
    if facts.quantization.exclusions:
        yield _exclusion_table(ledger, facts, limit)
    if facts.tokenizer is not None:
        yield from _tokenizer(ledger, facts.tokenizer)
    if facts.precision:
        yield _precision_table(ledger, facts, limit)


def _architecture(ledger: Ledger, facts: InventoryFacts) -> Iterator[Table]:
    rows = FactRows(ledger)
    for name, value in facts.architecture:
        code = "code" if isinstance(value, str) else ""
        rows.fact(name.replace("_", " "), pointer_to("architecture", name), value, code)
    pattern = facts.structure.layer_pattern
    rows.fact("layer pattern", "/structure/layer_pattern/text", pattern.text)
    for place, group in enumerate(pattern.groups[:8]):
        kind = " ".join(filter(None, (group.kind, group.feed_forward))) or "of no known kind"
        rows.told(f"layers, {kind}", group.layers, f"/structure/layer_pattern/groups/{place}")
    for part in _PARTS:
        values = getattr(facts.structure, part)
        for name, value in values or ():
            rows.fact(f"{part}: {name.replace('_', ' ')}", pointer_to("structure", part, name), value)
    tied = facts.tied_embeddings
    told = f"config {_yes(tied.config)}, tensors {_yes(tied.tensors)}"
    rows.told("tied embeddings", told, "/tied_embeddings/config", "/tied_embeddings/tensors")
    yield from rows.table("inventory--architecture", "What the config says")


def _yes(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "does not say"}[value]


def _quantization(ledger: Ledger, facts: InventoryFacts) -> Iterator[Table]:
    form, rows = facts.quantization, FactRows(ledger)
    if form.scheme == "none" and not form.sources:
        return
    rows.fact("scheme", "/quantization/scheme", form.scheme, "code")
    rows.fact("dialect", "/quantization/dialect", form.dialect, "code")
    rows.fact("bits", "/quantization/bits", form.bits)
    rows.fact("group", "/quantization/group", form.group)
    if form.activations is not None:
        done = form.activations
        how = {True: "scales at run time", False: "stored scales", None: ""}[done.dynamic]
        words = ", ".join(filter(None, (done.dtype or f"{done.bits} bits", how)))
        rows.told("activations", words, "/quantization/activations")
    if form.kv_cache is not None:
        cache = f"{form.kv_cache.dtype}, {plural(form.kv_cache.scales, 'stored scale')}"
        rows.told("KV cache", cache, "/quantization/kv_cache")
    for place, part in enumerate(form.parts[:12]):
        words = f"{part.scheme}, {part.bits} bits, group {part.group}, {plural(part.modules, 'module')}"
        rows.told(f"part {place + 1}", words, f"/quantization/parts/{place}")
    rows.fact("not quantised", "/quantization/excluded", form.excluded)
    for name, number in form.checks:
        rows.fact(f"checked: {name.replace('_', ' ')}", pointer_to("quantization", "checks", name), number)
    for place, source in enumerate(form.sources[:6]):
        words = f"{source.source}: {source.dialect} {source.scheme}".strip()
        rows.told("declared in", words, f"/quantization/sources/{place}")
    yield from rows.table("inventory--quantization", "Quantisation in one normal form")


def _exclusion_table(ledger: Ledger, facts: InventoryFacts, limit: int) -> Table:
    held = facts.quantization.exclusions
    rows = []
    for place, item in enumerate(held[:limit]):
        pointer = f"/quantization/exclusions/{place}"
        matched = ledger.cell(f"{pointer}/modules", "exact") if item.modules >= 0 else Cell("not evaluated")
        quantized = ledger.cell(f"{pointer}/quantized", "exact")
        status = "warn" if item.quantized else ""
        rows.append(Row([Cell(item.pattern, code=True), Cell(item.kind), matched, quantized], status=status))
    return Table(
        id="inventory--exclusions",
        caption="Modules that are declared not to be quantised",
        columns=[
            Column("Pattern"),
            Column("Read as"),
            Column("Modules", True),
            Column("Quantised all the same", True),
        ],
        rows=rows,
        total=len(held),
        rest="report.json#/inventory/facts/quantization/exclusions",
        folded=True,
    )


def _tokenizer(ledger: Ledger, tokenizer: Tokenizer) -> Iterator[Table]:
    rows = FactRows(ledger)
    for name in ("kind", "tokenizer_class", "base_tokens", "added_tokens", "tokens", "ids", "embedding_rows",
                 "head_rows", "config_vocab_size", "files"):  # fmt: skip
        rows.fact(name.replace("_", " "), pointer_to("tokenizer", name), getattr(tokenizer, name))
    for place, token in enumerate(tokenizer.special_tokens[:40]):
        if token.use:
            number = "no id" if token.id is None else exact_text(token.id)
            rows.told(f"{token.use} token", f"{token.text!r}, {number}", f"/tokenizer/special_tokens/{place}")
    for place, stated in enumerate(tokenizer.stated_ids[:20]):
        ids = listed([str(number) for number in stated.ids], 6) if stated.ids else "null"
        rows.told(f"{stated.use} by {stated.source}", ids, f"/tokenizer/stated_ids/{place}")
    for place, template in enumerate(tokenizer.chat_templates[:10]):
        asks = f", asks for {listed(list(template.mentions), 8)}" if template.mentions else ""
        wrong = f"; {template.error}" if template.error else ""
        words = f"{exact_text(template.characters)} characters{asks}{wrong}"
        rows.told(f"chat template {template.name}", words, f"/tokenizer/chat_templates/{place}")
    yield from rows.table("inventory--tokenizer", "Tokenizer")


def _precision_table(ledger: Ledger, facts: InventoryFacts, limit: int) -> Table:
    rows = [
        Row(
            [
                Cell(need.pattern, code=True),
                Cell(need.role),
                Cell(need.stored, code=True),
                Cell(need.need, code=True),
                ledger.cell(f"/precision/{place}/tensors", "exact"),
                Cell(need.reason),
            ],
            status="" if need.stored == need.need else "warn",
        )
        for place, need in enumerate(facts.precision[:limit])
    ]
    return Table(
        id="inventory--precision",
        caption="What a stack must not round",
        columns=[
            Column("Tensors"),
            Column("Role"),
            Column("Stored"),
            Column("Needs"),
            Column("Number", True),
            Column("Otherwise"),
        ],
        rows=rows,
        total=len(facts.precision),
        rest="report.json#/inventory/facts/precision",
        folded=True,
    )

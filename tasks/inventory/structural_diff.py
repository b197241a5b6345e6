"""What is structurally new in a release against another: a pure function of two inventories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from day0.adapters.base.dtypes import FROM_SAFETENSORS

from .content_changes import CONTENT, content_changes, uncompared
from .fact_changes import KINDS, config_changes, fact_changes
from .index_sets import format_indices, layers_text, parse_indices
from .record import InventoryFacts, InventoryRecord
from .structural_change import Changed, StructuralDiff, TensorRole
from .tensor_changes import TensorChanges, one_is_announced, rows_of, tensor_changes

_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
          "twelve")  # fmt: skip
_MOST_IN_HEADLINE = 6
_MOST_FILES = 4
_TOPICS = (
    "architecture", "experts", "layers", "quantization", "precision", "embeddings", "tokenizer", "code",
    "support", "totals", "config", "weights", "files",
)  # fmt: skip
_SHORT = {short: name for name, short in FROM_SAFETENSORS.items()}


def structural_diff(before: InventoryRecord, after: InventoryRecord) -> StructuralDiff:
    """New, removed and changed tensor roles, then every other fact that differs, the weightiest first."""
    old, new = before.facts, after.facts
    tensors = tensor_changes(old, new)
    config, more = config_changes(old, new)
    found = (*fact_changes(old, new), *config, *content_changes(old, new))
    changed = sorted(found, key=lambda change: _TOPICS.index(change.topic))
    listed = (tensors.new, tensors.removed, tensors.dtypes, tensors.shapes, tensors.placed, changed)
    return StructuralDiff(
        before=_name(old),
        after=_name(new),
        same=not any(listed) and (not tensors.renamed or one_is_announced(old, new)),
        headline=_headline(old, new, tensors, changed),
        renamed=tensors.renamed,
        new=sorted(tensors.new, key=_weight),
        removed=sorted(tensors.removed, key=_weight),
        dtypes=tensors.dtypes,
        shapes=tensors.shapes,
        placed=tensors.placed,
        changed=changed,
        more_config=more,
        uncompared=uncompared(old, new),
    )


def _name(facts: InventoryFacts) -> str:
    return f"{facts.identity.model} at {facts.identity.revision}"


def _weight(role: TensorRole) -> tuple[bool, bool, int]:
    """Weights before their scales, text before what stands beside it, then the largest."""
    return (role.side, role.part != "text", -role.bytes)


def _headline(
    before: InventoryFacts, after: InventoryFacts, tensors: TensorChanges, changed: Sequence[Changed]
) -> str:
    told = list(_sentences(before, after, tensors, changed))
    if not told:
        return _same_structure(before, after, changed)
    more = len(told) - _MOST_IN_HEADLINE
    text = ", ".join(told[:_MOST_IN_HEADLINE]) + (
        f" and {_count(more, 'further change')}" if more > 0 else ""
    )
    return f"{text[0].upper()}{text[1:]}."


def _same_structure(before: InventoryFacts, after: InventoryFacts, changed: Sequence[Changed]) -> str:
    """What there is to say where no tensor's name, dtype, shape or place differs."""
    held = [change for change in changed if change.name.startswith(CONTENT)]
    rest = [change for change in changed if change not in held and change.topic != "files"]
    if held and not rest:
        return f"Same structure, other content: {_files(held)}."
    if rest:
        others = f"{_count(len(rest), 'other fact')} did, the first is {rest[0].name}"
        return (
            f"No tensor changed its form; {others}; other content: {_files(held)}."
            if held
            else (f"No tensor changed; {others}.")
        )
    if one_is_announced(before, after):
        return "Nothing changed of what a config tells."
    if changed:
        return "Nothing structural changed; only the files did."
    unread = uncompared(before, after)
    if unread:
        more = f" and {len(unread) - 1:,} more" if len(unread) > 1 else ""
        return (
            f"Nothing changed in what was compared; the bytes of {unread[0]}{more} were not: no hash "
            "is known on both sides, and --verify makes one."
        )
    return "Nothing changed."


def _files(held: Sequence[Changed]) -> str:
    names = [change.name.removeprefix(CONTENT) for change in held]
    shown, left = ", ".join(names[:_MOST_FILES]), len(names) - _MOST_FILES
    return f"file{'s' if len(names) > 1 else ''} {shown}{f' and {left:,} more' if left > 0 else ''}"


def _sentences(
    before: InventoryFacts, after: InventoryFacts, tensors: TensorChanges, changed: Sequence[Changed]
) -> Iterator[str]:
    """What the headline may say, the weightiest first."""
    if rows_of(before) and rows_of(after):
        whole = list(_whole_parts(before, after))
        parts = [part for part, _ in whole]
        yield from _roles("new", [role for role in tensors.new if role.part not in parts])
        yield from _roles("removed", [role for role in tensors.removed if role.part not in parts])
        yield from (told for _, told in whole if told)
    elif rows_of(before) or rows_of(after):
        yield f"tensors are known only of the {'earlier' if rows_of(before) else 'later'} one"
    for stored in tensors.dtypes:
        name = _PLURALS.get(stored.role, stored.role)
        yield f"{name} went from {header_dtype(stored.before)} to {header_dtype(stored.after)}"
    facts = {(change.topic, change.name): change for change in changed}
    for change in changed:
        if change.name.startswith(KINDS):
            layers = change.name.removeprefix(KINDS)
            yield f"{layers_text(layers)} went from {_or_none(change.before)} to {_or_none(change.after)}"
    for key, what in _TOLD.items():
        if key in facts:
            yield f"{what} {_or_none(facts[key].before)} to {_or_none(facts[key].after)}"
    if ("architecture", "layers") not in facts:
        yield from _placed(tensors)
    if tensors.shapes:
        yield f"{_count(len(tensors.shapes), 'pattern')} of another shape"
    if tensors.renamed and not one_is_announced(before, after):
        first = tensors.renamed[0]
        yield f"{first.before or 'the root'} is called {first.after or 'the root'}"
    if any(change.topic == "tokenizer" and change.name.startswith("chat template") for change in changed):
        yield "another chat template"
    for word, found in (("new", tensors.new), ("removed", tensors.removed)):
        sides = sum(role.side and role.part in ("text", "projector", "vision") for role in found)
        if sides and sides == len(found):
            yield f"{_count(sides, f'{word} kind')} of scales and other side tensors"
    tokens = [change for change in changed if change.name.startswith("special token")]
    if tokens:
        yield _count(len(tokens), "special token") + (" differs" if len(tokens) == 1 else " differ")


def _placed(tensors: TensorChanges) -> Iterator[str]:
    """Patterns that are on other layers, or there another number of times."""
    moved = [change for change in tensors.placed if change.what == "layers"]
    patterns = sum(len(change.patterns) for change in moved)
    if patterns == 1:
        change = moved[0]
        name = change.patterns[0]
        before, after = (
            set(parse_indices(text)) if text else set() for text in (change.before, change.after)
        )
        gone, more = format_indices(before - after), format_indices(after - before)
        said = [
            f"gone from {layers_text(gone)}" if gone else "",
            f"new in {layers_text(more)}" if more else "",
        ]
        yield f"the tensor {name} is {' and '.join(filter(None, said)) or 'placed otherwise'}"
    elif patterns:
        yield f"{_count(patterns, 'pattern')} on other layers, the first is {moved[0].patterns[0]}"
    numbers = sum(len(change.patterns) for change in tensors.placed if change.what != "layers")
    if numbers:
        yield f"{_count(numbers, 'pattern')} with another number of tensors in a layer"


def _whole_parts(before: InventoryFacts, after: InventoryFacts) -> Iterator[tuple[str, str]]:
    """Parts that only one of the two has at all, and how that is told; empty for what goes with another."""
    told = (("mtp", "multi-token prediction"), ("vision", "a vision tower"), ("audio", "an audio tower"))
    held = [{row.part for row in rows_of(facts)} for facts in (before, after)]
    for part, name in told:
        if (part in held[0]) != (part in held[1]):
            yield part, f"{name} is {'new' if part in held[1] else 'gone'}"
            yield from ((also, "") for also in ("projector",) if part != "mtp")


_PLURALS = {
    "norm": "norms", "router": "routers", "expert": "experts", "shared_expert": "shared experts",
    "embedding": "embeddings", "head": "the head", "dense_mlp": "dense blocks",
    "mtp": "multi-token prediction",
}  # fmt: skip
_TOLD = {
    ("experts", "experts"): "experts",
    ("experts", "top_k"): "experts per token",
    ("quantization", "scheme"): "quantisation",
    ("architecture", "model_type"): "model type",
    ("architecture", "layers"): "layers",
    ("architecture", "hidden_size"): "hidden size",
    ("architecture", "kv_heads"): "KV heads",
    ("architecture", "vocab_size"): "vocabulary",
    ("layers", "kv_bytes_per_token"): "KV bytes per token",
}
"""Facts that a headline may name, in order."""


def _roles(word: str, found: Sequence[TensorRole]) -> Iterator[str]:
    """`five new tensor roles per layer`; scales are told with the weights they serve, not as roles."""
    roles = [role for role in found if not role.side]
    layered = [role for role in roles if role.layers and role.part in ("text", "mtp")]
    outside = [role for role in roles if not role.layers and role.part in ("text", "mtp")]
    if layered:
        yield f"{_count(len(layered), f'{word} tensor role')} per layer"
    if outside:
        yield f"{_count(len(outside), f'{word} tensor role')} outside the layers"
    beside: dict[str, int] = {}
    for role in roles:
        if role.part not in ("text", "mtp"):
            beside[role.part] = beside.get(role.part, 0) + 1
    for part, number in beside.items():
        yield f"{_count(number, f'{word} tensor role')} in {part}"


def _count(number: int, noun: str) -> str:
    word = _WORDS[number] if number < len(_WORDS) else f"{number:,}"
    return f"{word} {noun}{'' if number == 1 else 's'}"


def header_dtype(short: str) -> str:
    """The name that headers and publishers use, `BF16` for bf16; a packed one as it is."""
    return "+".join(_SHORT.get(part, part) for part in short.split("+"))


def _or_none(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value) or "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "none" if value in (None, "") else f"{value}"

"""The parameter distribution: a row for every layer and role and for every part outside the layers."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from ..finding import Finding, Subject, make_finding
from .activations import role_shapes
from .communication import by_direction, primitives_of
from .layouts import parse_layout, usual_layouts
from .pieces import Piece, pieces_of
from .rank_memory import Model, memory_of
from .record import Layer
from .record_distribution import Distribution, LayoutMemory, Share
from .remarks import routed_experts
from .seen import Part, Seen
from .tied_embeddings import stored_tied

_ROLE_ORDER = (
    "embedding", "norm", "attention", "router", "expert", "shared_expert", "dense_mlp", "head", "buffer",
    "aux", "unknown", "mtp", "vision", "projector",
)  # fmt: skip
_PART_ORDER = ("text", "mtp", "vision", "projector", "audio")


def distribution(seen: Seen) -> Part:
    """The table, what splitting the model makes it exchange, and memory per rank."""
    pieces = pieces_of(seen.known)
    basis = "tensors" if seen.counted else "implied" if pieces else "config"
    rows = _rows(seen, pieces)
    roles = [role for role in _ROLE_ORDER if any(row.role == role for row in rows)]
    primitives = primitives_of(seen.facts, roles)
    names = by_direction(primitives)
    held = [row.model_copy(update={"communication": names.get(row.role, {})}) for row in rows]
    experts = routed_experts(seen)
    quantization = seen.declared.normal or seen.observed
    model = Model(seen.facts, seen.layers, pieces, experts, quantization)
    asked = [parse_layout(text) for text in seen.layouts]
    memory = [memory_of(model, layout) for layout in asked or usual_layouts(experts)]
    if not seen.layers:
        memory = []
    return Part(
        fields={"distribution": Distribution(basis=basis, rows=held, primitives=primitives, memory=memory)},
        findings=_findings(seen.release.model, memory) if asked else (),
        sources={"/distribution": _SOURCES[basis]},
    )


_SOURCES = {
    "tensors": "computed:headers x config.json; splits by tensor names, see docs/inventory.md",
    "implied": "computed:tensors that config.json implies; splits by tensor names, see docs/inventory.md",
    "config": "computed:config.json alone; no tensor is known",
}


def _rows(seen: Seen, pieces: Sequence[Piece]) -> Sequence[Share]:
    """Embedding first, then the layers, then what lies behind them and beside the text model."""
    groups: dict[tuple[str, str, str], list[Piece]] = {}
    for piece in pieces:
        groups.setdefault((piece.part, piece.name, piece.owner), []).append(piece)
    keys = [*groups, *_bare_keys(seen, groups)]
    layers = {layer.name: layer for layer in seen.layers}
    order = {layer.name: number for number, layer in enumerate(seen.layers)}

    def place(key: tuple[str, str, str]) -> tuple[int, int, str, int, int]:
        part, name, role = key
        before = part == "text" and not name and role == "embedding"
        inside = order.get(name, len(order)) if name else len(order)
        held = groups.get(key)
        index = (held[0].index if held else None) or 0
        stack = name.rpartition(".")[0] if name else "~"
        return (_PART_ORDER.index(part), -1 if before else inside, stack, index, _ROLE_ORDER.index(role))

    active = _active(seen, pieces)
    found = [
        _row(seen, key, groups.get(key, ()), layers.get(key[1]), active) for key in sorted(keys, key=place)
    ]
    return _with_state(found, layers)


def _bare_keys(seen: Seen, groups: Mapping[tuple[str, str, str], object]) -> Iterable[tuple[str, str, str]]:
    """Roles of layers of which no tensor is known: state and shapes follow from the config."""
    named = {name for _, name, _ in groups}
    for layer in seen.layers:
        if layer.name not in named:
            roles = ["attention"] if layer.kind else []
            roles += ["router", "expert"] if layer.feed_forward == "moe" else []
            roles += ["dense_mlp"] if layer.feed_forward == "dense" else []
            yield from (("text", layer.name, role) for role in roles)


def _row(
    seen: Seen,
    key: tuple[str, str, str],
    pieces: Sequence[Piece],
    layer: Layer | None,
    active: Mapping[tuple[str, str], int],
) -> Share:
    part, name, role = key
    index = layer.index if layer else pieces[0].index if pieces else None
    kind = layer.kind if layer else ""
    shapes = role_shapes(seen.facts, part, role, index or 0, kind)
    return Share(
        part=part,
        name=name or _common_path(pieces),
        index=index,
        kind=kind,
        feed_forward=layer.feed_forward if layer else "",
        role=role,
        tensors=sum(piece.count for piece in pieces),
        params=sum(piece.params for piece in pieces),
        active_params=active.get((name, role), 0) if part == "text" else 0,
        bytes=sum(piece.bytes for piece in pieces),
        input=shapes.input,
        inner=shapes.inner,
        output=shapes.output,
    )


def _with_state(rows: Sequence[Share], layers: Mapping[str, Layer]) -> Sequence[Share]:
    """State stands with the attention of its layer, or with the layer's first row where it has none."""
    holders: dict[str, int] = {}
    for number, row in enumerate(rows):
        if row.name in layers and row.part == "text" and (row.name not in holders or row.role == "attention"):
            holders[row.name] = number
    held = list(rows)
    for name, number in holders.items():
        layer = layers[name]
        state = {
            "kv_bytes_per_token": layer.kv_bytes_per_token,
            "window": layer.window,
            "state_bytes_per_sequence": layer.state_bytes_per_sequence,
        }
        held[number] = rows[number].model_copy(update=state)
    return held


def _active(seen: Seen, pieces: Sequence[Piece]) -> Mapping[tuple[str, str], int]:
    """Layer and role -> active parameters; together exactly those that the totals tell.

    Routed experts count top-k over their number. Where that is no whole number in a layer, the remainder is
    carried on to the next, so that the sum is exact.
    """
    experts, top_k = routed_experts(seen), seen.facts.architecture.top_k
    text = [piece for piece in pieces if piece.part == "text"]
    # Counted once as the head where both are one matrix, although both are stored.
    one_matrix = seen.facts.tied is True and stored_tied(seen.counted) is False
    found: dict[tuple[str, str], int] = {}
    routed = told = 0
    for piece in text:
        used = piece.params
        if piece.owner == "expert" and experts and top_k:
            routed += piece.params
            used = routed * top_k // experts - told
            told += used
        if piece.owner == "embedding" and one_matrix:
            used = 0
        key = (piece.name, piece.owner)
        found[key] = found.get(key, 0) + used
    return found


def _common_path(pieces: Sequence[Piece]) -> str:
    """The module that holds all of them: of one tensor its module, of several what their names share.

    Where they begin differently it is the first word that all have, else their modules one after another;
    never a pattern with placeholders.
    """
    names = [piece.pattern.split(".") for piece in pieces]
    if not names:
        return ""
    paths = [_without_placeholders(name[:-1] or name) for name in names]
    shared = paths[0]
    for path in paths[1:]:
        while shared and path[: len(shared)] != shared:
            shared = shared[:-1]
    if shared:
        return ".".join(shared)
    everywhere = set(paths[0]).intersection(*paths[1:])
    first = next((word for word in paths[0] if word in everywhere), "")
    return first or ", ".join(dict.fromkeys(".".join(path[:1]) for path in paths if path))


def _without_placeholders(path: Sequence[str]) -> Sequence[str]:
    return list(takewhile(lambda word: not word.startswith("{"), path))


def _findings(model: str, memory: Sequence[LayoutMemory]) -> Sequence[Finding]:
    return [
        make_finding(
            "INV090",
            Subject(kind="config", name=item.layout),
            f"the model cannot be split as {item.layout}: {item.reason}",
            evidence=[f"repro: day0 inventory {shlex.quote(model)} --layout {item.layout}"],
        )
        for item in memory
        if not item.possible
    ]

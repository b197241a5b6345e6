"""Figures of the inventory: where bytes and parameters are, by role and by layer."""

from __future__ import annotations

from collections.abc import Sequence

from day0.tasks.inventory.record import InventoryFacts, RoleSize

from ..words import bytes_text, count_text, plural
from .bars_figure import Bar, Part, layer_columns, stacked_bars
from .parts import Figure, Key

_PALETTE = 16  # colours of the stylesheet that can be told apart
_IMPLIED = {"headers": "", "implied": ", implied by the config", "none": ""}


def inventory_figures(facts: InventoryFacts) -> Sequence[Figure]:
    """Two bars by role, and a column a layer where there are several."""
    figures = [_role_figure(facts)] if facts.roles else []
    if len(facts.layers) > 1 and any(layer.bytes for layer in facts.layers):
        figures.append(_layer_figure(facts))
    return figures


def _role_figure(facts: InventoryFacts) -> Figure:
    roles = sorted(facts.roles.items(), key=lambda item: -item[1].bytes)
    roles = _folded(roles)
    css = {role: f"c{index}" for index, (role, _) in enumerate(roles)}
    bars = [
        Bar(
            "bytes",
            [Part(css[role], size.bytes, f"{role}: {bytes_text(size.bytes)}") for role, size in roles],
            bytes_text(sum(size.bytes for _, size in roles)),
        ),
        Bar(
            "parameters",
            [Part(css[role], size.params, f"{role}: {count_text(size.params)}") for role, size in roles],
            count_text(sum(size.params for _, size in roles)),
        ),
    ]
    return Figure(
        id="inventory--roles-figure",
        caption=f"Where the bytes and the parameters are, by role{_IMPLIED.get(facts.basis, '')}.",
        svg=stacked_bars(bars, f"Bytes and parameters of {plural(len(roles), 'role')}", margin=110),
        legend=[Key(f"k-{css[role]}", role) for role, _ in roles],
    )


def _folded(roles: Sequence[tuple[str, RoleSize]]) -> list[tuple[str, RoleSize]]:
    """The roles as they are where there is a colour for each; else the smallest as one."""
    if len(roles) <= _PALETTE:
        return list(roles)
    kept, rest = roles[: _PALETTE - 1], roles[_PALETTE - 1 :]
    params, stored = sum(size.params for _, size in rest), sum(size.bytes for _, size in rest)
    return [*kept, (f"{len(rest)} others", RoleSize(params=params, bytes=stored, dtypes={}))]


def _layer_figure(facts: InventoryFacts) -> Figure:
    kinds = list(dict.fromkeys((layer.kind, layer.feed_forward) for layer in facts.layers))
    css = {kind: f"c{min(index, _PALETTE - 1)}" for index, kind in enumerate(kinds)}
    most = _PALETTE if len(kinds) <= _PALETTE else _PALETTE - 1
    columns = [
        Part(
            css[layer.kind, layer.feed_forward],
            layer.bytes,
            f"{layer.name}: {layer.kind}, {layer.feed_forward}, {bytes_text(layer.bytes)}",
        )
        for layer in facts.layers
    ]
    return Figure(
        id="inventory--layers-figure",
        caption=f"Bytes of each layer{_IMPLIED.get(facts.basis, '') or ' as stored'}.",
        svg=layer_columns(columns, f"Bytes of {len(columns)} layers", bytes_text, "layer"),
        legend=[
            *(Key(f"k-{css[kind]}", ", ".join(filter(None, kind))) for kind in kinds[:most]),
            *([Key(f"k-c{most}", plural(len(kinds) - most, "other kind"))] if len(kinds) > most else []),
        ],
    )

"""Tensors of two inventories against each other: new and removed patterns, other dtypes, shapes, layers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from day0.adapters.base.dtypes import BITS

from .index_sets import format_indices, parse_indices
from .record import InventoryFacts
from .record_counts import TensorPattern
from .renamed_prefixes import match_prefixes
from .structural_change import DtypeChange, LayerChange, Renamed, ShapeChange, TensorRole

SIDES = ("aux", "buffer")
_OUTSIDE = -1
_LAYERED = ("text", "mtp")
# Compressed-tensors, GPTQ and AWQ, mxfp4 as the names of packed weights have it.
_PACKED = re.compile(r"_packed$|(?<=\.)q(?=weight$)|(?<=_proj)_blocks$")


@dataclass
class TensorChanges:
    """What differs between the tensors of two inventories."""

    renamed: Sequence[Renamed] = ()
    new: list[TensorRole] = field(default_factory=list)
    removed: list[TensorRole] = field(default_factory=list)
    dtypes: list[DtypeChange] = field(default_factory=list)
    shapes: list[ShapeChange] = field(default_factory=list)
    placed: list[LayerChange] = field(default_factory=list)


@dataclass(frozen=True)
class _Held:
    """What one layer holds of a pattern; several rows only where dtypes or shapes are mixed in it."""

    rows: tuple[tuple[str, tuple[int, ...], int], ...]

    @property
    def dtypes(self) -> str:
        return "+".join(dict.fromkeys(dtype for dtype, _, _ in self.rows))

    @property
    def packed(self) -> bool:
        """Whether its shapes are those of words and not of weights."""
        return any(dtype in ("int32", "uint8", "uint32") or "(" in dtype for dtype, _, _ in self.rows)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(shape for _, shape, _ in self.rows)

    @property
    def tensors(self) -> int:
        return sum(count for _, _, count in self.rows)


def tensor_changes(before: InventoryFacts, after: InventoryFacts) -> TensorChanges:
    """Everything that differs, matched by name and by prefixes that were renamed."""
    announced = one_is_announced(before, after)
    earlier_rows, later_rows = (
        [
            _as_weights(row) if announced else _plainly_named(row)
            for row in _comparable(facts, announced, other)
        ]
        for facts, other in ((before, after), (after, before))
    )
    renamed, prefixes = match_prefixes(earlier_rows, later_rows)
    earlier = _by_name(earlier_rows, renamed)
    later = _by_name(later_rows, {})
    changes = TensorChanges(renamed=prefixes)
    changes.new = [_role(rows, name, after) for name, rows in later.items() if name not in earlier]
    changes.removed = [_role(rows, name, before) for name, rows in earlier.items() if name not in later]
    dtypes: dict[tuple[str, str, str], dict[str, set[int]]] = {}
    moved: dict[tuple[str, str, str], list[str]] = {}
    for name in (name for name in later if name in earlier):
        _compare(name, earlier[name], later[name], dtypes, moved, changes.shapes)
    changes.dtypes = [
        DtypeChange(
            role=role,
            before=old,
            after=new,
            layers=_text(set().union(*patterns.values())),
            patterns=tuple(patterns),
        )
        for (role, old, new), patterns in dtypes.items()
    ]
    changes.placed = [
        LayerChange(what=what, before=old, after=new, patterns=tuple(patterns))
        for (what, old, new), patterns in moved.items()
    ]
    return changes


def rows_of(facts: InventoryFacts) -> Sequence[TensorPattern]:
    """The tensors, or those that a bare config implies where they were worked out."""
    return facts.patterns or facts.implied.patterns


def one_is_announced(before: InventoryFacts, after: InventoryFacts) -> bool:
    """Whether exactly one of the two is a config alone, of which only what it implies can be compared."""
    return (before.basis == "headers") != (after.basis == "headers")


def _comparable(facts: InventoryFacts, announced: bool, other: InventoryFacts) -> Iterable[TensorPattern]:
    """All rows; against a config alone without what no config implies."""
    if not announced or facts.basis != "headers":
        return rows_of(facts)
    return [row for row in facts.patterns if row.role not in SIDES and row.part not in left_out_parts(other)]


def left_out_parts(facts: InventoryFacts) -> Sequence[str]:
    """Parts that the config declares and the class that was built has not."""
    return ("mtp",) if facts.implied.left_out else ()


def _plainly_named(row: TensorPattern) -> TensorPattern:
    """A packed weight under the name of the plain one, so that a new packing is no new role."""
    dtype = weight_dtype(row)
    told = f"{dtype} (packed)" if dtype != row.dtype else dtype
    return row.model_copy(update={"pattern": _PACKED.sub("", row.pattern), "dtype": told})


def _as_weights(row: TensorPattern) -> TensorPattern:
    """A stored or implied weight as the model has it: unpacked, whichever way it is turned."""
    shape = tuple(sorted(row.logical_shape or row.shape))
    named = _plainly_named(row).pattern
    return row.model_copy(update={"pattern": named, "dtype": weight_dtype(row), "shape": shape})


def weight_dtype(row: TensorPattern) -> str:
    """Dtype of the weights that the elements stand for: `int4` of int32 words that hold eight each."""
    held = BITS.get(row.dtype, 0) * row.tensors * prod(row.shape)
    if not row.packing or not row.params or row.dtype in ("int4", "fp4_e2m1"):
        return row.dtype
    bits = round(held / row.params)
    if bits == BITS.get(row.dtype, 0):
        return row.dtype
    if row.pattern.endswith("_blocks") or "fp4" in row.packing.lower():
        return "fp4_e2m1"
    return f"int{bits}"


def _by_name(
    rows: Iterable[TensorPattern], renamed: Mapping[tuple[str, str], str]
) -> dict[str, list[TensorPattern]]:
    """Rows under the later names; layers of multi-token prediction go with the layers that they resemble."""
    layered = {name: new for (part, name), new in renamed.items() if part in _LAYERED}
    found: dict[str, list[TensorPattern]] = {}
    for row in rows:
        alike = layered.get(row.pattern, row.pattern) if row.part in _LAYERED else row.pattern
        found.setdefault(renamed.get((row.part, row.pattern), alike), []).append(row)
    return found


def _role(rows: Sequence[TensorPattern], name: str, facts: InventoryFacts) -> TensorRole:
    first = rows[0]
    indices = {index for row in rows for index in _indices(row)} - {_OUTSIDE}
    kinds = {
        " ".join(filter(None, (layer.kind, layer.feed_forward)))
        for layer in facts.layers
        if layer.index in indices and first.part == "text"
    }
    return TensorRole(
        pattern=name,
        role=first.owner if first.role in SIDES else first.role,
        part=first.part,
        layers=format_indices(indices),
        kinds=sorted(kinds - {""}),
        dtypes=list(dict.fromkeys(row.dtype for row in rows)),
        shapes=list(dict.fromkeys(tuple(row.shape) for row in rows)),
        tensors=sum(row.tensors for row in rows),
        bytes=sum(row.bytes for row in rows),
        side=first.role in SIDES,
    )


def _compare(
    name: str,
    before: Sequence[TensorPattern],
    after: Sequence[TensorPattern],
    dtypes: dict[tuple[str, str, str], dict[str, set[int]]],
    moved: dict[tuple[str, str, str], list[str]],
    shapes: list[ShapeChange],
) -> None:
    """Notes what differs in one pattern that both have."""
    old, new, roles = _layers(before), _layers(after), _roles(after)
    if set(old) != set(new):
        moved.setdefault(("layers", _text(set(old)), _text(set(new))), []).append(name)
    reshaped: dict[tuple[tuple[int, ...], tuple[int, ...]], set[int]] = {}
    numbers: set[tuple[int, int]] = set()
    for index in (index for index in new if index in old):
        if old[index].dtypes != new[index].dtypes:
            key = (roles[index], old[index].dtypes, new[index].dtypes)
            dtypes.setdefault(key, {}).setdefault(name, set()).add(index)
        if old[index].shapes != new[index].shapes and not (old[index].packed or new[index].packed):
            reshaped.setdefault((old[index].shapes[0], new[index].shapes[0]), set()).add(index)
        if old[index].tensors != new[index].tensors:
            numbers.add((old[index].tensors, new[index].tensors))
    for was, now in sorted(numbers):
        moved.setdefault(("tensors a layer", str(was), str(now)), []).append(name)
    role = next(iter(roles.values()))
    shapes += [
        ShapeChange(pattern=name, role=role, layers=_text(indices), before=was, after=now)
        for (was, now), indices in reshaped.items()
    ]


def _layers(rows: Sequence[TensorPattern]) -> dict[int, _Held]:
    held: dict[int, list[tuple[str, tuple[int, ...], int]]] = {}
    for row in rows:
        indices = _indices(row)
        for index in indices:
            held.setdefault(index, []).append((row.dtype, tuple(row.shape), row.tensors // len(indices)))
    return {index: _Held(tuple(sorted(found))) for index, found in held.items()}


def _roles(rows: Sequence[TensorPattern]) -> dict[int, str]:
    """Layer -> role; multi-token prediction under the role that the same name has in the text model."""
    plain = next((row for row in rows if row.part == "text"), rows[0])
    role = f"scale of {plain.owner}" if plain.role == "aux" else plain.role
    return {index: role for row in rows for index in _indices(row)}


def _indices(row: TensorPattern) -> Sequence[int]:
    """Layers of a row; a record from a file may claim more than it has tensors, which is not followed."""
    spans = [part.partition(":")[0].partition("-") for part in row.layers.split(",") if part]
    widest = max((int(last or first) - int(first) for first, _, last in spans), default=0)
    if not row.layers or widest > 64 * max(1, row.tensors):
        return (_OUTSIDE,)
    return parse_indices(row.layers)


def _text(indices: set[int]) -> str:
    return format_indices(indices - {_OUTSIDE})

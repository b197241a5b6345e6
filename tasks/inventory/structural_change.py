"""What differs between two inventories, as values; the structural diff makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from day0.adapters.base.values import Value


class Renamed(Value):
    """A module path under which the same tensors go by another name.

    Attributes:
        before: leading part of the earlier names; empty for the start of the name.
        after: leading part of the later names.
        patterns: how many patterns it explains.
    """

    before: str
    after: str
    patterns: int


class TensorRole(Value):
    """A tensor pattern that only one of the two has.

    Attributes:
        pattern: of the names, by the later release's prefixes.
        role: word of the design's vocabulary.
        part: `text`, `mtp`, `vision`, `projector` or `audio`.
        layers: exact set of layer indices; empty outside the layers.
        kinds: what these layers are, e.g. `mla moe`.
        dtypes: of the weights; `int4 (packed)` where the stored elements hold several.
        shapes: of one tensor each.
        tensors: how many.
        bytes: of all of them.
        side: whether it is a side tensor (scale, zero point) or buffer of a weight.
    """

    pattern: str
    role: str
    part: str
    layers: str
    kinds: Sequence[str] = ()
    dtypes: Sequence[str]
    shapes: Sequence[Sequence[int]]
    tensors: int
    bytes: int
    side: bool = False


class DtypeChange(Value):
    """Tensors of one role that both have, stored in another dtype.

    Attributes:
        role: word of the design's vocabulary; of side tensors the role that they serve, as `scale of expert`.
        before: short name, of the weights: `int4 (packed)` where the stored elements hold several.
        after: short name.
        layers: exact set; empty outside the layers.
        patterns: of the names.
    """

    role: str
    before: str
    after: str
    layers: str
    patterns: Sequence[str]


class ShapeChange(Value):
    """Tensors of one pattern that both have, of another shape."""

    pattern: str
    role: str
    layers: str
    before: Sequence[int]
    after: Sequence[int]


class LayerChange(Value):
    """Patterns that both have, on other layers or another number of times in each.

    Attributes:
        before: exact set of layers, or tensors a layer.
        after: the same of the later.
        what: `layers` or `tensors a layer`.
        patterns: of the names.
    """

    what: str
    before: str
    after: str
    patterns: Sequence[str]


class Changed(Value):
    """One fact that differs.

    Attributes:
        topic: `architecture`, `layers`, `quantization`, `experts`, `precision`, `tokenizer`, `code`,
            `support`, `totals`, `config`, `weights` or `files`.
        name: of the fact, a JSON pointer into config.json, or `content of FILE` with its hashes.
        before: None where there was none.
        after: None where it is gone.
    """

    topic: str
    name: str
    before: Any = None
    after: Any = None


class StructuralDiff(Value):
    """What is structurally new in a release, what matters most to a bring-up first.

    Attributes:
        before: the earlier, `MODEL at REVISION`.
        after: the later.
        same: whether nothing at all differs.
        headline: one sentence.
        renamed: prefixes that were taken for the same.
        new: tensor patterns that only the later has.
        removed: those that only the earlier has.
        dtypes: role by role.
        shapes: pattern by pattern.
        placed: layers and numbers a layer.
        changed: everything else, by topic in order of weight.
        more_config: config keys that differ beyond those listed.
        uncompared: weight files that both have and of which no hash is known on both sides.
    """

    before: str
    after: str
    same: bool
    headline: str
    renamed: Sequence[Renamed] = ()
    new: Sequence[TensorRole] = ()
    removed: Sequence[TensorRole] = ()
    dtypes: Sequence[DtypeChange] = ()
    shapes: Sequence[ShapeChange] = ()
    placed: Sequence[LayerChange] = ()
    changed: Sequence[Changed] = ()
    more_config: int = 0
    uncompared: Sequence[str] = ()

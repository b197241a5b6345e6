"""In which order the weights of a release should come, so that the minimal run can start early.

Embedding, the first layer of each kind (attention with feed-forward), the final norm and whatever else stands
outside the layers, the head; then the remaining layers in order; then multi-token prediction, and vision,
audio and their projectors last. A file is verified as soon as all of it is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from day0.adapters.base.checkpoint import Checkpoint, tensor_blocks
from day0.adapters.base.source import SourceFile
from day0.adapters.sources.ranges import joined
from day0.adapters.sources.staging import Wanted

from .pattern_lookup import PatternLookup
from .record import InventoryFacts, TensorPattern

_EMBEDDING, _FIRST, _OUTSIDE, _HEAD, _LAYERS, _MTP, _OTHERS, _UNKNOWN = range(8)
MINIMAL = _HEAD
"""The last step that the minimal run waits for."""
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".onnx_data")
_MAX_OTHER = 100 * 2**20  # bytes; no tokenizer or config is larger, what is larger is not needed to run

Step = tuple[int, float]
"""Group, and place within the group."""


def staging_order(
    checkpoint: Checkpoint, facts: InventoryFacts, files: Iterable[SourceFile] = ()
) -> Sequence[Wanted]:
    """What to stage, first things first: ranges of tensors, then every file of the canonical set whole.

    Args:
        checkpoint: gives each tensor its place.
        facts: patterns with their roles, layers with their kinds.
        files: of the release; small ones that are no weights (config, tokenizer, code) come before all else.
    """
    steps = tensor_steps(checkpoint, facts)
    by_step: dict[Step, dict[str, list[tuple[int, int]]]] = {}
    shards = set(checkpoint.shards)
    for block in tensor_blocks(checkpoint.tensors):
        if block.file not in shards:
            continue
        for name, kind, start in zip(block.names, block.kinds, block.starts, strict=True):
            places = by_step.setdefault(steps[name], {}).setdefault(block.file, [])
            places.append((start, start + kind.bytes))
    small = [file.path for file in files if _is_small(file)]
    ranges = [
        Wanted(file, joined(places)) for _, held in sorted(by_step.items()) for file, places in held.items()
    ]
    return [*map(Wanted, small), *ranges, *map(Wanted, checkpoint.shards)]


def tensor_steps(checkpoint: Checkpoint, facts: InventoryFacts) -> Mapping[str, Step]:
    """Tensor -> when it is due."""
    lookup, first = PatternLookup(facts.patterns), _first_of_kind(facts)
    return {name: _step(*lookup.find(name), first) for name in checkpoint.tensors}


def minimal_tensors(checkpoint: Checkpoint, facts: InventoryFacts) -> Sequence[str]:
    """The tensors that the minimal run waits for."""
    return [name for name, (group, _) in tensor_steps(checkpoint, facts).items() if group <= MINIMAL]


def _first_of_kind(facts: InventoryFacts) -> Mapping[int, int]:
    """Index of the first layer of each kind -> the kind's place among the kinds."""
    first: dict[tuple[str, str], int] = {}
    for layer in facts.layers:
        kind = (layer.kind, layer.feed_forward)
        first[kind] = min(first.get(kind, layer.index), layer.index)
    return {index: place for place, index in enumerate(sorted(set(first.values())))}


def _step(pattern: TensorPattern | None, layer: int | None, first: Mapping[int, int]) -> Step:
    if pattern is None:
        return _UNKNOWN, 0.0
    order = float(layer) if layer is not None else inf
    if pattern.part != "text":
        return (_MTP, order) if pattern.part == "mtp" else (_OTHERS, order)
    if layer is not None:
        return (_FIRST, float(first[layer])) if layer in first else (_LAYERS, order)
    return {"embedding": _EMBEDDING, "head": _HEAD}.get(pattern.owner, _OUTSIDE), 0.0


def _is_small(file: SourceFile) -> bool:
    return file.size <= _MAX_OTHER and not file.path.lower().endswith(_WEIGHTS)

"""A release cut down to the first layer of each kind, as a view on the real weights and as a folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from day0.adapters.base.checkpoint import (
    Checkpoint,
    IndexSummary,
    TensorFault,
    TensorInfo,
    fetch_tensors,
)
from day0.adapters.base.errors import SkeletonError
from day0.adapters.base.release import Release
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.values import Anomaly, digest
from day0.adapters.checkpoints.writer import write_checkpoint, write_whole
from day0.adapters.models.skeleton_store import load_or_build_skeleton
from day0_worker.modules import with_floats

from .cut_config import changes, cut_config, layer_count
from .minimal.record import CutRelease

CUT_VERSION = 1
"""Raised whenever another folder may come out of the same release."""

_COPIED = re.compile(
    r"(tokenizer|vocab|merges|special_tokens|added_tokens|chat_template|generation_config|spiece|sentencepiece)"
    r"[A-Za-z0-9_.-]*\.(json|txt|model|jinja)"
)
_MAX_COPIED_BYTES = 256 * 2**20
_SHARD_BYTES = 4 * 2**30


@dataclass(frozen=True)
class Cut:
    """The cut-down release and how it came about.

    Attributes:
        release: config and tensors of the layers kept, renumbered; its bytes are those of the whole release.
        skeleton: of that release.
        layers: original index of each of its layers.
        names: its node names -> the names in the whole model.
        key: digest of what the folder is made from.
    """

    release: Release
    skeleton: Skeleton
    layers: Sequence[int]
    names: Mapping[str, str]
    key: str

    def summary(self, config: Mapping[str, Any]) -> CutRelease:
        """For the record; `config` is the whole release's."""
        tensors = self.release.checkpoint.tensors
        return CutRelease(
            layers=self.layers,
            tensors=len(tensors),
            bytes=sum(info.bytes for info in tensors.values()),
            config_changes=changes(config, self.release.config),
        )


class RenamedCheckpoint:
    """A checkpoint that shows some tensors of another one, under other names.

    Args:
        whole: holds the bytes.
        names: name here -> name there.
    """

    def __init__(self, whole: Checkpoint, names: Mapping[str, str]) -> None:
        self._whole, self._names = whole, names
        self.format = whole.format
        self.anomalies: Sequence[Anomaly] = ()
        self.faults: Sequence[TensorFault] = ()
        self.index: IndexSummary | None = None
        self.layout: Mapping[str, str] = {}
        self.tensors: Mapping[str, TensorInfo] = {
            new: whole.tensors[old].model_copy(update={"name": new}) for new, old in names.items()
        }

    @property
    def shards(self) -> Sequence[str]:
        """See `Checkpoint`."""
        return self._whole.shards

    @property
    def header_bytes(self) -> int:
        """See `Checkpoint`."""
        return self._whole.header_bytes

    def identity(self, name: str) -> str:
        """See `Checkpoint`."""
        return self._whole.identity(self._names[name])

    def path(self, name: str) -> Path:
        """See `Checkpoint`."""
        return self._whole.path(self._names[name])

    def fetch(self, names: Iterable[str]) -> None:
        """See `fetch_tensors`."""
        fetch_tensors(self._whole, [self._names[name] for name in names])

    def read(self, name: str) -> bytes:
        """See `Checkpoint`."""
        return self._whole.read(self._names[name])


def cut_release(release: Release, skeleton: Skeleton, store: RunStore) -> Cut:
    """The release with the first layer of each kind or, where that changes one, all up to the last of them.

    Some families derive a layer's kind from its index by rules that no config key can restate. So the cut is
    checked: its own skeleton must give each layer the kind that it has in the whole model.

    Raises:
        SkeletonError: E450, the config does not say how many layers there are, or no cut keeps the kinds.
    """
    layers = {_index(node.name): node for node in skeleton.nodes if node.role == "layer"}
    first = {node.kind: index for index, node in sorted(layers.items(), reverse=True)}
    sparse = sorted(first.values())
    if not sparse:
        raise SkeletonError("the model has no decoder layers to cut", code="E450")
    reason = ""
    for kept in dict.fromkeys((tuple(sparse), tuple(range(sparse[-1] + 1)))):
        try:
            cut = _cut(release, skeleton, store, kept)
        except (KeyError, SkeletonError) as error:
            reason = str(error)
            continue
        new = {_index(node.name): node for node in cut.skeleton.nodes if node.role == "layer"}
        if [new[index].kind for index in sorted(new)] == [layers[index].kind for index in kept]:
            return cut
        reason = "layers change their kind when others are left out"
    raise SkeletonError(f"the model cannot be cut down: {reason}", code="E450")


def tensors_read(release: Release, skeleton: Skeleton) -> Sequence[str]:
    """Names of all tensors that any cut of this release may hold; all where nothing can be cut.

    Which of the two cuts keeps the kinds is known only once both are built, so this covers the longer one. It
    imports neither torch nor transformers.
    """
    layers = {_index(node.name): node.kind for node in skeleton.nodes if node.role == "layer"}
    first = {kind: index for index, kind in sorted(layers.items(), reverse=True)}
    if not first:
        return tuple(release.checkpoint.tensors)
    kept = [index for index in sorted(layers) if index <= max(first.values())]
    return tuple(_names(release.checkpoint, skeleton, kept).values())


def write_cut(cut: Cut, folder: Path) -> None:
    """Writes the cut-down release in HF format, unless it is there already.

    Tensors are streamed, one in memory at a time, quantised ones as they are stored. config.json comes last:
    a folder that has it is complete.
    """
    if (folder / "config.json").is_file():
        return
    checkpoint = cut.release.checkpoint
    fetch_tensors(checkpoint, checkpoint.tensors)
    total = sum(info.bytes for info in checkpoint.tensors.values())
    write_checkpoint(
        folder, _stream(checkpoint), shards=min(len(checkpoint.tensors), 1 + total // _SHARD_BYTES)
    )
    source = cut.release.source
    for file in source.files() if source is not None else ():
        if _COPIED.fullmatch(file.path) and file.size <= _MAX_COPIED_BYTES and source is not None:
            write_whole(folder / file.path, source.read(file.path))
    write_whole(folder / "config.json", json.dumps(cut.release.config, indent=2).encode())


def _stream(checkpoint: Checkpoint) -> Iterator[tuple[str, str, Sequence[int], bytes]]:
    for name, info in checkpoint.tensors.items():
        yield name, info.dtype, info.shape, checkpoint.read(name)


def _cut(release: Release, skeleton: Skeleton, store: RunStore, kept: Sequence[int]) -> Cut:
    nodes = {_index(node.name): node for node in skeleton.nodes if node.role == "layer"}
    moe = [index for index in kept if nodes[index].feed_forward == "moe"]
    config = cut_config(release.config, kept, moe=moe, spelt=_spelt(skeleton))
    layer_count(config)
    checkpoint = RenamedCheckpoint(release.checkpoint, _names(release.checkpoint, skeleton, kept))
    small = Release(release.model, release.source, config, checkpoint)
    prefix = nodes[kept[0]].name.rpartition(".")[0]
    return Cut(
        release=small,
        skeleton=load_or_build_skeleton(small, store),
        layers=tuple(kept),
        names={f"{prefix}.{new}": f"{prefix}.{old}" for new, old in enumerate(kept)},
        key=digest({"version": CUT_VERSION, "config": small.config_digest, "weights": small.weights_digest}),
    )


def _spelt(skeleton: Skeleton) -> Mapping[str, Any]:
    """The text part of the config as transformers completes it."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    parsed = CONFIG_MAPPING[skeleton.config["model_type"]].from_dict(with_floats(skeleton.config))
    completed: Mapping[str, Any] = parsed.get_text_config().to_dict()
    return completed


def _names(checkpoint: Checkpoint, skeleton: Skeleton, kept: Sequence[int]) -> dict[str, str]:
    """New name -> old name of each tensor of the layers kept, and of all that belong to no layer.

    A layer's tensors are found by the stem (`model.layers.3.`) that the tensors of its recipes share, so that
    side tensors which no recipe reads come along.
    """
    stems = _stems(skeleton)
    lists = {stem[: -len(f"{index}.")] for stem, index in stems.items()}
    renumbered = {old: new for new, old in enumerate(kept)}
    names: dict[str, str] = {}
    for name in checkpoint.tensors:
        head = next((start for start in lists if name.startswith(start)), None)
        if head is None:
            names[name] = name
            continue
        number, _, rest = name[len(head) :].partition(".")
        if number.isdecimal() and int(number) in renumbered:
            names[f"{head}{renumbered[int(number)]}.{rest}"] = name
        elif not number.isdecimal():
            names[name] = name
    return names


def _stems(skeleton: Skeleton) -> dict[str, int]:
    """`model.layers.3.` -> 3, as the checkpoint writes them."""
    stems: dict[str, int] = {}
    for node in skeleton.nodes:
        if node.role != "layer":
            continue
        index = _index(node.name)
        for recipe in node.weights.values():
            for tensor in recipe.tensors:
                found = re.match(rf"(?:[^.]+\.)*?{index}\.", tensor)
                if found is not None:
                    stems[found.group()] = index
    return stems


def _index(name: str) -> int:
    return int(name.rpartition(".")[2])

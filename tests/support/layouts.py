"""The three real tensor layouts as checkpoints in memory: headers without a file behind them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from day0.adapters.base.checkpoint import IndexSummary, TensorBlock, TensorFault, TensorInfo, TensorKind
from day0.adapters.base.dtypes import FROM_SAFETENSORS, num_bytes
from day0.adapters.base.release import Release
from day0.adapters.base.values import Anomaly
from day0.adapters.checkpoints.table import TensorTable

FIXTURES = Path(__file__).parent.parent / "fixtures"
BLOCKS = {"q4_1": 20, "q8_0": 34}  # bytes of 32 weights, llama.cpp `ggml-common.h`
RELEASES = ("deepseek-ai--DeepSeek-R1", "moonshotai--Kimi-K2.5", "openai--gpt-oss-20b")


def make_tensor(name: str, dtype: str, shape: Sequence[int], file: str = "model.safetensors") -> TensorInfo:
    """A tensor as a header would declare it."""
    size = BLOCKS[dtype] * prod(shape) // 32 if dtype in BLOCKS else num_bytes(dtype, prod(shape))
    return TensorInfo(name=name, dtype=dtype, shape=tuple(shape), file=file, offset=0, bytes=size)


@dataclass
class HeaderCheckpoint:
    """A checkpoint of which only headers exist."""

    tensors: Mapping[str, TensorInfo]
    shards: Sequence[str] = ("model.safetensors",)
    format: str = "safetensors"
    anomalies: Sequence[Anomaly] = ()
    faults: Sequence[TensorFault] = ()
    index: IndexSummary | None = None
    layout: Mapping[str, str] = field(default_factory=dict)
    header_bytes: int = 0
    reads: list[str] = field(default_factory=list)

    def identity(self, name: str) -> str:
        return f"fixed:{name}"

    def path(self, name: str) -> Path:
        raise FileNotFoundError(name)

    def read(self, name: str) -> bytes:
        raise FileNotFoundError(name)


def make_release(
    config: Mapping[str, Any], tensors: Mapping[str, tuple[str, Sequence[int]]], **checkpoint: Any
) -> Release:
    """A release of these tensors, `name -> (dtype, shape)`, without files."""
    infos = {name: make_tensor(name, dtype, shape) for name, (dtype, shape) in tensors.items()}
    held = HeaderCheckpoint(infos, **checkpoint)
    if not infos and "format" not in checkpoint:
        held.format, held.shards = "none", ()
    return Release(model="test", source=None, config=config, checkpoint=held)


def expand_layout(name: str) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Name, short dtype and shape of every tensor of a real release."""
    for line in (FIXTURES / "layouts" / f"{name}.tsv").read_text().splitlines():
        if line.startswith(("#", "name\t")):
            continue
        pattern, layers, experts, shape, dtype = line.split("\t")
        kind, size = FROM_SAFETENSORS[dtype], tuple(json.loads(shape))
        for layer in _indices(layers):
            in_layer = pattern.replace("{l}", str(layer))
            for expert in _indices(experts):
                yield in_layer.replace("{e}", str(expert)), kind, size


def layout_release(name: str, config: Mapping[str, Any] | None = None) -> Release:
    """A real release from its layout and config (or another one), with its own number of shards."""
    tensors, shards = _layout_table(name)
    if config is None:
        config = json.loads((FIXTURES / "configs" / name / "config.json").read_text())
    return Release(model=name, source=None, config=dict(config), checkpoint=HeaderCheckpoint(tensors, shards))


@cache
def _layout_table(name: str) -> tuple[TensorTable, tuple[str, ...]]:
    shards = tuple(f"model-{number:05}.safetensors" for number in range(int(truth(name)["totals.shards"])))
    kinds: dict[tuple[str, tuple[int, ...]], TensorKind] = {}  # shared, as a header's own are
    rows = [
        (text, kinds.setdefault((dtype, shape), TensorKind(dtype, shape, num_bytes(dtype, prod(shape)))))
        for text, dtype, shape in expand_layout(name)
    ]
    held = [rows[number :: len(shards)] for number in range(len(shards))]
    return TensorTable(
        [
            TensorBlock(shard, [text for text, _ in part], [kind for _, kind in part], [0] * len(part))
            for shard, part in zip(shards, held, strict=True)
        ]
    ), shards


def truth(name: str) -> dict[str, int]:
    """The totals that must come out exactly, by their names in the JSON of the inventory."""
    rows = [line.split("\t") for line in (FIXTURES / "truth.tsv").read_text().splitlines()[1:]]
    return {quantity: int(value) for model, quantity, value in rows if model == name}


def _indices(text: str) -> Sequence[int | str]:
    if text == "-":
        return [""]
    found: list[int | str] = []
    for part in text.split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        found.extend(range(int(first), int(last or first) + 1, int(step or 1)))
    return found

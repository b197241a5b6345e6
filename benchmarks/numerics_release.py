"""DeepSeek-R1 with fewer layers, at full width: headers on disk, weights made as they are asked for.

The files have the true header and a hole for data (`support.raw_checkpoints`). Their bytes come out of blocks
in memory that are as long as nothing in the model, so that no two tensors are alike: fp8 and bf16 numbers of
a normal distribution, and block scales that give each matrix the spread of one over the root of its inputs,
with which activations stay near one.
"""

# mypy: disable-error-code="assignment, comparison-overlap"

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from support.layouts import FIXTURES, expand_layout
from support.raw_checkpoints import BYTES, write_index, write_sparse

MODEL = "deepseek-ai/DeepSeek-R1-cut"
SOURCE = "deepseek-ai--DeepSeek-R1"
SHARD_BYTES = 4_300_000_000  # as those of the release
_FP8_STD = 112.0  # the largest number of fp8 is four times it
_BLOCK = 67_000_002  # bytes; a multiple of no size in the model
_LETTERS = {"fp8_e4m3": "F8_E4M3", "bf16": "BF16", "fp32": "F32"}
Kind = tuple[str, float]
"""What stands in a tensor: `fp8`, `bf16`, `scale` or `ones`, and its spread."""


@dataclass(frozen=True)
class Piece:
    """Bytes `start` to `stop` of a file, all of one kind; none where they are the header."""

    start: int
    stop: int
    kind: Kind | None


def write_cut(folder: Path, layers: int, experts: int, vocabulary: int = 129_280) -> int:
    """Writes config, index and the headers of all shards, and returns the bytes of all tensors."""
    folder.mkdir(parents=True)
    config = json.loads((FIXTURES / "configs" / SOURCE / "config.json").read_text())
    config |= {
        "num_hidden_layers": layers,
        "first_k_dense_replace": 1,
        "n_routed_experts": experts,
        "vocab_size": vocabulary,
        "num_nextn_predict_layers": 0,
    }
    (folder / "config.json").write_text(json.dumps(config))
    shards: list[dict[str, tuple[str, Sequence[int]]]] = [{}]
    held = total = 0
    for name, dtype, shape in _tensors(layers, experts, vocabulary):
        size = BYTES[dtype] * math.prod(shape)
        if held + size > SHARD_BYTES:
            shards.append({})
            held = 0
        shards[-1][name] = (dtype, shape)
        held, total = held + size, total + size
    names = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    for file, shard in zip(names, shards, strict=True):
        # As safetensors writes them: wide dtypes first, then by name.
        ordered = sorted(shard, key=lambda name: (-BYTES[shard[name][0]], name))
        write_sparse(folder / file, {name: shard[name] for name in ordered})
    owner = {tensor: file for file, shard in zip(names, shards, strict=True) for tensor in shard}
    write_index(folder, owner, total)
    return total


def _tensors(layers: int, experts: int, vocabulary: int) -> Iterator[tuple[str, str, Sequence[int]]]:
    """Name, dtype and shape: of the embedding, of layer after layer, of norm and head."""
    every = [(name, _LETTERS[dtype], list(shape)) for name, dtype, shape in expand_layout(SOURCE)]
    by_layer: dict[str, list[tuple[str, str, list[int]]]] = {}
    for name, dtype, shape in every:
        layer = name.split(".")[2] if name.startswith("model.layers.") else ""
        by_layer.setdefault(layer, []).append((name, dtype, shape))
    loose = {
        name: (name, dtype, [vocabulary, *shape[1:]] if len(shape) > 1 else shape)
        for name, dtype, shape in by_layer[""]
    }
    yield loose["model.embed_tokens.weight"]
    for layer in range(layers):
        source = "0" if layer == 0 else "3"
        for name, dtype, shape in by_layer[source]:
            if ".experts." in name and int(name.split(".experts.")[1].split(".")[0]) >= experts:
                continue
            size = [experts, *shape[1:]] if ".mlp.gate." in name else shape
            yield name.replace(f"model.layers.{source}.", f"model.layers.{layer}."), dtype, size
    yield loose["model.norm.weight"]
    yield loose["lm_head.weight"]


def pieces_of(file: Path) -> list[Piece]:
    """What stands where in a shard."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        header = json.loads(opened.read(length))
    start = 8 + length
    pieces = [Piece(0, start, None)]
    for name, info in header.items():
        if name == "__metadata__":
            continue
        first, last = info["data_offsets"]
        pieces.append(Piece(start + first, start + last, _kind(name, info["shape"])))
    return sorted(pieces, key=lambda piece: piece.start)


def _kind(name: str, shape: Sequence[int]) -> Kind:
    if name.endswith("_scale_inv"):
        return "scale", 1 / (_FP8_STD * math.sqrt(128 * shape[1]))
    if "norm" in name:
        return "ones", 1.0
    if name.endswith("e_score_correction_bias"):
        return "scale", 0.01
    if "embed_tokens" in name:
        return "bf16", 1.0
    if name == "lm_head.weight" or ".mlp.gate." in name:
        return "bf16", 2 / math.sqrt(shape[1])
    return "fp8", _FP8_STD


def block_of(kind: Kind) -> bytes:
    """The bytes that tensors of a kind are cut out of."""
    what, spread = kind
    chance = np.random.default_rng([*what.encode(), round(spread * 1e9)])
    if what == "ones":
        return _bf16(np.ones(2**16, np.float32))
    if what == "scale":
        return (spread * chance.uniform(0.75, 1.25, 99_991)).astype(np.float32).tobytes()
    if what == "fp8":
        return _fp8(chance.standard_normal(_BLOCK, np.float32) * np.float32(spread))
    return _bf16(chance.standard_normal(_BLOCK // 2, np.float32) * np.float32(spread))


def _bf16(values: np.ndarray) -> bytes:
    return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def _fp8(values: np.ndarray) -> bytes:
    import torch

    return bytes(torch.from_numpy(values).clamp_(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).numpy())


class Blocks:
    """The blocks of all kinds, each in a file in memory of its own, made when it is first asked for."""

    def __init__(self) -> None:
        self._files: dict[Kind, tuple[int, int]] = {}

    def prepare(self, kinds: Sequence[Kind]) -> None:
        """Makes these."""
        for kind in kinds:
            if kind not in self._files:
                block = block_of(kind)
                descriptor = os.memfd_create("day0-bench-block")
                with os.fdopen(os.dup(descriptor), "wb") as file:
                    file.write(block)
                self._files[kind] = descriptor, len(block)

    def spans(self, kind: Kind, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Descriptor, offset and length of what stands at these bytes of a file."""
        descriptor, length = self._files[kind]
        while start < stop:
            offset = start % length
            size = min(stop - start, length - offset)
            yield descriptor, offset, size
            start += size

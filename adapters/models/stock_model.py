"""The release as transformers itself loads and runs it, in a process of its own.

The reference is held against it, so nothing of Day0's reading takes part: names, conversions and
dequantisation are transformers' own.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import CheckpointError, SourceError
from ..base.progress import Progress, silent
from ..base.release import Release
from ..base.skeleton import Skeleton
from .bounded_process import Bounds, ask_process

if TYPE_CHECKING:
    from torch import Tensor

MODULE = "day0.adapters.models.stock_worker"
STEP = "checking the reference"
SECONDS = 900.0
"""Loading and one forward take 8 s for SmolLM2-135M on two busy cores, mostly imports; a model of 2 billion
parameters, the largest that fits in 16 GiB as fp32 beside its files, reads and multiplies fifteen times as
much."""
PROCESS_BYTES = 2**30
"""Of the process before it holds a model: torch and transformers take 0.5 to 0.8 GB."""
_ANSWER = 2**20
_NOT_STOCK = frozenset(
    {
        "auto_map", "attn_implementation", "_attn_implementation", "_attn_implementation_internal",
        "experts_implementation", "_experts_implementation", "_experts_implementation_internal",
        "_name_or_path",
    }
)  # fmt: skip
"""Keys of a config that name repository code or kernels to fetch; they do not change what is computed."""


@dataclass(frozen=True)
class StockLogits:
    """What stock transformers gave.

    Attributes:
        logits: fp32 [length, vocabulary]; None where it gave none.
        reason: why it gave none, else empty.
        name: what computed, e.g. `transformers 5.24.0 from_pretrained fp32 eager`.
    """

    logits: Tensor | None
    reason: str
    name: str


def stock_logits(
    release: Release,
    skeleton: Skeleton,
    tokens: Sequence[int],
    memory: int,
    *,
    seconds: float = SECONDS,
    command: Sequence[str] = (sys.executable, "-m", MODULE),
    progress: Progress = silent,
) -> StockLogits:
    """Logits of one sequence by `from_pretrained` in fp32 with eager attention; raises nothing.

    Files of a remote release are fetched into the source's cache first.

    Args:
        release: with safetensors files.
        skeleton: of it; names the class and the size.
        tokens: token ids.
        memory: bytes that the process may take (PSS); where the estimate is beyond, nothing is started.
        seconds: after which it is killed.
        command: argv of the process.
        progress: told every second that it goes on.
    """
    name = f"{transformers_name()} from_pretrained fp32 eager"
    reason = not_possible(release, skeleton, len(tokens), memory)
    if reason:
        return StockLogits(None, reason, name)
    with tempfile.TemporaryDirectory(prefix="day0-stock-") as work:
        try:
            folder = laid_out(release, Path(work) / "release")
        except (SourceError, CheckpointError, OSError) as error:
            return StockLogits(None, f"its files cannot be laid out: {error}", name)
        question = {
            "folder": str(folder),
            "architecture": skeleton.architecture,
            "tokens": [int(token) for token in tokens],
            "out": str(Path(work) / "logits"),
        }
        bounds = Bounds(seconds, memory, _ANSWER, "loading the release by from_pretrained")
        lines, reason = ask_process(command, question, bounds, progress=progress, step=STEP)
        if reason or not lines:
            return StockLogits(None, reason or "it answered nothing", name)
        return _read(lines[0], Path(work) / "logits", len(tokens), name)


def fp32_bytes(skeleton: Skeleton) -> int:
    """Bytes of all parameters in fp32, tied ones counted once."""
    total = 0
    for node in skeleton.nodes:
        for name, recipe in node.weights.items():
            elements = 0 if name in node.tied else 1
            for dim in recipe.shape:
                elements *= dim
            total += 4 * elements
    return total


def not_possible(release: Release, skeleton: Skeleton, length: int, memory: int) -> str:
    """Why the process need not be started; empty where it may succeed."""
    if not transformers_name():
        return "transformers is not installed"
    if release.source is None or release.checkpoint.format != "safetensors":
        return f"from_pretrained is asked for safetensors only, the release is {release.checkpoint.format}"
    if release.config_file != "config.json":
        return f"the release has {release.config_file} in place of config.json"
    stored = sum(info.bytes for info in release.checkpoint.tensors.values())
    # The files are mapped while their tensors are converted, so both stand in memory side by side.
    needed = fp32_bytes(skeleton) + stored + PROCESS_BYTES + 8 * length * _vocabulary(skeleton.config)
    if needed > memory:
        return f"it would take about {needed / 2**30:.1f} GiB, {memory / 2**30:.1f} GiB may be used"
    return ""


def _vocabulary(config: Mapping[str, Any]) -> int:
    text = config.get("text_config")
    sizes = [part.get("vocab_size") for part in (config, text) if isinstance(part, Mapping)]
    return max((size for size in sizes if type(size) is int), default=0)


def laid_out(release: Release, folder: Path) -> Path:
    """A folder with the release's config, cleaned, and links to its weights: no code and no pickle in it."""
    assert release.source is not None
    folder.mkdir()
    config = {key: value for key, value in release.config.items() if key not in _NOT_STOCK}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    index = release.checkpoint.index
    for path in (*release.checkpoint.shards, *([index.path] if index else [])):
        link = folder / path
        if folder.resolve() not in link.resolve().parents:
            raise CheckpointError(f"{path!r} leads out of the release")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(release.source.local_path(path).absolute())
    return folder


def _read(answer: Any, file: Path, length: int, name: str) -> StockLogits:
    import torch

    if not isinstance(answer, dict) or "reason" in answer:
        said = answer.get("reason") if isinstance(answer, dict) else answer
        return StockLogits(None, str(said)[:400], name)
    shape = answer.get("shape")
    raw = bytearray(file.read_bytes()) if file.exists() else bytearray()
    if not (isinstance(shape, list) and len(shape) == 2 and shape[0] == length):
        return StockLogits(None, f"it gave logits of shape {shape} for {length} tokens", name)
    if len(raw) != 4 * shape[0] * shape[1]:
        return StockLogits(None, "its logits are cut off", name)
    return StockLogits(torch.frombuffer(raw, dtype=torch.float32).reshape(shape), "", name)


def transformers_name() -> str:
    """What is installed, e.g. `transformers 5.24.0`; empty where it is not."""
    try:
        return f"transformers {version('transformers')}"
    except PackageNotFoundError:
        return ""

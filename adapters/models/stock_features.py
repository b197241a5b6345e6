"""What stock transformers makes of an image, in a process of its own, as `stock_model` does of tokens."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from day0_worker import blobs

from ..base.errors import CheckpointError, SourceError
from ..base.progress import Progress, silent
from ..base.release import Release
from ..base.skeleton import Skeleton
from .bounded_process import Bounds, ask_process
from .stock_model import MODULE, SECONDS, STEP, laid_out, not_possible, transformers_name

if TYPE_CHECKING:
    from torch import Tensor

_ANSWER = 2**20


@dataclass(frozen=True)
class StockFeatures:
    """What stock transformers gave.

    Attributes:
        features: fp32, in their order; None where it gave none.
        reason: why it gave none, else empty.
        name: what computed, e.g. `transformers 5.24.0 from_pretrained fp32 eager`.
    """

    features: Sequence[Tensor] | None
    reason: str
    name: str


def stock_features(
    release: Release,
    skeleton: Skeleton,
    given: Mapping[str, Tensor],
    memory: int,
    *,
    seconds: float = SECONDS,
    command: Sequence[str] = (sys.executable, "-m", MODULE),
    progress: Progress = silent,
) -> StockFeatures:
    """Features of images by `from_pretrained` in fp32 with eager attention; raises nothing.

    Args:
        release: with safetensors files.
        skeleton: of what an image calls; `entry` names the function, the rest class and size.
        given: arguments of the function.
        memory: bytes that the process may take (PSS); where the estimate is beyond, nothing is started.
        seconds: after which it is killed.
        command: argv of the process.
        progress: told every second that it goes on.
    """
    name = f"{transformers_name()} from_pretrained fp32 eager"
    reason = not_possible(release, skeleton, 0, memory)
    if reason:
        return StockFeatures(None, reason, name)
    with tempfile.TemporaryDirectory(prefix="day0-stock-") as work:
        out, arguments = Path(work) / "features", Path(work) / "given"
        try:
            folder = laid_out(release, Path(work) / "release")
            arguments.write_bytes(b"".join(blobs.dump(given)))
        except (SourceError, CheckpointError, OSError) as error:
            return StockFeatures(None, f"its files cannot be laid out: {error}", name)
        question = {
            "folder": str(folder),
            "architecture": skeleton.architecture,
            "entry": skeleton.entry,
            "given": str(arguments),
            "out": str(out),
        }
        bounds = Bounds(seconds, memory, _ANSWER, "loading the release by from_pretrained")
        lines, reason = ask_process(command, question, bounds, progress=progress, step=STEP)
        if reason or not lines:
            return StockFeatures(None, reason or "it answered nothing", name)
        return _read(lines[0], out, name)


def _read(answer: Any, file: Path, name: str) -> StockFeatures:
    import torch

    if not isinstance(answer, dict) or "reason" in answer:
        said = answer.get("reason") if isinstance(answer, dict) else answer
        return StockFeatures(None, str(said)[:400], name)
    shapes = answer.get("shapes")
    raw = bytearray(file.read_bytes()) if file.exists() else bytearray()
    if not isinstance(shapes, list) or 4 * sum(math.prod(shape) for shape in shapes) != len(raw):
        return StockFeatures(None, "its features are cut off", name)
    flat, found = torch.frombuffer(raw, dtype=torch.float32) if raw else torch.empty(0), []
    for shape in shapes:
        count = math.prod(shape)
        found.append(flat[:count].reshape(shape))
        flat = flat[count:]
    return StockFeatures(found, "", name)

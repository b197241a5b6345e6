"""From the files of a release to its tensors, whatever their format."""

from __future__ import annotations

from day0.adapters.base.checkpoint import Checkpoint
from day0.adapters.base.errors import AccessError
from day0.adapters.base.source import Source

from .announced import announced_checkpoint
from .listing import listing_checkpoint, withheld
from .naming import pickle_files
from .plain import no_checkpoint, pickle_checkpoint


def open_checkpoint(source: Source) -> Checkpoint:
    """The tensors of a release from headers alone: safetensors before GGUF; pickles are named, never loaded.

    Where the files are listed but withheld, there are no tensors and the remark `listing_only`.

    Raises:
        InputError: the hub refuses or cannot be reached.
        SourceError: the listing cannot be had.
    """
    why: str | AccessError = withheld(source)
    checkpoint: Checkpoint
    try:
        checkpoint = listing_checkpoint(source, why) if why else _open(source)
    except AccessError as refusal:
        checkpoint = listing_checkpoint(source, refusal)
    checkpoint.anomalies = (*source.anomalies, *checkpoint.anomalies)
    return checkpoint


def _open(source: Source) -> Checkpoint:
    sizes = {file.path: file.size for file in source.files()}
    if any(path.endswith(".safetensors") for path in sizes):
        from .safetensors import open_safetensors

        return open_safetensors(source)
    if any(path.endswith(".gguf") for path in sizes):
        from .gguf import open_gguf

        return open_gguf(source)
    pickles = pickle_files(sizes)
    if pickles:
        return pickle_checkpoint(pickles, sizes)
    return announced_checkpoint(source, sizes) or no_checkpoint()

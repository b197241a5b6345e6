"""From the files of a release to its tensors, whatever their format."""

from __future__ import annotations

from day0.adapters.base.checkpoint import Checkpoint
from day0.adapters.base.source import Source

from .naming import pickle_files
from .plain import no_checkpoint, pickle_checkpoint


def open_checkpoint(source: Source) -> Checkpoint:
    """The tensors of a release from headers alone: safetensors before GGUF; pickles are named, never loaded.

    Raises:
        InputError: the hub refuses or cannot be reached.
        SourceError: the listing cannot be had.
    """
    sizes = {file.path: file.size for file in source.files()}
    checkpoint: Checkpoint
    if any(path.endswith(".safetensors") for path in sizes):
        from .safetensors import open_safetensors

        checkpoint = open_safetensors(source)
    elif any(path.endswith(".gguf") for path in sizes):
        from .gguf import open_gguf

        checkpoint = open_gguf(source)
    else:
        pickles = pickle_files(sizes)
        checkpoint = pickle_checkpoint(pickles, sizes) if pickles else no_checkpoint()
    checkpoint.anomalies = (*source.anomalies, *checkpoint.anomalies)
    return checkpoint

"""One model at one pinned revision, opened: its source, its config and its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .checkpoint import Checkpoint, tensor_blocks
from .source import Source
from .values import digest


@dataclass(frozen=True)
class Release:
    """What every stage is given of the model.

    Attributes:
        model: as the person named it.
        source: where the files come from; None for a bare config.
        config: config.json as parsed, nothing filled in.
        checkpoint: the tensors; format `none` where there are no weights.
        config_file: which file the config is from.
    """

    model: str
    source: Source | None
    config: Mapping[str, Any]
    checkpoint: Checkpoint
    config_file: str = "config.json"

    @property
    def revision(self) -> str:
        """The pinned commit or, for a folder or a bare config, a digest."""
        return self.source.revision if self.source else self.config_digest

    @cached_property
    def config_digest(self) -> str:
        """Digest of config.json: what operators and plans depend on."""
        return digest(dict(self.config))

    @cached_property
    def weights_digest(self) -> str:
        """Digest over the identities of all tensors: what numbers depend on."""
        layout = self.checkpoint.layout
        if layout and self.source is not None:  # the files' identities and their headers say as much, sooner
            identities = {file.path: file.identity for file in self.source.files()}
            return digest({path: [identities[path], header] for path, header in layout.items()})
        return digest({name: self.checkpoint.identity(name) for name in sorted(self.checkpoint.tensors)})

    @cached_property
    def structure_digest(self) -> str:
        """Digest of config.json and of every tensor's name, dtype and shape: what counts depend on."""
        layout: object = dict(self.checkpoint.layout) or {
            name: [kind.dtype, list(kind.shape)]
            for block in tensor_blocks(self.checkpoint.tensors)
            for name, kind in zip(block.names, block.kinds, strict=True)
        }
        return digest({"config": self.config_digest, "layout": layout})

"""What a bundle remembers of the checkpoint that it was made from, and whether another one is the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from day0.adapters.base.checkpoint import Checkpoint, tensor_blocks
from day0.adapters.base.errors import InputError
from day0.adapters.base.release import Release
from day0.adapters.base.skeleton import Node
from day0.adapters.base.values import digest
from day0.adapters.sources.staging import stager_of

from .bundle import BundleHead

_REMOTE = "file:"
_REMEDY = "Capture the reference again from this release, or compare the release that it was made from."


def structure_of(checkpoint: Checkpoint) -> str:
    """Digest over name, dtype and shape of every tensor, in whatever files they lie."""
    rows = sorted(
        (name, kind.dtype, list(kind.shape))
        for block in tensor_blocks(checkpoint.tensors)
        for name, kind in zip(block.names, block.kinds, strict=True)
    )
    return digest(rows)


def content_of(release: Release, name: str) -> str:
    """What stands for a tensor's bytes on every machine: their digest; of a remote file the file's own.

    A remote tensor would be fetched a second time for its digest; its file has one that the server gives.
    """
    checkpoint = release.checkpoint
    if release.source is not None and stager_of(release.source) is not None:
        return f"{_REMOTE}{digest(checkpoint.identity(name))}"
    return hashlib.blake2b(checkpoint.read(name), digest_size=8).hexdigest()


def tensors_of(node: Node) -> Iterable[str]:
    """Names of the tensors that a node's parameters are made of, each once."""
    return dict.fromkeys(name for recipe in node.weights.values() for name in recipe.tensors)


def changed_tensors(release: Release, node: Node, contents: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Tensors of the node whose bytes are others than when the bundle was made, and those that nobody knows.

    The latter are those of which only one of both releases is remote.
    """
    changed, unknown = [], []
    for name in tensors_of(node):
        now, then = content_of(release, name), contents.get(name, "")
        if now.startswith(_REMOTE) != then.startswith(_REMOTE) or not then:
            unknown.append(name)
        elif now != then:
            changed.append(name)
    return changed, unknown


def refuse_other_release(head: BundleHead, release: Release) -> None:
    """Refuses to compare what is not the same model.

    Raises:
        InputError: E192, the config differs; E193, names, dtypes or shapes of tensors do.
    """
    if release.config_digest != head.config_digest:
        raise InputError(
            f"the bundle was captured from {head.model}, whose config.json is not that of {release.model}",
            code="E192",
            remedy=_REMEDY,
        )
    if structure_of(release.checkpoint) != head.structure:
        raise InputError(
            f"the bundle was captured from {head.model}, whose tensors have other names, dtypes or shapes "
            f"than those of {release.model}",
            code="E193",
            remedy=_REMEDY,
        )

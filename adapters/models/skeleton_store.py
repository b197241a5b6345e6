"""Skeletons kept in the run store, so that neither torch nor transformers is imported for a known one."""

from __future__ import annotations

from importlib.metadata import version

from ..base.release import Release
from ..base.run_store import RunStore
from ..base.skeleton import Skeleton
from ..base.values import digest
from .skeleton_version import SKELETON_VERSION


def load_or_build_skeleton(release: Release, store: RunStore) -> Skeleton:
    """The stored skeleton of this structure or, where there is none, a new one, built and stored.

    The key holds the config, the names, dtypes and shapes of all tensors, the versions of transformers and
    torch and that of the builder; a stored file that does not read back is built again.

    Raises:
        SkeletonError: see `build_skeleton`.
    """
    builder = {name: version(name) for name in ("torch", "transformers")}
    key = digest({"structure": release.structure_digest, "builder": builder, "version": SKELETON_VERSION})
    name = f"skeletons/{key}.json"
    if store.exists(name):
        try:
            return Skeleton.model_validate_json(store.read(name))
        except ValueError:
            store.remove(name)
    from .skeleton import build_skeleton

    text = build_skeleton(release).model_dump_json().encode()
    store.write(name, text)
    return Skeleton.model_validate_json(text)  # the same types as those of a stored one

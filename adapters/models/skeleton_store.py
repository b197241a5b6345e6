"""Skeletons kept in the run store, so that neither torch nor transformers is imported for a known one."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import TypeVar

from ..base.image_skeleton import ImageSkeleton
from ..base.release import Release
from ..base.run_store import RunStore
from ..base.skeleton import Skeleton
from ..base.values import digest
from .skeleton_version import SKELETON_VERSION

_Made = TypeVar("_Made", Skeleton, ImageSkeleton)


def load_or_build_skeleton(release: Release, store: RunStore) -> Skeleton:
    """The stored skeleton of this structure or, where there is none, a new one, built and stored.

    The key holds the config, the names, dtypes and shapes of all tensors, the versions of transformers and
    torch and that of the builder; a stored file that does not read back is built again.

    Raises:
        SkeletonError: see `build_skeleton`.
    """

    def build() -> Skeleton:
        from .skeleton import build_skeleton

        return build_skeleton(release)

    return _load_or_build(release, store, "", Skeleton, build)


def load_or_build_image_skeleton(release: Release, store: RunStore) -> ImageSkeleton:
    """The same for what an image calls.

    Raises:
        SkeletonError: see `build_image_skeleton`.
    """

    def build() -> ImageSkeleton:
        from .image_skeleton import build_image_skeleton

        return build_image_skeleton(release)

    return _load_or_build(release, store, ".image", ImageSkeleton, build)


def _load_or_build(
    release: Release, store: RunStore, ending: str, made: type[_Made], build: Callable[[], _Made]
) -> _Made:
    builder = {name: version(name) for name in ("torch", "transformers")}
    key = digest({"structure": release.structure_digest, "builder": builder, "version": SKELETON_VERSION})
    name = f"skeletons/{key}{ending}.json"
    if store.exists(name):
        try:
            return made.model_validate_json(store.read(name))
        except ValueError:
            store.remove(name)
    text = build().model_dump_json().encode()
    store.write(name, text)
    return made.model_validate_json(text)  # the same types as those of a stored one

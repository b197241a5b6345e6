"""The skeleton of what an image calls: tower and projector of the same model, traced on their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch

from ..base.errors import words_of
from ..base.image_skeleton import ImageCall, ImageShape, ImageSkeleton
from ..base.release import Release
from ..base.skeleton import Skeleton
from . import nodes
from .architecture import BuiltModel, build_meta_model, declared_dtype
from .image_arguments import arguments_about
from .image_features import features_path, followed_by, function_at, projectors_of, tower_path
from .image_inputs import (
    PIXELS_NAMES,
    Image,
    images_for,
    inputs_for,
    modest_images,
    resized,
    tells_patches,
)
from .known_values import KnownValues, with_values
from .mapping import WeightMap, map_weights
from .skeleton import STRUCTURE_DTYPE, nodes_of
from .trace import TracedNode, trace_call

OTHER_GRIDS = ((16, 4), (12, 8), (8, 8), (8, 16))
"""Patches of the images of another aspect ratio, rows by columns, the first that a tower takes; 16 x 4 is
narrower than a window of attention, as a part of a screen or a line of text is."""
PACKED_GRID = (4, 12)
"""Of the image that goes beside it in one call, where a tower takes several one after the other."""
_PACKED_NAMES = frozenset({"image_grid_thw", "image_grid_hw", "grid_thws", "spatial_shapes"})


def build_image_skeleton(release: Release) -> ImageSkeleton:
    """Builds it; reads no weights and runs no code of the release.

    Raises:
        SkeletonError: see `day0.adapters.models.skeleton.build_skeleton`.
    """
    built = build_meta_model(release.config, STRUCTURE_DTYPE)
    path = features_path(built.model) or tower_path(built.model)
    if not path:
        return ImageSkeleton(reason=f"{built.architecture} has no function that takes an image alone")
    try:
        return _built(built, path, release)
    except Exception as error:  # third-party model code on arbitrary configs
        why = f"what {built.architecture} makes of an image cannot be traced: {words_of(error, 300)}"
        return ImageSkeleton(reason=why)


def _built(built: BuiltModel, path: str, release: Release) -> ImageSkeleton:
    tracer = _Tracer(built.model, path)
    found = tracer.first()
    if isinstance(found, str):
        why = f"{built.architecture} takes an image in none of the forms tried: {found}"
        return ImageSkeleton(reason=why)
    call, image, traced = found
    tracer, traced = tracer.with_projector(call, image, traced)
    weights = map_weights(built.model, release.checkpoint.tensors, release.config)
    others = tracer.other(call, image, traced) if tracer.free(call, image) else []
    return ImageSkeleton(
        skeleton=_skeleton(built, tracer.path, {node.name: node for node in traced}, weights, release),
        calls=[call, *others],
    )


def _skeleton(
    built: BuiltModel, path: str, traced: dict[str, TracedNode], weights: WeightMap, release: Release
) -> Skeleton:
    tower = _tower(built.model, traced)
    return Skeleton(
        architecture=built.architecture,
        model_type=str(built.model.config.get_text_config().model_type),
        config=built.config,
        nodes=nodes_of(built.model, traced, weights, lambda node: _role(node.name, tower)),
        dtype=declared_dtype(release.config),
        builder={name: version(name) for name in ("torch", "transformers")},
        entry=path,
    )


def _tower(model: Any, traced: dict[str, TracedNode]) -> str:
    """Path of what holds the blocks: the module around the list with most elements that is called."""
    lists = [path for path in nodes.block_lists(model) if any(name.startswith(f"{path}.") for name in traced)]
    sizes = {path: sum(p.numel() for p in model.get_submodule(path).parameters()) for path in lists}
    largest = max(lists, key=lambda path: sizes[path], default="")
    return largest.rpartition(".")[0].removesuffix(".encoder")


def _role(name: str, tower: str) -> str:
    """From words in the path; else what lies beside the tower's blocks is vision, the rest projector."""
    role = nodes.uncalled_role(name)
    if role != "unknown":
        return role
    return "vision" if tower and name.startswith(f"{tower}.") else "projector"


@dataclass(frozen=True)
class _Tracer:
    """Tries forms of images on one function of a model."""

    model: Any
    path: str

    def first(self) -> tuple[ImageCall, Image, list[TracedNode]] | str:
        """The first form that the function takes, or what the likeliest one failed of."""
        failures: list[str] = []
        for image in self._forms():
            for optional in (True, False):
                call = self._call([image], optional=optional)
                traced = self._traced(call, [image])
                if not isinstance(traced, str):
                    return call, image, traced
                failures.append(traced)
                if "image_sizes" not in call.arguments:
                    break  # there is nothing optional to leave out
        return failures[0] if failures else "nothing that cuts pixels into patches was found"

    def with_projector(
        self, call: ImageCall, image: Image, first: list[TracedNode]
    ) -> tuple[_Tracer, list[TracedNode]]:
        """The same with the projector after it, where the function leaves that to the forward."""
        called = {node.name for node in first}
        for projector in projectors_of(self.model):
            if not any(name == projector or name.startswith(f"{projector}.") for name in called):
                longer = _Tracer(self.model, followed_by(self.path, projector))
                traced = longer._traced(call, [image])
                if not isinstance(traced, str):
                    return longer, traced
        return self, first

    def free(self, call: ImageCall, image: Image) -> bool:
        """Whether the size is one that was chosen here, and not the only one that the config names."""
        return tells_patches(call.arguments) or image in modest_images(self.model, self.model.config)

    def other(self, call: ImageCall, image: Image, first: Sequence[TracedNode]) -> list[ImageCall]:
        """A call with other sizes and aspect ratios, where the function takes it; else none.

        It has to call the same nodes as often, since all passes of a walk are at one node at a time.
        """
        for rows, columns in OTHER_GRIDS:
            size = resized(image, rows, columns)
            if size is None:
                return []
            if size == image:
                continue
            packed = resized(image, *PACKED_GRID)
            alone = [[size, packed], [size]] if packed and _packs(call, image) else [[size]]
            for images in alone:
                made = call.model_copy(update={"images": [_shape(one) for one in images]})
                traced = self._traced(made, images)
                if not isinstance(traced, str) and _calls(traced) == _calls(first):
                    return [made]
        return []

    def _forms(self) -> Iterator[Image]:
        config = self.model.config
        yield from modest_images(self.model, config)
        yield from images_for(self.model, config)

    def _call(self, images: Sequence[Image], *, optional: bool) -> ImageCall:
        features = function_at(self.model, self.path)
        given = inputs_for(features, images[0], torch.bfloat16, optional=optional)
        names = [name for name in given if name not in PIXELS_NAMES]
        pixels = next(name for name in given if name in PIXELS_NAMES)
        return ImageCall(images=[_shape(one) for one in images], pixels=pixels, arguments=names)

    def _traced(self, call: ImageCall, images: Sequence[Image]) -> list[TracedNode] | str:
        """The nodes in order, or why the function does not take the images."""
        containers = {""}.union(*(nodes.containers_of(path) for path in nodes.block_lists(self.model)))
        failure = ""
        for on_meta in (False, True):
            for answer in (True, False):
                oracle = KnownValues(answer)
                try:
                    traced = self._attempt(call, images, containers, oracle, on_meta=on_meta)
                except Exception as error:  # third-party model code on arbitrary configs
                    failure = failure or words_of(error, 300)
                    traced = []
                if traced:
                    return traced
                failure = failure or "it calls no module with weights"
                if not oracle.consulted:
                    break  # the other answer would lead to the same
        return failure

    def _attempt(
        self,
        call: ImageCall,
        images: Sequence[Image],
        containers: set[str],
        oracle: KnownValues,
        *,
        on_meta: bool,
    ) -> list[TracedNode]:
        features = function_at(self.model, self.path)
        inputs = _on_meta(call, images)
        return trace_call(
            self.model,
            containers,
            list(inputs.values()),
            lambda: features(**inputs),
            oracle,
            (oracle.creation(), torch.device("meta") if on_meta else nullcontext()),
        )


def _calls(traced: Sequence[TracedNode]) -> list[tuple[str, int]]:
    return [(node.name, node.calls) for node in traced]


def _on_meta(call: ImageCall, images: Sequence[Image]) -> dict[str, Any]:
    lengths = [image.pixels[0] for image in images]
    shape = (sum(lengths), *images[0].pixels[1:])
    pixels = torch.empty(shape, dtype=torch.bfloat16, device="meta")
    return {call.pixels: pixels} | {name: with_values(value) for name, value in arguments_about(call).items()}


def _packs(call: ImageCall, image: Image) -> bool:
    """Whether several images may lie one after the other: patches first, and nothing but their grids told."""
    return image.pixels[0] == image.patches and set(call.arguments) <= _PACKED_NAMES


def _shape(image: Image) -> ImageShape:
    return ImageShape(
        pixels=list(image.pixels),
        rows=image.rows,
        columns=image.columns,
        height=image.height,
        width=image.width,
    )

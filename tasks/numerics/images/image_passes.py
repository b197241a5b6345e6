"""The passes of a walk on images: which pictures, and what each of them can show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from day0.adapters.base.image_skeleton import ImageCall
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.models.image_arguments import image_arguments

from ..prompts.passes import MAIN, Pass
from ..prompts.tokens import Tokens
from ..walk.case import Case

IMAGE, ASPECT = "image", "image_aspect"
NAMES = {MAIN: IMAGE, ASPECT: ASPECT}
"""Pass of the walk -> how the record calls it: the walk measures nodes on its main pass, whatever that is."""
PURPOSES = {
    IMAGE: "a picture with smooth colours, edges and texture",
    ASPECT: "other sizes and aspect ratios: positions in rows and columns, windows, where an image ends",
}


def image_case(case: Case, skeleton: Skeleton, calls: Sequence[ImageCall]) -> Case:
    """The case on images in place of text.

    Args:
        case: on text.
        skeleton: of what an image calls.
        calls: the images, the main one first.
    """
    passes = tuple(
        Pass(name, (), given=image_arguments(call)) for name, call in zip((MAIN, ASPECT), calls, strict=False)
    )
    return replace(case, skeleton=skeleton, tokens=Tokens(()), passes=passes, step=f"{case.step}, images")


def shown(call: ImageCall) -> str:
    """What a call is given, e.g. `32 x 48 pixels, 8 x 12 patches`."""
    return " and ".join(
        f"{image.height} x {image.width} pixels, {image.rows} x {image.columns} patches"
        for image in call.images
    )

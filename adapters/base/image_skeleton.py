"""The structure of a model's vision tower and projector, and the images on which it is run."""

from __future__ import annotations

from collections.abc import Sequence

from .skeleton import Skeleton
from .values import Value


class ImageShape(Value):
    """One image in the form in which a tower takes it.

    Attributes:
        pixels: shape of the tensor of pixels.
        rows: patches from top to bottom.
        columns: patches from left to right.
        height: in pixels.
        width: in pixels.
    """

    pixels: Sequence[int]
    rows: int
    columns: int
    height: int
    width: int


class ImageCall(Value):
    """One call of the function that makes features of images.

    Attributes:
        images: that it is given; several lie one after the other in the first dimension.
        pixels: what the function calls the tensor of pixels.
        arguments: names of what else it is given about them, e.g. `image_grid_thw`.
    """

    images: Sequence[ImageShape]
    pixels: str
    arguments: Sequence[str] = ()


class ImageSkeleton(Value):
    """What an image calls.

    Attributes:
        skeleton: its nodes, with `entry` the function that calls them; None where they cannot be had.
        calls: an image first, then images of another size and aspect ratio where the tower takes them.
        reason: why there is no skeleton, else empty.
    """

    skeleton: Skeleton | None = None
    calls: Sequence[ImageCall] = ()
    reason: str = ""

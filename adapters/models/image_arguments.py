"""The arguments of a function that makes features of images: their pixels, and what is told about them.

The pixels are those of a picture with smooth gradients, edges and texture, as a processor hands them on:
about 0, between -2 and 2. They are multiples of 1/64, which bf16 and fp16 hold exactly, so that all sides get
the same picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..base.image_skeleton import ImageCall, ImageShape
from .image_inputs import Image, values_for, whole

_SEED = 20261130
_STEPS = 64
_TEXTURE = 0.06
_LARGEST = 2.0


def image_arguments(call: ImageCall) -> dict[str, Tensor]:
    """All arguments of a call by name, on the CPU; pixels in fp32."""
    pixels = [_pixels(image_of(shape), place) for place, shape in enumerate(call.images)]
    return {call.pixels: torch.cat(pixels), **arguments_about(call)}


def arguments_about(call: ImageCall) -> dict[str, Tensor]:
    """What is told about the images besides their pixels, by name, on the CPU."""
    each = [values_for(call.arguments, image_of(shape)) for shape in call.images]
    return {name: torch.cat([values[name] for values in each]) for name in call.arguments}


def image_of(shape: ImageShape) -> Image:
    """The image of that shape."""
    return Image(tuple(shape.pixels), shape.rows, shape.columns, shape.height, shape.width)


def _pixels(image: Image, number: int) -> Tensor:
    """[*image.pixels] fp32; tiles of one image are other pictures."""
    if whole(image):
        *leading, channels, height, width = image.pixels
        count = math.prod(leading)
        tiles = [_picture(channels, height, width, 16 * number + tile) for tile in range(count)]
        return torch.stack(tiles).reshape(image.pixels)
    side = max(1, image.height // max(1, image.rows))
    depth = math.prod(image.pixels) // max(1, image.patches * side * side)
    if depth * image.patches * side * side != math.prod(image.pixels):
        return _picture(1, 1, math.prod(image.pixels), number).reshape(image.pixels)
    return _patches(image, side, depth, number).reshape(image.pixels)


def _patches(image: Image, side: int, depth: int, number: int) -> Tensor:
    """[patches, depth * side * side], row after row; all frames of a still are equal."""
    colours = 3 if depth % 3 == 0 else depth
    picture = _picture(colours, image.rows * side, image.columns * side, number)
    frames = picture.repeat_interleave(depth // colours, 0)
    cut = frames.reshape(depth, image.rows, side, image.columns, side)
    return cut.permute(1, 3, 0, 2, 4).reshape(image.patches, -1)


def _picture(channels: int, height: int, width: int, number: int) -> Tensor:
    """[channels, height, width]."""
    draw = torch.Generator().manual_seed(_SEED + number)
    y = torch.linspace(0, 1, height, dtype=torch.float64)[:, None]
    x = torch.linspace(0, 1, width, dtype=torch.float64)[None, :]
    planes = []
    for channel in range(channels):
        shift = 0.9 * channel + 1.7 * number
        gradient = 0.8 * torch.sin(2 * math.pi * (0.7 * x + 0.4 * y) + shift) + 0.5 * (y - x)
        disc = ((x - 0.6) ** 2 + (y - 0.35) ** 2 < 0.05).double() * (0.7 - 0.4 * (channel % 3))
        stripes = 0.3 * torch.sign(torch.sin(2 * math.pi * (9 * x - 5 * y) + shift)) * (y > 0.6)
        texture = _TEXTURE * torch.randn((height, width), generator=draw, dtype=torch.float64)
        planes.append(gradient + disc + stripes + texture)
    return _exact(planes)


def _exact(planes: Sequence[Tensor]) -> Tensor:
    """Multiples of 1/64 between -2 and 2: eight bits and the sign, which bf16 holds."""
    values = torch.stack(list(planes)).clamp(-_LARGEST, _LARGEST)
    return ((values * _STEPS).round() / _STEPS).float()

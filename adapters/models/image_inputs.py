"""What one image gives a model: pixels, grids, masks, by the names under which its forward takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from .known_values import known, with_values

GRIDS = ((8, 12), (12, 12), (16, 16))
"""Patches of an image, rows by columns: divisible by the usual merging of 2 x 2 or 4 x 4, the first one wider
than a window of attention; one for towers that pool 3 x 3."""
PIXELS = 224
"""Height and width of an image where the config names none."""
PIXELS_NAMES = ("pixel_values", "flattened_patches", "image_patches")
"""What forwards call the pixels."""
_GRIDS = ("image_grid_thw", "image_grid_hw", "spatial_shapes", "image_position_ids", "grid_thws")


@dataclass(frozen=True)
class Image:
    """One image in one of the forms in which towers take it.

    Attributes:
        pixels: shape of the tensor of pixels.
        rows: patches from top to bottom.
        columns: patches from left to right.
        height: in pixels.
        width: in pixels.
    """

    pixels: tuple[int, ...]
    rows: int
    columns: int
    height: int
    width: int

    @property
    def patches(self) -> int:
        """Their number."""
        return self.rows * self.columns


def takes_images(model: torch.nn.Module) -> bool:
    """Whether the model's forward takes pixels."""
    return any(name in inspect.signature(model.forward).parameters for name in PIXELS_NAMES)


def images_for(model: torch.nn.Module, config: Any) -> Iterator[Image]:
    """Forms in which the tower may take an image, the likeliest first; none where it has no patches to cut.

    What becomes of pixels first decides: the channels and the size of a patch are those of the first
    convolution, or the width of a patch is that of the first product over patches.
    """
    patch = _patch(model)
    if patch is None:
        return
    channels, kernel = (patch[0], patch[1:]) if len(patch) > 2 else (_channels(config), ())
    row = prod(patch)
    side = kernel[-1] if kernel else max(1, round((row / channels) ** 0.5))
    if tells_patches(inspect.signature(model.forward).parameters):
        for place, (rows, columns) in enumerate(GRIDS):
            count, size = rows * columns, (rows, columns, rows * side, columns * side)
            forms = ((count, row), (count, *patch), (1, count, row), (1, 1, count, row))
            for pixels in forms[: 1 if place else None]:
                yield Image(pixels, *size)
    height, width = _image_size(config)
    size = (height // side, width // side, height, width)
    whole = (channels, height, width)
    for leading in ((1,), (1, 1), (1, 3), (1, 5), (1, 1, 1), (1, 1, 4)):
        yield Image((*leading, *whole), *size)
    yield Image((1, size[0] * size[1], row), *size)


def modest_images(model: torch.nn.Module, config: Any) -> Iterator[Image]:
    """Small images for a tower that cuts whole images into patches; it may take no other size than its own.

    None for one that is told the grid of patches, since `images_for` begins with small ones there.
    """
    patch = _patch(model)
    if patch is None or len(patch) < 3 or tells_patches(inspect.signature(model.forward).parameters):
        return
    channels, side = patch[0], patch[-1]
    for rows, columns in GRIDS:
        height, width = rows * side, columns * side
        for leading in ((1,), (1, 1)):
            yield Image((*leading, channels, height, width), rows, columns, height, width)


def tells_patches(names: Collection[str]) -> bool:
    """Whether the rows and columns of patches are among arguments of these names."""
    return any(name in names for name in _GRIDS)


def resized(image: Image, rows: int, columns: int) -> Image | None:
    """The image in the same form with another number of patches; None where its form does not tell them."""
    count, side = image.patches, image.height // max(1, image.rows)
    height, width = rows * side, columns * side
    if whole(image):
        return Image((*image.pixels[:-2], height, width), rows, columns, height, width)
    if count not in image.pixels[:-1]:
        return None
    place = image.pixels.index(count)
    pixels = (*image.pixels[:place], rows * columns, *image.pixels[place + 1 :])
    return Image(pixels, rows, columns, height, width)


def whole(image: Image) -> bool:
    """Whether its pixels lie in rows and columns, not patch by patch."""
    return len(image.pixels) > 3 and image.pixels[-2:] == (image.height, image.width)


def values_for(names: Sequence[str], image: Image) -> dict[str, torch.Tensor]:
    """Arguments about the image other than pixels, with their values on the CPU."""
    return {name: _BY_NAME[name](image) for name in names}


def inputs_for(
    forward: Callable[..., Any], image: Image, dtype: torch.dtype, *, optional: bool = True
) -> dict[str, torch.Tensor]:
    """The arguments of `forward` that are about the image, on meta; all but pixels with values.

    Args:
        forward: takes them.
        image: that they are about.
        dtype: of pixels.
        optional: whether sizes in pixels are among them, which some towers want and others cannot take.
    """
    names = inspect.signature(forward).parameters
    left_out = () if optional else ("image_sizes",)
    wanted = {name: make for name, make in _BY_NAME.items() if name in names and name not in left_out}
    found = {name: with_values(make(image)) for name, make in wanted.items()}
    for name in PIXELS_NAMES:
        if name in names:
            found[name] = torch.empty(image.pixels, dtype=dtype, device="meta")
            break
    return found


def token_ids(config: Any, images: int, total: int) -> torch.Tensor:
    """Tokens of a prompt, `images` of which stand for the image; with values.

    Args:
        config: names the token that does.
        images: how many of them.
        total: length of the prompt at least.
    """
    ids = _special_tokens(config)
    text = next(number for number in range(3, 3 + len(ids) + 1) if number not in ids.values())
    placeholder = next((ids[name] for name in _placeholders(ids)), text)
    start = [ids[name] for name in ids if "start" in name and "vision" in name][:1]
    tokens = [text, *start, *[placeholder] * images, text]
    return with_values(torch.tensor([tokens + [text] * (total - len(tokens))]))


def about_tokens(model: torch.nn.Module, config: Any, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """Further arguments that say of each token what it stands for: 1 for the image, 0 for text."""
    names = inspect.signature(model.forward).parameters
    value = known(tokens)
    if value is None:
        return {}
    ids = _special_tokens(config)
    placeholder = next((ids[name] for name in _placeholders(ids)), None)
    types = torch.zeros_like(value) if placeholder is None else (value == placeholder).long()
    wanted = [name for name in ("mm_token_type_ids", "token_type_ids") if name in names]
    return {name: with_values(types) for name in wanted}


_STANDS = ("image_token", "media_placeholder", "img_context", "image_patch", "image", "vision_token", "img")
"""What a config calls the token that stands for a part of an image, the likeliest name first."""
_APART = frozenset({"start", "end", "begin", "newline", "break", "video", "separator", "bos", "eos"})


def _placeholders(ids: Mapping[str, int]) -> list[str]:
    return sorted(
        (name for name in ids if any(word in name for word in _STANDS) and not _APART & set(name.split("_"))),
        key=lambda name: next(place for place, word in enumerate(_STANDS) if word in name),
    )


def _special_tokens(config: Any) -> dict[str, int]:
    values = config.to_dict()
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int) and "token" in name and name.endswith(("id", "index"))
    }


def _patch(model: torch.nn.Module) -> tuple[int, ...] | None:
    """Shape of one patch: [channels, (frames,) height, width] of a convolution, [width] of a product."""
    for name, module in model.named_modules():
        if "audio" in name or "language_model" in name or "text_model" in name:
            continue
        if isinstance(module, torch.nn.Conv2d | torch.nn.Conv3d):
            return tuple(module.weight.shape[1:])
        if isinstance(module, torch.nn.Linear) and ("patch" in name or "vision" in name):
            return (module.in_features,)
    return None


def _vision(config: Any) -> Any:
    return getattr(config, "vision_config", None) or config


def _channels(config: Any) -> int:
    vision = _vision(config)
    found = getattr(vision, "num_channels", None) or getattr(vision, "in_channels", None)
    return found if isinstance(found, int) else 3


def _image_size(config: Any) -> tuple[int, int]:
    size = getattr(_vision(config), "image_size", None)
    if isinstance(size, Mapping):
        size = [size.get("height"), size.get("width")]
    if isinstance(size, int):
        return size, size
    if isinstance(size, list | tuple) and len(size) == 2 and all(isinstance(side, int) for side in size):
        return size[0], size[1]
    return PIXELS, PIXELS


def _positions(image: Image) -> torch.Tensor:
    rows, columns = torch.meshgrid(torch.arange(image.rows), torch.arange(image.columns), indexing="ij")
    return torch.stack([columns.flatten(), rows.flatten()], dim=-1)[None]


def _mask(image: Image) -> torch.Tensor:
    """Of pixels where these lie in rows and columns, of patches where they lie one after the other."""
    if len(image.pixels) > 3:
        return torch.ones((*image.pixels[:-3], *image.pixels[-2:]), dtype=torch.bool)
    return torch.ones(
        image.pixels[:-1] if len(image.pixels) == 3 else (1, *image.pixels[:1]), dtype=torch.bool
    )


_BY_NAME: Mapping[str, Callable[[Image], torch.Tensor]] = {
    "image_grid_thw": lambda image: torch.tensor([[1, image.rows, image.columns]]),
    "image_grid_hw": lambda image: torch.tensor([[image.rows, image.columns]]),
    "grid_thws": lambda image: torch.tensor([[1, image.rows, image.columns]]),
    "spatial_shapes": lambda image: torch.tensor([[image.rows, image.columns]]),
    "image_sizes": lambda image: torch.tensor([[image.height, image.width]]),
    "target_sizes": lambda image: torch.tensor([[image.rows, image.columns]]),
    "image_position_ids": _positions,
    "pixel_attention_mask": _mask,
    "pixel_mask": _mask,
    "aspect_ratio_ids": lambda image: torch.ones((1, 1), dtype=torch.int64),
    "aspect_ratio_mask": lambda image: torch.ones(image.pixels[:-3], dtype=torch.int64),
    "num_local_patches": lambda image: torch.zeros((1,), dtype=torch.int64),
    "qformer_input_ids": lambda image: torch.zeros((1, 8), dtype=torch.int64),
    "qformer_attention_mask": lambda image: torch.ones((1, 8), dtype=torch.int64),
}
"""Name of an argument -> its values for one image."""

"""What an image calls, from configs alone: nodes, roles, images; and the arguments that go with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from day0.adapters.base.image_skeleton import ImageCall, ImageShape, ImageSkeleton
from day0.adapters.base.run_store import RunStore
from day0.adapters.models import nodes
from day0.adapters.models.architecture import build_meta_model
from day0.adapters.models.image_arguments import image_arguments
from day0.adapters.models.image_skeleton import build_image_skeleton
from day0.adapters.models.skeleton import build_skeleton
from day0.adapters.models.skeleton_store import load_or_build_image_skeleton
from support.layouts import make_release
from support.tiny_models import TINY
from support.vision_models import VISION

CLASSES = {
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "gemma3": "Gemma3ForConditionalGeneration",
    "llava": "LlavaForConditionalGeneration",
    "mllama": "MllamaForConditionalGeneration",
}


def built(model_type: str, **changes: Any) -> ImageSkeleton:
    config = {"model_type": model_type, "architectures": [CLASSES[model_type]], **VISION[model_type]}
    return build_image_skeleton(make_release(config | changes, {}))


def test_each_block_and_each_merger_is_a_node_in_the_order_of_a_call() -> None:
    found = built("qwen3_vl")
    assert found.skeleton is not None
    assert found.skeleton.entry == "get_image_features"
    called = [node for node in found.skeleton.nodes if node.called]
    assert [(node.name.removeprefix("model.visual."), node.role) for node in called] == [
        ("patch_embed", "vision"),
        ("pos_embed", "vision"),
        ("rotary_pos_emb", "vision"),
        ("blocks.0", "vision"),
        ("blocks.1", "vision"),
        ("deepstack_merger_list.0", "projector"),
        ("blocks.2", "vision"),
        ("merger", "projector"),
    ]
    kinds = {node.name.rpartition(".")[2]: node.kind for node in called if ".blocks." in node.name}
    assert len(set(kinds.values())) == 1
    assert "model.visual.blocks.1" in found.skeleton.node("model.visual.deepstack_merger_list.0").reads


def test_a_tower_of_any_size_gets_small_images_and_one_of_a_fixed_size_its_own() -> None:
    packed = built("qwen3_vl").calls
    assert [[(image.rows, image.columns) for image in call.images] for call in packed] == [
        [(8, 12)],
        [(16, 4), (4, 12)],
    ]
    fixed = built("llava").calls
    assert [[list(image.pixels) for image in call.images] for call in fixed] == [[[1, 3, 32, 32]]]


def test_parameters_between_nodes_and_what_no_image_reaches_are_there() -> None:
    found = built("mllama")
    assert found.skeleton is not None
    assert found.skeleton.entry == "model.vision_model.forward > model.multi_modal_projector"
    assert [node.name for node in found.skeleton.nodes if node.called][-1] == "model.multi_modal_projector"
    apart = {node.name: node for node in found.skeleton.nodes if not node.called}
    assert list(apart["model.vision_model"].missing) == ["class_embedding"]
    assert "model.language_model.layers.1" in apart


def test_what_lies_in_a_container_is_all_that_it_stands_for() -> None:
    config = {
        "model_type": "llava_next", "architectures": ["LlavaNextForConditionalGeneration"],
        "image_grid_pinpoints": [[32, 64], [64, 64]], **VISION["llava"],
    }  # fmt: skip
    release = make_release(config, {})
    found = build_image_skeleton(release).skeleton
    assert found is not None
    for skeleton in (found, build_skeleton(release)):
        assert list(skeleton.node("model").missing) == ["image_newline"]
    held = {f"{node.name}.{name}" for node in found.nodes for name in node.missing}
    assert held == set(build_meta_model(config).model.state_dict())


def test_a_model_that_takes_no_image_as_made_says_why() -> None:
    plain = build_image_skeleton(make_release({"model_type": "llama", **TINY["llama"]}, {}))
    assert (plain.skeleton, plain.reason) == (
        None,
        "LlamaForCausalLM has no function that takes an image alone",
    )
    odd = built("gemma3", mm_tokens_per_image=10_000)
    assert odd.skeleton is None
    assert odd.reason.startswith("Gemma3ForConditionalGeneration takes an image in none of the forms tried: ")


def test_a_stored_one_is_the_same(tmp_path: Path) -> None:
    config = {"model_type": "llava", "architectures": [CLASSES["llava"]], **VISION["llava"]}
    release, store = make_release(config, {}), RunStore(tmp_path)
    first = load_or_build_image_skeleton(release, store)
    assert load_or_build_image_skeleton(release, store) == first
    assert first.calls


def test_lists_of_blocks_are_those_that_lie_in_no_block() -> None:
    text = build_meta_model({"model_type": "mixtral", **TINY["mixtral"]})
    assert nodes.block_lists(text.model) == ["model.layers"]
    inner = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(2, 2)) for _ in range(2)])
    lists = torch.nn.ModuleDict(
        {
            "stages": torch.nn.ModuleList([inner, torch.nn.ModuleList([torch.nn.Linear(2, 2)])]),
            "leaves": torch.nn.ModuleList([torch.nn.Linear(2, 2)]),
            "blocks": torch.nn.ModuleList([torch.nn.Sequential(inner)]),
        }
    )
    assert nodes.block_lists(lists) == ["stages", "stages.0", "blocks"]


def call(*images: tuple[list[int], int, int], side: int = 4, names: tuple[str, ...] = ()) -> ImageCall:
    return ImageCall(
        images=[
            ImageShape(pixels=pixels, rows=rows, columns=columns, height=rows * side, width=columns * side)
            for pixels, rows, columns in images
        ],
        pixels="pixel_values",
        arguments=names,
    )


@pytest.mark.parametrize(
    "pixels", [[1, 3, 32, 48], [1, 4, 3, 32, 48], [96, 96], [96, 3, 2, 4, 4], [1, 96, 48], [96, 50]]
)
def test_pixels_are_a_picture_that_every_precision_holds(pixels: list[int]) -> None:
    made = image_arguments(call((pixels, 8, 12)))["pixel_values"]
    assert list(made.shape) == pixels
    for dtype in (torch.bfloat16, torch.float16):
        assert torch.equal(made.to(dtype).float(), made)
    assert float(made.abs().max()) <= 2
    assert 0.3 < float(made.std()) < 1.2
    assert torch.equal(made, image_arguments(call((pixels, 8, 12)))["pixel_values"])


def test_patches_are_cut_from_the_picture_row_by_row() -> None:
    whole = image_arguments(call(([1, 3, 32, 48], 8, 12)))["pixel_values"][0]
    patches = image_arguments(call(([96, 3, 2, 4, 4], 8, 12)))["pixel_values"]
    row, column = 5, 7
    cut = whole[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
    assert torch.equal(patches[12 * row + column, :, 0], cut)
    assert torch.equal(patches[:, :, 0], patches[:, :, 1])
    # Neighbours are alike, as in a picture and unlike in noise.
    along = torch.corrcoef(torch.stack([whole[0, :, :-1].flatten(), whole[0, :, 1:].flatten()]))
    assert float(along[0, 1]) > 0.8


def test_several_images_lie_one_after_the_other_and_are_not_the_same() -> None:
    two = call(([64, 96], 16, 4), ([48, 96], 4, 12), names=("image_grid_thw",))
    given = image_arguments(two)
    assert list(given["pixel_values"].shape) == [112, 96]
    assert given["image_grid_thw"].tolist() == [[1, 16, 4], [1, 4, 12]]
    tiles = image_arguments(call(([1, 2, 3, 32, 48], 8, 12)))["pixel_values"][0]
    assert not torch.equal(tiles[0], tiles[1])

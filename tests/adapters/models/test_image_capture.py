"""Vision towers: what an image adds to a prefill, on meta from the config alone, against real runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from day0.adapters.base.operator_capture import Capture, CaptureRequest
from day0.adapters.models.capture_model import capture_model

TEXT: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "head_dim": 8,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
ROTARY = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
SIGLIP: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 2,
    "image_size": 32, "patch_size": 4,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "image_token_id": 60, "video_token_id": 61, "vision_start_token_id": 62, "vision_end_token_id": 63,
        "text_config": {**TEXT, "model_type": "qwen2_5_vl_text", "rope_parameters": ROTARY},
        "vision_config": {
            "depth": 4, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "out_hidden_size": 32,
            "patch_size": 4, "window_size": 16, "fullatt_block_indexes": [3], "tokens_per_second": 2,
        },
    },
    "gemma3": {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "image_token_id": 60, "image_token_index": 60, "boi_token_index": 61, "eoi_token_index": 62,
        "mm_tokens_per_image": 16,
        "text_config": {**TEXT, "sliding_window": 32, "query_pre_attn_scalar": 8, "num_hidden_layers": 6},
        "vision_config": SIGLIP,
    },
    "smolvlm": {
        "architectures": ["SmolVLMForConditionalGeneration"], "scale_factor": 2, "image_token_id": 60,
        "text_config": {**TEXT, "model_type": "llama"}, "vision_config": SIGLIP,
    },
    "llava": {
        "architectures": ["LlavaForConditionalGeneration"], "image_token_index": 60, "image_token_id": 60,
        "text_config": {**TEXT, "model_type": "llama"},
        "vision_config": {**SIGLIP, "model_type": "clip_vision_model", "projection_dim": 16},
    },
}  # fmt: skip
PATCHES = (8, 12)


@pytest.fixture(scope="module")
def qwen() -> Capture:
    return capture_model({"model_type": "qwen2_5_vl", **CONFIGS["qwen2_5_vl"]}, CaptureRequest())


def test_the_tower_the_projector_and_the_merging_are_listed(qwen: Capture) -> None:
    assert not qwen.anomalies
    image = [call for call in qwen.calls if call.branch == "image"]
    assert {call.phase for call in image} == {"prefill"}
    modules = {call.module for call in image}
    assert {
        "model.visual.patch_embed.proj",
        "model.visual.blocks.0.attn",
        "model.visual.merger.mlp.2",
    } <= modules
    assert "aten.masked_scatter.default" in {call.op for call in image}


def test_counts_are_over_all_layers_and_shapes_are_the_images(qwen: Capture) -> None:
    image = [call for call in qwen.calls if call.branch == "image"]
    (query,) = [
        call for call in image if call.module.endswith(".attn.qkv") and call.op == "aten.addmm.default"
    ]
    patches = PATCHES[0] * PATCHES[1]
    assert (query.count, list(map(list, query.shapes))) == (4, [[48], [patches, 16], [16, 48]])
    assert list(query.modules) == [f"model.visual.blocks.{layer}.attn.qkv" for layer in range(4)]
    (cut,) = [call for call in image if call.op == "aten.convolution.default"]
    assert list(cut.shapes[0]) == [patches, 3, 2, 4, 4]


def test_attention_in_windows_ends_where_the_values_say(qwen: Capture) -> None:
    # 4 x 6 tokens after merging fill windows of 2 x 2: six windows of 16 patches; one layer sees all 96.
    lengths = {
        (call.shapes[0][2], call.count)
        for call in qwen.calls
        if call.branch == "image" and call.op == "aten.scaled_dot_product_attention.default"
    }
    assert lengths == {(16, 18), (96, 1)}


def test_switch_points_of_the_tower_are_listed(qwen: Capture) -> None:
    points = [point for point in qwen.functions if point.name == "attention" and "visual" in point.modules[0]]
    # Three layers call it once a window, one on the whole image.
    assert [(point.implementation, point.count) for point in points] == [("sdpa", 3 * 6 + 1)]


def test_the_phases_of_text_are_those_of_a_prompt_without_an_image(qwen: Capture) -> None:
    plain = [call for call in qwen.calls if call.branch == "" and call.phase == "prefill"]
    assert all("visual" not in call.module for call in plain)
    assert {call.phase for call in qwen.calls} == {"prefill", "decode", "long_prefill", "sampling"}


def test_a_tower_that_cannot_run_is_told_and_the_text_is_there() -> None:
    config = CONFIGS["gemma3"] | {"mm_tokens_per_image": 10_000}
    capture = capture_model({"model_type": "gemma3", **config}, CaptureRequest())
    assert [(anomaly.code, anomaly.subject) for anomaly in capture.undecided] == [
        ("part_not_captured", "vision")
    ]
    assert {call.phase for call in capture.calls} == {"prefill", "decode", "long_prefill", "sampling"}


class _Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base is untyped
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's base is untyped
        self.ops: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops.add(str(func))
        return func(*args, **(kwargs or {}))


def _inputs(model_type: str) -> dict[str, torch.Tensor]:
    """A prompt with one image, as the family's processor gives it."""
    if model_type == "qwen2_5_vl":
        rows, columns = 4, 8
        tokens = [5, 62, *[60] * (rows * columns // 4), 63, 5, 5]
        ids = torch.tensor([tokens])
        return {
            "input_ids": ids,
            "pixel_values": torch.randn(rows * columns, 3 * 2 * 4 * 4).bfloat16(),
            "image_grid_thw": torch.tensor([[1, rows, columns]]),
            "mm_token_type_ids": (ids == 60).long(),
        }
    count = {"gemma3": 16, "smolvlm": 16, "llava": 64}[model_type]
    ids = torch.tensor([[5, *[60] * count, 5, 5]])
    pixels = torch.randn(1, 3, 32, 32).bfloat16()
    if model_type == "smolvlm":
        mask = torch.ones(1, 1, 32, 32, dtype=torch.bool)
        return {"input_ids": ids, "pixel_values": pixels[None], "pixel_attention_mask": mask}
    more = {"token_type_ids": (ids == 60).long()} if model_type == "gemma3" else {}
    return {"input_ids": ids, "pixel_values": pixels, **more}


@pytest.mark.slow
@pytest.mark.parametrize("model_type", sorted(CONFIGS))
def test_what_a_real_run_with_an_image_dispatches_was_captured(
    model_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    attention = torch.nn.functional.scaled_dot_product_attention

    def unseen(*args: Any, **kwargs: Any) -> torch.Tensor:
        with _disable_current_modes():
            return attention(*args, **kwargs)

    config = {"model_type": model_type, **CONFIGS[model_type]}
    captured = {call.op for call in capture_model(config, CaptureRequest()).calls}
    # What the one attention operator becomes on the CPU is the CPU's choice.
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", unseen)
    parsed = transformers.AutoConfig.for_model(**config)
    model = getattr(transformers, config["architectures"][0])._from_config(parsed, dtype=torch.bfloat16)
    inputs, seen = _inputs(model_type), _Seen()
    with torch.no_grad(), seen:
        model.eval()(**inputs)
    host = {"aten.lift_fresh.default", "aten.detach.default", "prim.device.default"}
    assert seen.ops - captured <= host

"""A checkpoint written anew as fp8 weights with block scales, and a reader that drops the scales."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from day0.adapters.base.skeleton import Skeleton


def save_fp8_blocks(source: Path, folder: Path, block: int) -> Path:
    """Writes the projections of all layers as e4m3 with one fp32 scale for each block; returns the folder."""
    folder.mkdir(parents=True)
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(source.glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            if name.endswith("_proj.weight"):
                tensors[name], tensors[f"{name}_scale_inv"] = quantised(tensor, block)
            else:
                tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [block, block],
    }
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (source / name).exists():
            shutil.copy(source / name, folder / name)
    return folder


def quantised(weight: torch.Tensor, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """e4m3 values and the scale of each block, whose largest value becomes 448."""
    rows, columns = weight.shape
    blocks = weight.float().reshape(rows // block, block, columns // block, block)
    scale = blocks.abs().amax((1, 3)) / 448
    return (blocks / scale[:, None, :, None]).reshape(rows, columns).to(torch.float8_e4m3fn), scale


def without_scales(skeleton: Skeleton) -> Skeleton:
    """The structure as a reader maps it that takes quantised weights for plain ones."""
    return Skeleton.model_validate(_dropped(skeleton.model_dump()))


def _dropped(tree: Any) -> Any:
    if isinstance(tree, dict):
        if "dequantize" in tree:
            return _dropped(tree["weight"])
        return {key: _dropped(value) for key, value in tree.items()}
    return [_dropped(part) for part in tree] if isinstance(tree, list | tuple) else tree

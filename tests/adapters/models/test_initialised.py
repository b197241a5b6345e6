from __future__ import annotations

from collections.abc import Callable
from math import isnan
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.initialised import looks_initialised, unevenness
from support.tiny_releases import TinyRelease


@pytest.mark.parametrize("draw", [torch.randn, torch.rand, lambda *shape: torch.randn(*shape) ** 3])
def test_independent_elements_are_even_whatever_their_distribution(draw: Callable[..., torch.Tensor]) -> None:
    torch.manual_seed(3)
    assert 0.5 < unevenness(draw(256, 192)) < 1.7


def test_rows_or_columns_of_their_own_size_are_not() -> None:
    torch.manual_seed(3)
    matrix = torch.randn(256, 192)
    sizes = torch.linspace(0.5, 1.5, 256)[:, None]
    assert unevenness(matrix * sizes) > 20
    assert unevenness((matrix * sizes).T) > 20


def test_a_matrix_that_says_nothing_is_left_out() -> None:
    assert isnan(unevenness(torch.zeros(32, 32)))
    assert isnan(unevenness(torch.full((32, 32), 0.5)))
    assert isnan(unevenness(torch.full((32, 32), float("inf"))))


@pytest.mark.parametrize("model_type", ["llama", "deepseek_v3", "mamba2"])
def test_a_fresh_model_looks_like_one(tiny: Callable[[str], TinyRelease], model_type: str) -> None:
    assert looks_initialised(tiny(model_type).release.checkpoint) is True


def test_trained_and_unreadable_weights(tmp_path: Path) -> None:
    torch.manual_seed(5)
    sizes = torch.rand(64)[:, None] + 0.3
    for name, tensors in {
        "trained": {f"layers.{n}.weight": torch.randn(64, 48) * sizes for n in range(4)},
        "packed": {"layers.0.weight": torch.zeros(64, 48, dtype=torch.uint8)},
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text('{"model_type": "llama"}')
        save_file(tensors, tmp_path / name / "model.safetensors")
    assert looks_initialised(open_release(str(tmp_path / "trained")).checkpoint) is False
    assert looks_initialised(open_release(str(tmp_path / "packed")).checkpoint) is None

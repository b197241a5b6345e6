"""Tiny models as saved checkpoints, opened releases and skeletons, made once for a test session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.base.release import Release
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.skeleton import build_skeleton
from support.tiny_models import save_tiny


@dataclass(frozen=True)
class TinyRelease:
    """One tiny model."""

    folder: Path

    @cached_property
    def release(self) -> Release:
        return open_release(str(self.folder))

    @cached_property
    def skeleton(self) -> Skeleton:
        return build_skeleton(self.release)

    @cached_property
    def stock(self) -> Any:
        """As transformers loads it, in fp32."""
        return self.load("float32")

    def load(self, dtype: str) -> Any:
        import torch
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(self.folder, dtype=getattr(torch, dtype)).eval()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TinyRelease]:
    """Gives the tiny release of a model type; each is made once."""
    made: dict[str, TinyRelease] = {}

    def get(model_type: str) -> TinyRelease:
        if model_type not in made:
            folder = tmp_path_factory.mktemp("tiny") / model_type
            made[model_type] = TinyRelease(save_tiny(model_type, folder))
        return made[model_type]

    return get

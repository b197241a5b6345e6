"""The size that is told before a capture is that of the file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
import transformers

from day0.adapters.base.run_store import RunStore
from day0.tasks.job import NumericsOptions
from day0.tasks.numerics.bundles.bundle_capture import capture_bundle
from day0.tasks.numerics.question import Question
from support.tiny_releases import TinyRelease

VOCABULARY, WIDTH, LAYERS = 6000, 64, 2


@pytest.fixture(scope="module")
def wide_vocabulary(tmp_path_factory: pytest.TempPathFactory) -> TinyRelease:
    folder = tmp_path_factory.mktemp("wide") / "llama"
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
    )
    torch.manual_seed(3)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return TinyRelease(folder)


@pytest.mark.parametrize(
    ("dtype", "kept", "bytes_of_logit"),
    [("bf16", 4 + 2 + 2 + 2, 4 + 2 + 2), ("fp32", 8 + 4 + 4 + 4, 8 + 4 + 4)],
)
def test_the_size_is_told_beforehand(
    dtype: str,
    kept: int,
    bytes_of_logit: int,
    wide_vocabulary: TinyRelease,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "reference.day0ref"
    asked = NumericsOptions(prompts="texts")
    tiny = wide_vocabulary
    question = Question(tiny.release, tiny.skeleton, RunStore(tmp_path / "store"), "Four words", asked=asked)
    with caplog.at_level(logging.INFO, "day0.reference"):
        capture_bundle(question, dtype, {}, path)
    logits = 128 * VOCABULARY * bytes_of_logit
    expected = logits + 128 * LAYERS * WIDTH * kept
    told = next(record for record in caplog.records if record.name == "day0.reference")
    assert f"about {expected / 2**20:.1f} MiB, {logits / 2**20:.1f} MiB of them" in told.getMessage()
    assert path.stat().st_size == pytest.approx(expected, rel=0.1)

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.skeleton import build_skeleton
from day0.adapters.models.stock_model import fp32_bytes, stock_logits
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
TOKENS = [3, 9, 27, 17, 51, 25, 11, 33]
ROOM = 4 * 2**30


def test_it_is_what_from_pretrained_gives(tiny: Tiny) -> None:
    model = tiny("qwen3_moe")
    found = stock_logits(model.release, model.skeleton, TOKENS, ROOM)
    with torch.no_grad():
        expected = model.stock(torch.tensor([TOKENS])).logits[0]
    assert found.reason == ""
    assert found.logits is not None
    torch.testing.assert_close(found.logits, expected, rtol=1e-5, atol=1e-6)
    assert found.name.startswith("transformers ")


def test_what_does_not_fit_is_not_started(tiny: Tiny) -> None:
    model = tiny("llama")
    found = stock_logits(model.release, model.skeleton, TOKENS, 2**29, command=["/nonexistent"])
    assert found.logits is None
    assert found.reason == "it would take about 1.0 GiB, 0.5 GiB may be used"


def test_the_size_counts_shared_weights_once(tiny: Tiny) -> None:
    model = tiny("llama")
    assert fp32_bytes(model.skeleton) == 4 * model.stock.num_parameters()


def test_a_release_that_lacks_a_weight_is_not_held_against_random_ones(tiny: Tiny, tmp_path: Path) -> None:
    folder = tmp_path / "gap"
    shutil.copytree(tiny("llama").folder, folder)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    name = "model.layers.1.mlp.up_proj.weight"
    shard = folder / index["weight_map"].pop(name)
    save_file({key: value for key, value in load_file(shard).items() if key != name}, shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    release = open_release(str(folder))
    found = stock_logits(release, build_skeleton(release), TOKENS, ROOM)
    assert found.logits is None
    assert f"no tensor for 1 parameters, among them {name}" in found.reason


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("{\"shape\": [8, 64]}\\nnull", "its logits are cut off"),
        ("{\"shape\": [3, 64]}\\nnull", "it gave logits of shape [3, 64] for 8 tokens"),
        ("[1]\\nnull", "[1]"),
        ("null", "it answered nothing"),
        ("", "the process that does loading the release by from_pretrained ended with status 0"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_a_reason(tiny: Tiny, answer: str, reason: str) -> None:
    model = tiny("llama")
    command = [sys.executable, "-c", f"import sys; sys.stdin.read(); print('{answer}')"]
    found = stock_logits(model.release, model.skeleton, TOKENS, ROOM, command=command)
    assert found.logits is None
    assert found.reason == reason


def test_a_process_that_hangs_is_ended(tiny: Tiny) -> None:
    model = tiny("llama")
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    found = stock_logits(model.release, model.skeleton, TOKENS, ROOM, command=command, seconds=0.5)
    assert found.reason == "loading the release by from_pretrained took more than 0.5 s"

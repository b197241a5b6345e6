from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from day0.adapters.base.errors import CheckpointError
from day0.adapters.base.target import Call
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.reference import StreamingReference
from day0.adapters.models.skeleton import build_skeleton
from support.tiny_models import TINY
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
TOKENS = [[3, 9, 27, 17, 51, 25, 11, 33, 35, 41, 59, 49], [5, 10, 20, 40, 16, 32, 44, 24, 48, 36, 4, 8]]


def reference_of(model: TinyRelease, **options: Any) -> StreamingReference:
    return StreamingReference(model.skeleton, model.release.checkpoint, **options)


@pytest.mark.parametrize("model_type", sorted(TINY))
def test_prefill_and_decode_are_bit_equal_to_stock(tiny: Tiny, model_type: str) -> None:
    model = tiny(model_type)
    reference = reference_of(model)
    step = [row[:1] for row in TOKENS]
    with torch.no_grad():
        prefill = model.stock(torch.tensor(TOKENS), use_cache=True)
        ours = reference.forward(TOKENS)
        assert torch.equal(ours, prefill.logits)
        decode = model.stock(torch.tensor(step), use_cache=True, cache=prefill.cache)
    assert torch.equal(reference.forward(step, continues=True), decode.logits)


def test_fp64_is_close_and_more_exact(tiny: Tiny) -> None:
    model = tiny("qwen3_moe")
    exact = reference_of(model, dtype="fp64").forward(TOKENS)
    assert exact.dtype == torch.float64
    torch.testing.assert_close(reference_of(model).forward(TOKENS).double(), exact, rtol=0, atol=1e-5)


def test_the_noise_arm_runs_the_same_code_on_the_same_inputs(tiny: Tiny) -> None:
    model = tiny("deepseek_v3")
    stock = model.load("bfloat16")
    reference = reference_of(model, noise="bf16")
    (state,) = reference.states(TOKENS, ["model.layers.1"])
    (hidden,) = [name for name in ("t0",) if name in state.inputs.tensors]
    assert state.noise is not None
    assert state.noise_inputs is not None
    given = state.inputs.tensors[hidden]
    assert torch.equal(state.noise_inputs.tensors[hidden], given.bfloat16())
    positions = torch.arange(given.shape[1])[None]
    rotary = stock.model.rotary_emb(given.bfloat16(), position_ids=positions)
    with torch.no_grad():
        expected = stock.model.layers[1](given.bfloat16(), position_embeddings=rotary, position_ids=positions)
    assert torch.equal(state.noise.tensors["t0"], expected)
    assert state.outputs.tensors["t0"].dtype == torch.float32


def test_each_byte_is_read_once_for_both_arms_and_kept_where_there_is_room(tiny: Tiny) -> None:
    model = tiny("llama")
    tied = model.release.checkpoint.tensors["model.embed_tokens.weight"].bytes
    stored = sum(info.bytes for info in model.release.checkpoint.tensors.values())
    reference = reference_of(model, noise="bf16", keep_bytes=2**30)
    first = reference.forward(TOKENS)
    assert reference.bytes_read == stored + tied
    assert torch.equal(reference.forward(TOKENS), first)
    assert reference.bytes_read == stored + tied


def test_known_outputs_are_not_computed_again(tiny: Tiny) -> None:
    model = tiny("qwen3_moe")
    whole = reference_of(model)
    states = list(whole.states(TOKENS))
    stored = {(state.node, state.index): state.outputs for state in states[:4]}

    def known(node: str, index: int) -> Call | None:
        return stored.get((node, index))

    resumed = reference_of(model)
    again = list(resumed.states(TOKENS, known=known))
    assert [state.reused for state in again] == [True] * 4 + [False] * (len(states) - 4)
    assert whole.logits is not None
    assert resumed.logits is not None
    assert torch.equal(resumed.logits, whole.logits)
    assert resumed.bytes_read < whole.bytes_read


def test_greedy_generation_is_that_of_transformers(tiny: Tiny) -> None:
    model = tiny("gemma3_text")
    with torch.no_grad():
        stock = model.stock.generate(
            torch.tensor(TOKENS[:1]), max_new_tokens=5, min_new_tokens=5, do_sample=False, eos_token_id=None
        )
    assert reference_of(model, keep_bytes=2**30).generate(TOKENS[0], 5) == stock[0, len(TOKENS[0]) :].tolist()


def test_missing_weights_are_named(tiny: Tiny, tmp_path: Path) -> None:
    state = {name: value.clone() for name, value in tiny("llama").stock.state_dict().items()}
    del state["model.layers.1.mlp.up_proj.weight"]
    save_file(state, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((tiny("llama").folder / "config.json").read_bytes())
    release = open_release(str(tmp_path))
    reference = StreamingReference(build_skeleton(release), release.checkpoint)
    seen: list[object] = []
    with pytest.raises(CheckpointError, match=r"mlp\.up_proj\.weight") as caught:
        seen.extend(reference.states(TOKENS))
    assert caught.value.code == "E331"


def test_a_truncated_shard_is_named(tiny: Tiny, tmp_path: Path) -> None:
    for path in tiny("llama").folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    release = open_release(str(tmp_path))
    skeleton = build_skeleton(release)
    shard = release.checkpoint.path("model.layers.0.mlp.up_proj.weight")
    shard.write_bytes(shard.read_bytes()[:2000])
    with pytest.raises(CheckpointError) as caught:
        StreamingReference(skeleton, release.checkpoint).forward(TOKENS)
    assert caught.value.code == "E331"
    assert shard.name in caught.value.message

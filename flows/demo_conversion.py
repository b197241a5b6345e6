"""From a llama-architecture GGUF file to a checkpoint in Hugging Face format: tensors, config, tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from day0.adapters.checkpoints.writer import write_checkpoint

_CONTROL = 3  # token types of GGUF: 1 normal, 2 unknown, 3 control, 4 user defined
_LAYER = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def convert(weights: Path, folder: Path, *, shards: int, progress: Callable[[str, int], None]) -> None:
    """Writes the whole release: bf16 safetensors, index, config, generation config, tokenizer.

    Args:
        weights: GGUF file of the llama architecture with a byte-level BPE tokenizer.
        folder: made.
        shards: number of safetensors files.
        progress: told what is being done and how many shards' worth of it is done.

    Raises:
        ValueError: the file is of another architecture or tokenizer.
    """
    progress("reading the GGUF file", 0)
    reader = GGUFReader(weights)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    if facts["general.architecture"] != "llama" or facts["tokenizer.ggml.model"] != "gpt2":
        raise ValueError(f"{weights} is not a llama model with a byte-level BPE tokenizer")
    config = _config(facts, tied=all(tensor.name != "output.weight" for tensor in reader.tensors))
    folder.mkdir(parents=True)
    write_checkpoint(folder, _tensors(reader, config, shards, progress), shards=shards)
    _write_json(folder / "config.json", config)
    ends = {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    _write_json(folder / "generation_config.json", ends)
    progress("writing the tokenizer", shards)
    _write_tokenizer(folder, facts)


def _config(facts: Mapping[str, Any], *, tied: bool) -> dict[str, Any]:
    heads = int(facts["llama.attention.head_count"])
    hidden = int(facts["llama.embedding_length"])
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "vocab_size": len(facts["tokenizer.ggml.tokens"]),
        "hidden_size": hidden,
        "intermediate_size": int(facts["llama.feed_forward_length"]),
        "num_hidden_layers": int(facts["llama.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(facts["llama.attention.head_count_kv"]),
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "max_position_embeddings": int(facts["llama.context_length"]),
        "rms_norm_eps": _short(facts["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": _short(facts["llama.rope.freq_base"]),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": int(facts["tokenizer.ggml.bos_token_id"]),
        "eos_token_id": int(facts["tokenizer.ggml.eos_token_id"]),
        "pad_token_id": int(facts["tokenizer.ggml.padding_token_id"]),
    }


def _short(value: float) -> float:
    """The shortest decimal that is the same single-precision number: GGUF stores 1e-05 as 9.99999974e-06."""
    return float(str(np.float32(value)))


def _tensors(
    reader: GGUFReader, config: Mapping[str, Any], shards: int, progress: Callable[[str, int], None]
) -> Iterator[tuple[str, str, tuple[int, ...], bytes]]:
    total = len(reader.tensors)
    for number, tensor in enumerate(reader.tensors):
        name = _name(tensor.name)
        progress(name, number * shards // total)
        shape = tuple(int(dim) for dim in reversed(tensor.shape))
        values = dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        if name.endswith("q_proj.weight"):
            values = unpermute(values, config["num_attention_heads"])
        elif name.endswith("k_proj.weight"):
            values = unpermute(values, config["num_key_value_heads"])
        yield name, "bf16", shape, to_bfloat16(values).tobytes()


def _name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem.startswith("blk."):
        _, layer, part = stem.split(".")
        return f"model.layers.{layer}.{_LAYER[part]}.{kind}"
    return f"{_TOP[stem]}.{kind}"


def unpermute(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Query or key weights [out, in] with rotary halves side by side again.

    llama.cpp interleaves the two halves of each head (`LlamaModel.permute` in its convert_hf_to_gguf.py);
    this is the inverse.
    """
    rows, columns = values.shape
    halves = values.reshape(heads, rows // heads // 2, 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The values' bfloat16 bit patterns, rounded to nearest, ties to even; finite values only."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _write_tokenizer(folder: Path, facts: Mapping[str, Any]) -> None:
    tokens = facts["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    # `smollm` in llama.cpp's table of pre-tokenizers: every digit apart, then GPT-2's byte-level pattern.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = facts["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {
        f"{role}_token": tokens[facts[f"tokenizer.ggml.{key}_token_id"]]
        for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
    }
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **special,
            "chat_template": facts["tokenizer.chat_template"],
            "clean_up_tokenization_spaces": False,
            "model_max_length": int(facts["llama.context_length"]),
        },
    )


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")

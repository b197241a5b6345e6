"""Architecture facts from config.json, whatever its dialect, each with the place it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from day0.adapters.base.dtypes import BITS, FROM_TORCH

from .record import Architecture

# Where composite configs keep the text model's part, the first that is there.
_TEXT_PARTS = (
    "text_config",
    "llm_config",
    "language_config",
    "text_model",
    "thinker_config",
    "decoder",
    "language_model",
)

# Fact -> the keys that published configs use for it, most usual first.
KEYS: dict[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "dim", "model_dim", "embed_dim"),
    "intermediate_size": ("intermediate_size", "ffn_hidden_size", "n_inner", "d_ff", "ffn_dim", "hidden_dim",
                          "inter_dim"),
    "moe_intermediate_size": ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size",
                              "moe_inter_dim", "expert_hidden_dim"),
    "layers": ("num_hidden_layers", "n_layer", "num_decoder_layers", "num_layers", "n_layers",
               "decoder_layers"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads", "decoder_attention_heads"),
    "kv_heads": ("num_key_value_heads", "n_head_kv", "num_kv_heads", "n_kv_heads", "multi_query_group_num",
                 "num_attention_groups", "kv_n_heads"),
    "head_dim": ("head_dim", "kv_channels", "attention_head_dim", "d_kv"),
    "vocab_size": ("vocab_size", "padded_vocab_size", "n_vocab"),
    "max_positions": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len",
                      "model_max_length", "max_sequence_length", "n_ctx"),
    "sliding_window": ("sliding_window", "sliding_window_size", "attention_window_size",
                       "local_attention"),
    "experts": ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "num_shared_expert",
                       "moe_num_shared_experts"),
    "top_k": ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "moe_top_k",
              "num_selected_experts", "moe_k", "n_activated_experts"),
    "mtp_layers": ("num_nextn_predict_layers", "num_mtp_modules", "num_mtp_layers", "mtp_num_layers",
                   "mtp_num_hidden_layers"),
}  # fmt: skip
# What an encoder-decoder says of its decoder, before what may be the encoder's.
_OF_DECODER = {"layers": ("decoder_layers", "num_decoder_layers"), "heads": ("decoder_attention_heads",)}
# Sections in which some configs keep a part of it: Mistral's params.json, DBRX.
_INNER = ("moe", "moe_config", "ffn_config", "attn_config")
_ACTIVATION = ("hidden_act", "activation_function", "hidden_activation", "ffn_activation")
# Keys that published configs use for the norms' epsilon.
NORM_EPS = (
    "rms_norm_eps",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "norm_epsilon",
    "norm_eps",
    "layernorm_epsilon",
)
_LARGEST = 2**53  # beyond it a JSON number is no longer exact
# Sane upper bounds of what is counted out one by one; the largest published are 126 layers and 896 experts.
_SANE = {"layers": 10_000, "experts": 100_000}


@dataclass(frozen=True)
class ConfigFacts:
    """The config read once.

    Attributes:
        architecture: the facts in one vocabulary.
        sources: JSON pointer into the record's facts -> where the value came from.
        text: the text model's part of the config.
        pointer: JSON pointer of that part; empty for the whole config.
        config: the whole config.
        absurd: statements that were ignored because no model can have them, as `key = value`.
    """

    architecture: Architecture
    sources: Mapping[str, str]
    text: Mapping[str, Any]
    pointer: str
    config: Mapping[str, Any]
    absurd: tuple[str, ...] = ()

    def integer(self, *keys: str) -> int:
        """The first of these keys of the text part that holds a count; 0 where none does."""
        return _first_integer(self.text, keys)[1]

    @property
    def text_type(self) -> str:
        """The model type of the text part; empty where it states none or what is no word."""
        value = self.text.get("model_type")
        return value if isinstance(value, str) else ""

    def integers(self, key: str) -> tuple[int, ...]:
        """A key of the text part that holds a list of integers, e.g. one a layer; empty where it does not."""
        value = self.text.get(key)
        if isinstance(value, list | tuple) and value and all(is_count(item) for item in value):
            return tuple(int(item) for item in value)
        return ()

    def words(self, key: str) -> tuple[str, ...]:
        """A key of the text part that holds a list of strings; empty where it does not."""
        value = self.text.get(key)
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        return ()

    @property
    def mtp_layers(self) -> int:
        """Layers of multi-token prediction that the config declares."""
        return self.integer(*KEYS["mtp_layers"])

    @property
    def tied(self) -> bool | None:
        """What the config says of tied embeddings; None where it does not say."""
        for part in (self.text, self.config):
            value = part.get("tie_word_embeddings")
            if isinstance(value, bool):
                return value
        return None


def read_config(config: Mapping[str, Any]) -> ConfigFacts:
    """All architecture facts that config.json states, and what the defaults of published classes imply."""
    text, pointer = text_part(config)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    absurd: list[str] = []

    def note(fact: str, value: Any, source: str) -> None:
        values[fact] = value
        sources[f"/architecture/{fact}"] = source

    for fact, keys in KEYS.items():
        if text.get("is_encoder_decoder") is True:
            keys = (*_OF_DECODER.get(fact, ()), *keys)
        key, number = _first_integer(text, keys)
        if not number:
            key, number = _inner_integer(text, keys) or (key, number)
        if number > _SANE.get(fact, _LARGEST):
            absurd.append(f"{key} = {number}")
        elif fact in Architecture.model_fields and number:
            note(fact, number, f"config.json#{pointer}/{key}")
    _derived(values, note, text, pointer)
    for fact, source_value in _words(config, text, pointer).items():
        note(fact, *source_value)
    return ConfigFacts(Architecture(**values), sources, text, pointer, config, tuple(absurd))


def text_part(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The part of the config that describes the text model, and its JSON pointer."""
    part, pointer = config, ""
    for _ in range(3):  # thinker_config/text_config is the deepest that was published
        key = next((key for key in _TEXT_PARTS if isinstance(part.get(key), Mapping) and part[key]), None)
        if key is None:
            break
        part, pointer = part[key], f"{pointer}/{key}"
    return part, pointer


def _derived(values: dict[str, Any], note: Any, text: Mapping[str, Any], pointer: str) -> None:
    """Facts that published configs leave to their class's default."""
    heads, hidden = values.get("heads", 0), values.get("hidden_size", 0)
    if heads and "kv_heads" not in values:
        if text.get("multi_query") is True:
            note("kv_heads", 1, f"config.json#{pointer}/multi_query")
        else:
            note("kv_heads", heads, "computed:heads (the config names no KV heads)")
    nope, rope = text.get("qk_nope_head_dim"), text.get("qk_rope_head_dim")
    if isinstance(nope, int) and isinstance(rope, int) and text.get("kv_lora_rank"):
        parts = f"{pointer}/qk_nope_head_dim + {pointer}/qk_rope_head_dim"
        note("head_dim", nope + rope, f"computed:config.json#{parts}")
    if heads and hidden and "head_dim" not in values and hidden % heads == 0:
        note("head_dim", hidden // heads, "computed:hidden_size / heads")
    if "shared_experts" not in values and is_count(text.get("shared_expert_intermediate_size")):
        note("shared_experts", 1, f"config.json#{pointer}/shared_expert_intermediate_size")


def _words(config: Mapping[str, Any], text: Mapping[str, Any], pointer: str) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {}
    names = config.get("architectures") or text.get("architectures")
    if isinstance(names, list) and names and isinstance(names[0], str):
        where = "" if config.get("architectures") else pointer
        found["architecture"] = (names[0], f"config.json#{where}/architectures/0")
    for part, where in ((config, ""), (text, pointer)):
        if isinstance(part.get("model_type"), str):
            found.setdefault("model_type", (part["model_type"], f"config.json#{where}/model_type"))
        for key in ("dtype", "torch_dtype"):
            if isinstance(part.get(key), str) and part[key] != "auto":
                found.setdefault("dtype", (short_dtype(part[key]), f"config.json#{where}/{key}"))
    position, key = _position(text)
    if position:
        found["position"] = (position, f"config.json#{pointer}/{key}")
    for key in _ACTIVATION:
        if isinstance(text.get(key), str):
            found.setdefault("activation", (text[key], f"config.json#{pointer}/{key}"))
    for key in NORM_EPS:
        value = text.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1:
            found.setdefault("norm_eps", (float(value), f"config.json#{pointer}/{key}"))
    code = custom_code(config)
    if code:
        found["custom_code"] = (code, "config.json#/auto_map")
    return found


def _position(text: Mapping[str, Any]) -> tuple[str, str]:
    """`rope`, `rope:yarn`, `alibi` or `learned`, and the key that says so."""
    for key in ("rope_parameters", "rope_scaling"):
        scaling = text.get(key)
        if isinstance(scaling, Mapping) and scaling:
            kind = scaling.get("rope_type", scaling.get("type"))
            plain = not isinstance(kind, str) or kind == "default"
            return ("rope" if plain else f"rope:{kind}"), key
    if text.get("alibi") is True:
        return "alibi", "alibi"
    for key in ("rope_theta", "rotary_emb_base", "rotary_pct", "rotary_dim"):
        if key in text:
            return "rope", key
    return ("learned", "n_positions") if "n_positions" in text else ("", "")


def custom_code(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The repository's own classes that `auto_map` names, at any depth, sorted."""
    found: set[str] = set()
    for _, part in nested_mappings(config):
        mapping = part.get("auto_map")
        if isinstance(mapping, Mapping):
            for value in mapping.values():
                items = value if isinstance(value, list) else [value]
                found.update(item for item in items if isinstance(item, str))
    return tuple(sorted(found))


def nested_mappings(value: Any, pointer: str = "", depth: int = 6) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """The mapping itself and all mappings inside it, outermost first, with their JSON pointers."""
    if depth < 0 or not isinstance(value, Mapping):
        return ()
    inner = [
        item for key, part in value.items() for item in nested_mappings(part, f"{pointer}/{key}", depth - 1)
    ]
    return ((pointer, value), *inner)


def short_dtype(name: str) -> str:
    """A torch dtype's name in the short vocabulary; the name itself where it is not in there."""
    bare = name.removeprefix("torch.")
    return FROM_TORCH.get(bare, bare if bare in BITS else name)


def _first_integer(part: Mapping[str, Any], keys: Sequence[str]) -> tuple[str, int]:
    for key in keys:
        value = part.get(key)
        if isinstance(value, list | tuple):  # one value a layer: the largest stands for the whole
            counts = [int(item) for item in value if is_count(item)]
            value = max(counts, default=None)
        if is_count(value):
            return key, int(value)  # type: ignore[arg-type]  # is_count proves it a number
    return "", 0


def _inner_integer(text: Mapping[str, Any], keys: Sequence[str]) -> tuple[str, int] | None:
    """The same from the sections within the text model's part."""
    for section in _INNER:
        part = text.get(section)
        if isinstance(part, Mapping):
            key, number = _first_integer(part, keys)
            if number:
                return f"{section}/{key}", number
    return None


def is_count(value: Any) -> bool:
    """Whether it is a whole number from 0 on that JSON carries exactly, as an integer or as a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < _LARGEST and value == int(value)

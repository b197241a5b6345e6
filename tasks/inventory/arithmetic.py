"""Shapes that follow from the config's numbers alone, without building anything: projections, experts, norms.

Only for model types whose modules are known to be shaped by these formulas (the `__init__` methods in
transformers' `modeling_*.py` of that type), and only where each number is stated once for all layers. What
is fused, transposed or named otherwise has no formula here and is left to the set that a worker derives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ..finding import Finding, Subject, make_finding
from .config_facts import KEYS, ConfigFacts
from .counts import Counted
from .index_sets import format_indices
from .readable import plural
from .seen import Seen

MODEL_TYPES = frozenset({
    "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next", "deepseek_v2",
    "deepseek_v3", "kimi_k2", "glm4_moe", "gemma", "gemma2", "gemma3_text", "gpt_oss", "olmo", "olmo2", "phi",
    "phi3", "granite", "cohere", "smollm3", "seed_oss",
})  # fmt: skip
# Their class gives heads a width of its own where the config states none.
_OWN_HEAD_DIM = frozenset(
    {"qwen3", "qwen3_moe", "qwen3_next", "gemma", "gemma2", "gemma3_text", "glm4_moe", "gpt_oss"}
)
_TOLERANCE = 0.05  # formats that pack an odd number of bits pad rows to whole words
_UP = ("gate_proj", "up_proj", "w1", "w3")
_DOWN = ("down_proj", "w2")
_LAYER_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                "post_feedforward_layernorm")  # fmt: skip

Shape = tuple[int, ...]


@dataclass(frozen=True)
class _Expected:
    """The shapes that a tensor may have, and the config's words for them."""

    shapes: Sequence[Shape]
    formula: str


class _Formulas:
    """The formulas of one config.

    Args:
        facts: the config.
    """

    def __init__(self, facts: ConfigFacts) -> None:
        known = facts.architecture
        self.hidden, self.heads, self.kv = known.hidden_size, known.heads, known.kv_heads
        self.head = known.head_dim
        self.dense, self.moe = known.intermediate_size, known.moe_intermediate_size or known.intermediate_size
        self.experts, self.vocab = known.experts, known.vocab_size
        model_type = facts.text_type
        if model_type in _OWN_HEAD_DIM and not facts.text.get("head_dim"):
            self.head = 0
        self.shared = facts.integer("shared_expert_intermediate_size") or known.shared_experts * self.moe
        self.q_rank, self.kv_rank = facts.integer("q_lora_rank"), facts.integer("kv_lora_rank")
        self.nope, self.rope = facts.integer("qk_nope_head_dim"), facts.integer("qk_rope_head_dim")
        self.value = facts.integer("v_head_dim")
        self.gated = 2 if model_type == "qwen3_next" or facts.text.get("attn_output_gate") is True else 1

    def expected(self, segments: Sequence[str]) -> _Expected | None:
        """What a tensor of that name must be; None where no formula holds."""
        if segments[-2:-1] == ("experts",):
            return self._stacked(segments[-1].removesuffix("_blocks"))
        if segments[-1] not in ("weight", "bias", "qweight", "weight_packed") or len(segments) < 2:
            return None
        module, around = segments[-2], set(list(segments[:-2]))
        found = self._attention(module) if "self_attn" in around else self._other(module, list(segments[:-2]))
        if found is None or any(0 in shape for shape in found.shapes):
            return None
        if segments[-1] == "bias" and len(found.shapes[0]) == 2:
            return _Expected([(shape[0],) for shape in found.shapes], f"{found.formula.split(',')[0]}]")
        return found

    def _stacked(self, name: str) -> _Expected | None:
        """All experts in one tensor, either way round; their number is held against the config elsewhere."""
        if name not in ("gate_up_proj", "down_proj") or not (self.experts and self.moe and self.hidden):
            return None
        width = 2 * self.moe if name == "gate_up_proj" else self.moe
        word = "moe_intermediate_size" + (" x 2" if name == "gate_up_proj" else "")
        rows = (width, self.hidden) if name == "gate_up_proj" else (self.hidden, width)
        shapes = [(self.experts, *rows), (self.experts, *rows[::-1])]
        return _Expected(shapes, f"[experts, {word} and hidden_size]")

    def _attention(self, module: str) -> _Expected | None:
        if self.kv_rank:
            return self._latent(module)
        width = self.heads * self.head
        if module == "q_proj":
            gate = " x 2 (gate)" if self.gated == 2 else ""
            return _one((width * self.gated, self.hidden), f"[heads x head_dim{gate}, hidden_size]")
        if module in ("k_proj", "v_proj"):
            return _one((self.kv * self.head, self.hidden), "[kv_heads x head_dim, hidden_size]")
        return _one((self.hidden, width), "[hidden_size, heads x head_dim]") if module == "o_proj" else None

    def _latent(self, module: str) -> _Expected | None:
        query = self.heads * (self.nope + self.rope)
        table: Mapping[str, tuple[Shape, str]] = {
            "q_proj": ((query, self.hidden), "[heads x (nope + rope), hidden_size]"),
            "q_a_proj": ((self.q_rank, self.hidden), "[q_lora_rank, hidden_size]"),
            "q_b_proj": ((query, self.q_rank), "[heads x (nope + rope), q_lora_rank]"),
            "kv_a_proj_with_mqa": (
                (self.kv_rank + self.rope, self.hidden),
                "[kv_lora_rank + rope, hidden_size]",
            ),
            "kv_b_proj": (
                (self.heads * (self.nope + self.value), self.kv_rank),
                "[heads x (nope + v_head_dim), kv_lora_rank]",
            ),
            "o_proj": ((self.hidden, self.heads * self.value), "[hidden_size, heads x v_head_dim]"),
            "q_a_layernorm": ((self.q_rank,), "[q_lora_rank]"),
            "kv_a_layernorm": ((self.kv_rank,), "[kv_lora_rank]"),
        }
        return _one(*table[module]) if module in table else None

    def _other(self, module: str, path: Sequence[str]) -> _Expected | None:
        if module in _UP + _DOWN:
            width, word = self._width(path)
            if width:
                up = module in _UP
                shape = (width, self.hidden) if up else (self.hidden, width)
                return _one(shape, f"[{word}, hidden_size]" if up else f"[hidden_size, {word}]")
        if module in ("gate", "router") and self.experts and path[-1:] in (["mlp"], ["block_sparse_moe"]):
            return _one((self.experts, self.hidden), "[experts, hidden_size]")
        in_layer = path[-1:] == ["{l}"]
        norm = (module in _LAYER_NORMS and in_layer) or (module == "norm" and path == ["model"])
        return _one((self.hidden,), "[hidden_size]") if norm else None

    def _width(self, path: Sequence[str]) -> tuple[int, str]:
        if not path:
            return 0, ""
        if path[-1] in ("shared_expert", "shared_experts"):
            return self.shared, "shared experts' width"
        if path[-2:] == ["experts", "{e}"]:
            return self.moe, "moe_intermediate_size"
        return (self.dense, "intermediate_size") if path[-1] in ("mlp", "feed_forward") else (0, "")


def _one(shape: Shape, formula: str) -> _Expected:
    return _Expected([shape], formula)


def arithmetic_findings(seen: Seen) -> Iterable[Finding]:
    """Weights of the text model whose shape is not the one that the config's numbers give; one a pattern."""
    wrong: dict[tuple[str, Shape], tuple[Counted, _Expected, list[int]]] = {}
    for item, expected in _checkable(seen):
        if not _fits(item, expected):
            key = (item.group.pattern.text, item.group.shape)
            found = wrong.setdefault(key, (item, expected, []))
            if item.group.layer is not None:
                found[2].append(item.group.layer)
    for (text, shape), (item, expected, layers) in wrong.items():
        where = f" in {'layer' if len(layers) == 1 else 'layers'} {format_indices(layers)}" if layers else ""
        wanted = list(expected.shapes[0])
        message = f"{text} has {list(shape)}{where}, the config gives {wanted} as {expected.formula}"
        subject = Subject(kind="tensor", name=item.group.example)
        evidence = [f"config.json#{seen.facts.pointer}", f"header of {item.group.example}"]
        yield make_finding("INV027", subject, message, evidence=evidence)


def arithmetic_checked(seen: Seen) -> Sequence[str]:
    """What of the tensors was held against the config's numbers, in words; empty for nothing."""
    if not seen.counted:
        return ()
    known = seen.facts.architecture
    tensors = sum(item.group.count for item, _ in _checkable(seen))
    said = [
        plural(known.layers, "layer") if known.layers and seen.stack else "",
        plural(known.experts, "expert") if known.experts else "",
        f"shapes of {plural(tensors, 'weight')}" if tensors else "",
    ]
    return [text for text in said if text]


def arithmetic_misfits(seen: Seen) -> int:
    """Weights whose shape is not the one that the config's numbers give."""
    return sum(item.group.count for item, expected in _checkable(seen) if not _fits(item, expected))


def _checkable(seen: Seen) -> Iterable[tuple[Counted, _Expected]]:
    """Weights of the text model with the shape that they must have."""
    text = seen.facts.text
    if seen.facts.text_type not in MODEL_TYPES:
        return
    if seen.release.checkpoint.format != "safetensors":
        return
    if any(isinstance(text.get(key), list) for keys in KEYS.values() for key in keys):
        return  # numbers that differ from layer to layer
    formulas = _Formulas(seen.facts)
    known: dict[str, _Expected | None] = {}
    for item in seen.counted:
        pattern = item.group.pattern
        if item.place.part != "text" or not item.place.counts:
            continue
        if pattern.text not in known:
            known[pattern.text] = formulas.expected(pattern.segments)
        expected = known[pattern.text]
        if expected is not None:
            yield item, expected


def _fits(item: Counted, expected: _Expected) -> bool:
    if (
        len(expected.shapes[0]) == 3 and item.group.shape and item.group.shape[0]
    ):  # stacked experts, one by one
        each = item.params / item.group.count / item.group.shape[0]
        alike = any(item.group.shape[1:] == shape[1:] for shape in expected.shapes)
        return abs(each - prod(expected.shapes[0][1:])) <= _TOLERANCE * each if item.packing else alike
    if item.packing:
        held = item.params / item.group.count
        return any(abs(held - prod(shape)) <= _TOLERANCE * prod(shape) for shape in expected.shapes)
    return item.group.shape in expected.shapes

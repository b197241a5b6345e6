"""What the health checks compute and send: the model's own shapes, capped to bounded time and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..inventory.record import InventoryFacts
from ..thresholds import (
    SCALE_ATTENTION_SCORES,
    SCALE_COLLECTIVE_ELEMENTS,
    SCALE_GEMM_FLOPS,
    SCALE_GEMM_WEIGHT,
)

PREFILL_TOKENS = 256
DECODE_BATCH = 8
SAMPLES = 5

_PLAIN = ("bf16", "fp16", "fp32", "fp64")
# Where the config says nothing: sizes of a small model, so that the device is tested all the same.
_HIDDEN, _INTERMEDIATE, _HEADS, _WIDTH, _VOCABULARY = 1024, 4096, 16, 64, 32_000


@dataclass(frozen=True)
class Case:
    """One computation with a known answer.

    Attributes:
        operation: `gemm` [rows, inner, columns], `attention` [batch, heads, length, width] or `topk`
            [rows, columns, k].
        shape: what is computed.
        wanted: the model's own shape, before any cap.
        dtype: short name.
    """

    operation: str
    shape: tuple[int, ...]
    wanted: tuple[int, ...]
    dtype: str

    @property
    def capped(self) -> str:
        """In words where the shape was capped; empty where it was not."""
        return "" if self.shape == self.wanted else f"capped from {'x'.join(map(str, self.wanted))}"

    @property
    def job(self) -> Mapping[str, Any]:
        """As the worker is asked."""
        return {"operation": self.operation, "shape": list(self.shape), "dtype": self.dtype}


@dataclass(frozen=True)
class Exchange:
    """What the collectives send.

    Attributes:
        elements: a rank contributes: one token's activations (latency), then a prefill's (bandwidth).
        wanted: the same before any cap.
        dtypes: short names.
        meaning: of the larger size, in words.
    """

    elements: tuple[int, ...]
    wanted: tuple[int, ...]
    dtypes: tuple[str, ...]
    meaning: str

    @property
    def notes(self) -> Mapping[int, str]:
        """Elements -> what they stand for, and from what they were capped."""
        found = {}
        for elements, wanted in zip(self.elements, self.wanted, strict=True):
            what = "one token" if wanted == self.wanted[0] else self.meaning
            found[elements] = what if elements == wanted else f"{what}, capped from {wanted:,} elements"
        return found


def compute_dtype(facts: InventoryFacts, asked: str | None) -> str:
    """The dtype in which the target multiplies: as asked, else the release's own if that is a plain one."""
    if asked in _PLAIN:
        return str(asked)
    return facts.architecture.dtype if facts.architecture.dtype in _PLAIN else "bf16"


def compute_cases(facts: InventoryFacts, device: str, dtype: str) -> Sequence[Case]:
    """Products of the feed-forward and (where there are experts) of one expert, attention, and the top-k."""
    architecture = facts.architecture
    hidden = architecture.hidden_size or _HIDDEN
    columns = [architecture.intermediate_size or (0 if architecture.moe_intermediate_size else _INTERMEDIATE)]
    columns.append(architecture.moe_intermediate_size if architecture.experts else 0)
    cases = [_gemm(hidden, width, device, dtype) for width in dict.fromkeys(columns) if width]
    cases.append(_attention(architecture.heads or _HEADS, architecture.head_dim or _WIDTH, device, dtype))
    routed = architecture.experts and architecture.top_k
    choices = architecture.experts if routed else architecture.vocab_size or _VOCABULARY
    k = min(architecture.top_k if routed else 50, choices)
    # Scores stand out by k whole steps, which bf16 tells apart up to 256.
    k = min(k, 128)
    rows = min(PREFILL_TOKENS if routed else DECODE_BATCH, PREFILL_TOKENS)
    shape = (rows, choices, k)
    cases.append(Case("topk", shape, shape, "fp32"))
    return cases


def exchange_sizes(facts: InventoryFacts, device: str, dtype: str, offered: Sequence[str]) -> Exchange:
    """Sizes of the collectives: activations of one token and of a prefill (with experts its dispatch).

    Args:
        facts: the inventory.
        device: torch device type.
        dtype: of the activations.
        offered: dtypes that the target's collectives take.
    """
    architecture = facts.architecture
    hidden = architecture.hidden_size or _HIDDEN
    fan_out = architecture.top_k if architecture.experts and architecture.top_k else 1
    wanted = (hidden, hidden * PREFILL_TOKENS * fan_out)
    largest = _cap(SCALE_COLLECTIVE_ELEMENTS, device)
    dtypes = tuple(kind for kind in dict.fromkeys((dtype, "fp32")) if kind in offered) or tuple(offered[:1])
    meaning = f"{PREFILL_TOKENS} tokens x hidden size {hidden}" + (f" x top-{fan_out}" if fan_out > 1 else "")
    return Exchange(
        elements=tuple(min(size, largest) for size in wanted),
        wanted=wanted,
        dtypes=dtypes,
        meaning=meaning,
    )


def _gemm(inner: int, columns: int, device: str, dtype: str) -> Case:
    wanted = (PREFILL_TOKENS, inner, columns)
    width = max(1, min(columns, SCALE_GEMM_WEIGHT // inner))
    rows = max(1, min(PREFILL_TOKENS, _cap(SCALE_GEMM_FLOPS, device) // (2 * inner * width)))
    return Case("gemm", (rows, inner, width), wanted, dtype)


def _attention(heads: int, width: int, device: str, dtype: str) -> Case:
    wanted = (1, heads, PREFILL_TOKENS, width)
    most = _cap(SCALE_ATTENTION_SCORES, device) // PREFILL_TOKENS**2
    return Case("attention", (1, max(1, min(heads, most)), PREFILL_TOKENS, width), wanted, dtype)


def _cap(limits: Mapping[str, int], device: str) -> int:
    return limits["cpu" if device == "cpu" else "other"]

"""What a config states about quantised weights, in one form for all methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class WeightStatement:
    """How one group of modules has its weights quantised.

    Attributes:
        kind: `float` or `int`; empty where that is not stated.
        bits: of a number; 0 where that is not stated.
        strategy: `block`, `group`, `channel`, `tensor`; empty where that is not stated.
        group: columns that share a scale; 0: none are stated.
        block: rows and columns that share a scale, or None.
        symmetric: whether there are no zero points.
    """

    kind: str = ""
    bits: int = 0
    strategy: str = ""
    group: int = 0
    block: tuple[int, int] | None = None
    symmetric: bool = True


@dataclass(frozen=True)
class Statement:
    """A config's section about quantisation.

    Attributes:
        method: `quant_method`, or empty.
        format: of the method's storage (`pack-quantized`, `gptq_v2`, `gemm`), or empty.
        weights: one for each group of modules that the config tells apart; at least one.
    """

    method: str = ""
    format: str = ""
    weights: Sequence[WeightStatement] = field(default=(WeightStatement(),))

    @property
    def words(self) -> str:
        """The method and its format, for a sentence."""
        return " ".join(word for word in (self.method or "an unnamed method", self.format) if word)


def statement_of(config: Mapping[str, Any]) -> Statement:
    """The statement of config.json, of its text part where the whole has none."""
    stated = quantisation(config)
    method = _word(stated.get("quant_method"))
    if method == "compressed-tensors":
        groups = stated.get("config_groups")
        groups = list(groups.values()) if isinstance(groups, Mapping) else []
        weights = [_compressed(group) for group in groups if isinstance(group, Mapping)]
        return Statement(method, _word(stated.get("format")), weights or [WeightStatement()])
    if method in ("gptq", "awq"):
        bits = _size(stated.get("bits", stated.get("w_bit")))
        group = stated.get("group_size", stated.get("q_group_size"))
        one = WeightStatement("int", bits, "group", -1 if group == -1 else _size(group))
        form = stated.get("checkpoint_format" if method == "gptq" else "version", stated.get("format"))
        return Statement(method, _word(form).lower(), [one])
    block = pair(stated.get("weight_block_size"))
    return Statement(method, "", [WeightStatement("", 0, "block" if block else "", 0, block)])


def quantisation(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The section of the config, or of its text part; empty where there is none."""
    for part in (config, config.get("text_config"), config.get("language_config")):
        found = part.get("quantization_config") if isinstance(part, Mapping) else None
        if isinstance(found, Mapping):
            return found
    return {}


def pair(block: Any) -> tuple[int, int] | None:
    """Rows and columns of a block, or None where the config says something else."""
    right = isinstance(block, Sequence) and not isinstance(block, str) and len(block) == 2
    if not right or not all(type(size) is int and size > 0 for size in block):
        return None
    return block[0], block[1]


def _compressed(group: Mapping[str, Any]) -> WeightStatement:
    weights = group.get("weights")
    weights = weights if isinstance(weights, Mapping) else {}
    return WeightStatement(
        kind=_word(weights.get("type")),
        bits=_size(weights.get("num_bits")),
        strategy=_word(weights.get("strategy")),
        group=_size(weights.get("group_size")),
        block=pair(weights.get("block_structure")),
        symmetric=weights.get("symmetric") is not False,
    )


def _word(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= 80 else ""


def _size(value: Any) -> int:
    return value if type(value) is int and 0 < value < 2**31 else 0

"""Rotary embedding in real numbers, for models that turn pairs as complex ones."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, List, Mapping

from day0_worker.workarounds import Workaround

_HEADS_AT = {"llama4": 2, "llama4_text": 2, "deepseek_v2": 1}
"""Model type -> dimension of the heads in what is turned: [batch, length, heads, d] or [batch, heads, length,
d]. The families of transformers 5 that call `view_as_complex` in text layers."""

_TURNS = "apply_rotary_emb"


class RealRotary(Workaround):
    """`real_rotary`: (a + ib)(cos + i sin) written out; pairs of [.., d/2, 2] stand for complex numbers.

    Nodes that are run alone still take and give complex tensors at the worker's door, on the CPU.
    """

    name = "real_rotary"
    replaces = ("aten.polar.default", "aten.view_as_complex.default", "aten.view_as_real.default")

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        self._tables: List[str] = []

    def applies(self, call: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
        """See `Workaround`: complex numbers in a model type whose rotary embedding is known."""
        complex_ = any(dtype.startswith("complex") for dtype in call["dtypes"])
        return bool((complex_ or call["op"] in self.replaces) and _model_type(config) in _HEADS_AT)

    def apply(self, model: Any) -> None:
        """See `Workaround`: changes how the model's tables are made and used."""
        heads_at = _HEADS_AT[_model_type(model.config.get_text_config().to_dict())]
        module = sys.modules[_text_class(model).__module__]
        _turn_real_pairs(vars(module), heads_at)
        for path, part in model.named_modules():
            if type(part).__name__.endswith("RotaryEmbedding") and hasattr(part, "inv_freq"):
                part.forward = _real_table(part)
                if path not in self._tables:
                    self._tables.append(path)

    def received(self, node: str, value: Any) -> Any:
        """See `Workaround`."""
        import torch

        return torch.view_as_real(value).contiguous() if value.is_complex() else value

    def returned(self, node: str, value: Any) -> Any:
        """See `Workaround`."""
        import torch

        return torch.view_as_complex(value.contiguous()) if node in self._tables else value


def _model_type(config: Mapping[str, Any]) -> str:
    text = config.get("text_config")
    return str((text if isinstance(text, Mapping) else config).get("model_type", ""))


def _text_class(model: Any) -> Any:
    """The class of a part of the model whose module holds the function that turns."""
    for part in model.modules():
        if _TURNS in vars(sys.modules[type(part).__module__]):
            return type(part)
    raise LookupError(f"no module of {type(model).__name__} has a function {_TURNS}")


def _real_table(part: Any) -> Callable[..., Any]:
    """Cosines and sines of the positions, [batch, length, d/2, 2]."""

    def forward(x: Any, position_ids: Any) -> Any:
        import torch

        angles = position_ids[..., None].float() * part.inv_freq.to(device=x.device, dtype=torch.float)
        return torch.stack([angles.cos(), angles.sin()], dim=-1) * part.attention_scaling

    return forward


def _turn_real_pairs(names: Dict[str, Any], heads_at: int) -> None:
    original = names[_TURNS]
    if getattr(original, "day0_real", False):
        return

    def apply_rotary_emb(xq: Any, xk: Any, freqs_cis: Any) -> Any:
        if freqs_cis.is_complex():  # a model of the same family without this way around
            return original(xq, xk, freqs_cis)
        table = freqs_cis.unsqueeze(heads_at).to(xq.device)
        return turned(xq, table), turned(xk, table)

    apply_rotary_emb.day0_real = True  # type: ignore[attr-defined]  # a mark of our own
    names[_TURNS] = apply_rotary_emb


def turned(value: Any, table: Any) -> Any:
    """Each pair of neighbours in the last dimension turned by its angle.

    Args:
        value: [.., d].
        table: [.., d/2, 2], cosines and sines, broadcast against the pairs.
    """
    import torch

    pairs = value.float().reshape(*value.shape[:-1], -1, 2)
    first, second, cos, sin = pairs[..., 0], pairs[..., 1], table[..., 0], table[..., 1]
    both = torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-1)
    return both.flatten(-2).type_as(value)

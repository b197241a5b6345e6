"""The phases in which a model's operators are captured, and how each is run on meta."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..base.operator_call import OperatorCall
from ..base.values import Anomaly
from .recorder import capture_calls

__all__ = ["capture_calls", "capture_phases", "long_prefill_tokens", "text_config"]

PREFILL_TOKENS = 64
LONG_TOKENS = 4096
"""Long enough for sparse indexers and chunked attention to take their long path (DeepSeek-V4 differs
here)."""

CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state")
"""What model families call the cache that a forward returns and takes."""


def capture_phases(
    model: torch.nn.Module, config: Any, *, report: Callable[[Anomaly], None] | None = None
) -> list[OperatorCall]:
    """All operator calls of a short prefill, one decode step, a long prefill and the sampling that follows.

    Args:
        model: transformers model on the meta device, built from the release's own config.
        config: its transformers config.
        report: receives one anomaly (`phase_not_captured`) for each phase that could not be run; such a phase
            contributes nothing and must not count as covered.
    """
    was_training = model.training
    model.eval()
    try:
        return _capture_all(model, config, report or _ignore)
    finally:
        model.train(was_training)


def _capture_all(
    model: torch.nn.Module, config: Any, report: Callable[[Anomaly], None]
) -> list[OperatorCall]:
    calls: list[OperatorCall] = []
    for phase, prepare, run in _steps(model, config):
        try:
            found = capture_calls(model, run, phase=phase, prepare=prepare)
        except Exception as error:  # third-party model code: recorded, and the other phases still count
            report(_not_captured(phase, error))
            continue
        try:
            told_cpu = capture_calls(model, run, phase=phase, prepare=prepare, as_cpu=True)
        except Exception:  # code that makes CPU tensors of its own cannot be told so
            told_cpu = found
        calls += _branched(found, told_cpu)
    return calls


def _branched(found: list[OperatorCall], told_cpu: list[OperatorCall]) -> list[OperatorCall]:
    """Both lists as one, calls that only one of them has marked as such."""
    here, there = ({call.signature for call in calls} for calls in (found, told_cpu))
    return [
        *(
            call if call.signature in there else call.model_copy(update={"branch": "accelerator"})
            for call in found
        ),
        *(call.model_copy(update={"branch": "cpu"}) for call in told_cpu if call.signature not in here),
    ]


_Step = tuple[str, Callable[[], None], Callable[[], None]]


def _steps(model: torch.nn.Module, config: Any) -> list[_Step]:
    """Each phase with what prepares it and what is recorded."""
    inputs: dict[str, Any] = {}

    def tokens(length: int) -> Callable[[], None]:
        return lambda: inputs.update(_inputs(config, length))

    def cache() -> None:
        output = model(**_inputs(config, PREFILL_TOKENS))
        inputs.update(_inputs(config, 1), **_cache_of(output))

    def forward() -> None:
        model(**inputs)
        inputs.clear()

    vocabulary = getattr(text_config(config), "vocab_size", 0)
    scores: list[torch.Tensor] = []
    steps: list[_Step] = [
        ("prefill", tokens(PREFILL_TOKENS), forward),
        ("decode", cache, forward),
        ("sampling", lambda: scores.extend(_logits(vocabulary)), lambda: _sample(*scores[-2:])),
    ]
    if (length := long_prefill_tokens(config)) > PREFILL_TOKENS:
        steps.insert(2, ("long_prefill", tokens(length), forward))
    return steps


def _ignore(anomaly: Anomaly) -> None:
    """Nobody asked."""


def _not_captured(phase: str, error: Exception) -> Anomaly:
    text = " ".join(str(error).split())[:300]
    return Anomaly(
        code="phase_not_captured",
        subject=phase,
        message=f"operators of phase {phase} could not be captured: {type(error).__name__}: {text}",
    )


def text_config(config: Any) -> Any:
    """The text part of a composite config, or the config itself."""
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def long_prefill_tokens(config: Any) -> int:
    """Tokens of the long prefill: beyond the sliding window and `LONG_TOKENS`, within the positions."""
    text = text_config(config)
    windows = [getattr(text, name, None) for name in ("sliding_window", "attention_chunk_size")]
    wanted = max([LONG_TOKENS, *(window + 1 for window in windows if isinstance(window, int))])
    positions = getattr(text, "max_position_embeddings", None)
    return min(wanted, positions) if isinstance(positions, int) and positions > 0 else wanted


def _inputs(config: Any, length: int) -> dict[str, Any]:
    ids = torch.zeros((1, length), dtype=torch.int64, device="meta")
    if getattr(config, "is_encoder_decoder", False):
        return {"input_ids": ids, "decoder_input_ids": ids[:, :1], "use_cache": True}
    return {"input_ids": ids, "use_cache": True}


def _cache_of(output: Any) -> dict[str, Any]:
    for name in CACHE_NAMES:
        if (cache := getattr(output, name, None)) is not None:
            return {name: cache}
    raise ValueError(
        f"the forward of {type(output).__name__} returned no cache under {', '.join(CACHE_NAMES)}"
    )


def _logits(vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.zeros((1, PREFILL_TOKENS), dtype=torch.int64, device="meta")
    return ids, torch.empty((1, vocabulary), dtype=torch.float32, device="meta")


def _sample(ids: torch.Tensor, logits: torch.Tensor) -> None:
    """What `generate` does with the last logits: as greedy search and as sampling with its usual settings."""
    from transformers.generation.logits_process import (
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    torch.argmax(logits, dim=-1)
    for process in (
        RepetitionPenaltyLogitsProcessor(1.1),
        TemperatureLogitsWarper(0.7),
        TopKLogitsWarper(50),
        TopPLogitsWarper(0.9),
    ):
        logits = process(ids, logits)
    tokens = torch.multinomial(torch.softmax(logits, dim=-1), num_samples=1).squeeze(1)
    torch.cat([ids, tokens[:, None]], dim=-1)

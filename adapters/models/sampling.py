"""What `generate` does with the logits of the last position, as one forward leaves them."""

from __future__ import annotations

import torch

SEEN_TOKENS = 64
"""Tokens of the sequence so far, which the repetition penalty looks up."""


def scores(vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens so far [1, `SEEN_TOKENS`], logits [1, vocabulary] in fp32 as generate casts them; on meta."""
    ids = torch.zeros((1, SEEN_TOKENS), dtype=torch.int64, device="meta")
    return ids, torch.empty((1, vocabulary), dtype=torch.float32, device="meta")


def sample(ids: torch.Tensor, logits: torch.Tensor) -> None:
    """Greedy search, then sampling with its usual settings; the token is laid behind the others.

    Args:
        ids: [1, T].
        logits: [1, vocabulary].
    """
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

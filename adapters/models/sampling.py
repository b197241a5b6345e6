"""What `generate` does around the forwards: masks and positions, choosing a token, stopping."""

from __future__ import annotations

import contextlib
import functools
from typing import Any
from unittest import mock

import torch

SEEN_TOKENS = 64
"""Tokens of the prompt, which the repetition penalty looks up."""
_NEW_TOKENS = 2  # the second one is chosen by a step that goes on from a cache
_SETTINGS: dict[str, Any] = {
    "temperature": 0.7, "top_k": 50, "top_p": 0.9, "repetition_penalty": 1.1
}  # fmt: skip
_SPECIAL: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": [2], "pad_token_id": 0}


class _Enough(Exception):
    """The loop goes on, since no value on meta says that it is done."""


def generate_without_forwards(model: Any, vocabulary: int) -> None:
    """Greedy search, then sampling with its usual settings, by transformers' own loop; on meta.

    The forwards are left out: they give logits [1, T, vocabulary] and hand the cache on.

    Args:
        model: with `generate`, on meta.
        vocabulary: tokens that it can choose from.
    """
    from transformers.modeling_outputs import CausalLMOutputWithPast

    dtype = next((value.dtype for value in model.parameters()), torch.float32)

    left = [_NEW_TOKENS]

    @functools.wraps(model.forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        if not left[0]:
            raise _Enough
        left[0] -= 1
        given = kwargs.get("input_ids")
        length = given.shape[1] if given is not None else 1
        logits = torch.empty((1, length, vocabulary), dtype=dtype, device="meta")
        return CausalLMOutputWithPast(logits=logits, past_key_values=kwargs.get("past_key_values"))

    ids = torch.zeros((1, SEEN_TOKENS), dtype=torch.int64, device="meta")
    with mock.patch.object(model, "forward", forward):
        for settings in ({"do_sample": False}, {"do_sample": True, **_SETTINGS}):
            left[0] = _NEW_TOKENS
            with contextlib.suppress(_Enough):
                model.generate(ids, max_new_tokens=_NEW_TOKENS, **_SPECIAL, **settings)


def choose_token(vocabulary: int) -> None:
    """Greedy search and sampling of one token, for a model without a loop of its own; on meta."""
    from transformers.generation.logits_process import (
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    ids = torch.zeros((1, SEEN_TOKENS), dtype=torch.int64, device="meta")
    logits = torch.empty((1, vocabulary), dtype=torch.float32, device="meta")
    torch.argmax(logits, dim=-1)
    for process in (
        RepetitionPenaltyLogitsProcessor(_SETTINGS["repetition_penalty"]),
        TemperatureLogitsWarper(_SETTINGS["temperature"]),
        TopKLogitsWarper(_SETTINGS["top_k"]),
        TopPLogitsWarper(_SETTINGS["top_p"]),
    ):
        logits = process(ids, logits)
    tokens = torch.multinomial(torch.softmax(logits, dim=-1), num_samples=1).squeeze(1)
    torch.cat([ids, tokens[:, None]], dim=-1)

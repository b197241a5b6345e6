"""What the logits say once the last node is compared: prompt by prompt, prefill and decode apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from day0.adapters.base.target import Call

from ..measures.outputs import choices, compare_logits
from ..measures.values import WrongOutput, float_tensors
from ..prompts.passes import MAIN, PURPOSES, Pass
from ..prompts.tokens import Tokens
from ..record import Logits, PromptResult
from .node import Seen

DECODE = "decode"


def at_head(seen: Seen, tokens: Tokens) -> dict[str, Any]:
    """Facts about the output, by name of the field of `NodeFacts`; empty for another node than the head."""
    reference = _logits(seen.values.get(f"reference/{MAIN}"))
    if seen.node.role != "head" or reference is None:
        return {}
    last = min(tokens.prompt + tokens.said, len(tokens.ids))
    after = list(range(tokens.prompt - 1, last)) if tokens.prompt else []
    compared = {group: _compared(seen, passes) for group, passes in seen.groups.items()}
    prompts = tuple(
        PromptResult(
            name=group,
            purpose=PURPOSES.get(group, ""),
            tokens=sum(step.tokens for step in seen.groups[group]),
            **_numbers(found),
        )
        for group, found in compared.items()
    )
    own = _logits(seen.values.get(f"own/{MAIN}"))
    alike = own is not None and own.shape == reference.shape
    return {
        "logits": compared[MAIN],
        "decode": compared.get(DECODE),
        "prompts": prompts,
        "reference_chosen": choices(reference, after),
        "chosen": choices(own, after) if own is not None and alike else (),
    }


def _compared(seen: Seen, passes: Sequence[Pass]) -> Logits | None:
    try:
        streams = [seen.tensors(stream, passes) for stream in ("own", "reference", "noise")]
    except WrongOutput:
        return None
    flat = [_flat(tensors[0]) if tensors else None for tensors in streams]
    target, reference, noise = flat
    if target is None or reference is None or noise is None or target.shape != reference.shape:
        return None
    return compare_logits(target, reference, noise)


def _numbers(found: Logits | None) -> dict[str, Any]:
    if found is None:
        return {"reason": "the target's own stream ended before its output"}
    return {"kl": found.kl, "top1": found.top1, "top5": found.top5, "decisive": found.decisive}


def _logits(value: Call | None) -> Tensor | None:
    """[positions, vocabulary] of a head's output."""
    tensors = float_tensors(value) if value is not None else []
    return _flat(tensors[0]) if tensors else None


def _flat(tensor: Tensor) -> Tensor | None:
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() >= 2 else None

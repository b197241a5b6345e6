"""The token sequences of one comparison: from the tokenizer and the shipped texts, or from a seed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from day0.adapters.base.errors import CheckpointError
from day0.adapters.base.skeleton import Node, Skeleton
from day0.adapters.base.values import digest
from day0.adapters.models.forward_arguments import forward_takes
from day0.adapters.models.tokenizer import Tokenizer, load_tokenizer

from .. import thresholds
from ..finding import Finding, Subject, make_finding
from .prompts.passes import Model, plan_passes
from .prompts.tokens import (
    Tokens,
    filled,
    from_texts,
    length_for,
    running_text,
    seeded,
    tried_texts,
    vocabulary_of,
)
from .question import Question
from .says import draft
from .walk.case import Case
from .walk.unit_keys import UNIT_VERSION
from .walk.units import Unit, load_unit, save_unit


@dataclass(frozen=True)
class Sequences:
    """What the walk runs on.

    Attributes:
        case: with its tokens and passes.
        tokenizer: None where there is none that fits.
        left_out: prompt -> why it does not run.
        findings: about the tokenizer.
        drafted: seconds that the reference took to continue the prompt.
    """

    case: Case
    tokenizer: Tokenizer | None
    left_out: Mapping[str, str]
    findings: Sequence[Finding]
    drafted: float


def sequences_of(case: Case, question: Question) -> Sequences:
    """The passes for a case that has none yet.

    Raises:
        KeyError: there is no tokenizer and the config does not name the size of its vocabulary.
    """
    tokenizer, trouble = _tokenizer(question)
    config, seconds = case.skeleton.config, 0.0
    length = length_for(config, question.tokens)
    if tokenizer is None:
        drawn = seeded(vocabulary_of(config), length + thresholds.NUMERICS_LONG_TOKENS)
        tokens, text = Tokens(tuple(drawn[:length])), drawn[length:]
    else:
        start = list(tokenizer.encode(question.prompt, special=True))[: length // 2]
        began = time.perf_counter()
        said = _drafted(case, question, start) if start else []
        seconds = time.perf_counter() - began
        text = running_text(tokenizer) or filled(start, length)
        tokens = from_texts(tokenizer, start, said, length)
    model = Model(
        config, active_weights(case.skeleton), window_of(case.skeleton), _takes_positions(case.skeleton)
    )
    plan = plan_passes(model, tokens, text, question.asked.prompts)
    made = replace(case, tokens=tokens, passes=plan.passes)
    return Sequences(made, tokenizer, plan.left_out, trouble, seconds)


def active_weights(skeleton: Skeleton) -> int:
    """Elements of the weights that one token meets: of experts only those that it is sent to."""
    text = skeleton.config.get("text_config")
    parts = [skeleton.config, *([text] if isinstance(text, Mapping) else [])]
    chosen = next(
        (part[key] for part in parts for key in ("num_experts_per_tok", "moe_topk", "top_k_experts")
         if type(part.get(key)) is int), 1,
    )  # fmt: skip
    return sum(_active(node, chosen) for node in skeleton.nodes if node.called and node.role != "embedding")


def _active(node: Node, chosen: int) -> int:
    total = 0
    for name, recipe in node.weights.items():
        elements = 1
        for dim in recipe.shape:
            elements *= dim
        stacked = node.experts and name.startswith(f"{node.experts}.") and recipe.shape
        total += elements * min(chosen, recipe.shape[0]) // max(1, recipe.shape[0]) if stacked else elements
    return total


def window_of(skeleton: Skeleton) -> int:
    """Tokens that the narrowest limited attention sees; 0 where none is limited."""
    text = skeleton.config.get("text_config")
    parts = [skeleton.config, *([text] if isinstance(text, Mapping) else [])]
    limited = any(node.layer_kind in ("sliding", "chunked") for node in skeleton.nodes)
    stated = [
        part[key]
        for part in parts
        for key in ("sliding_window", "attention_chunk_size", "local_attention")
        if type(part.get(key)) is int and part[key] > 0
    ]
    return min(stated, default=0) if limited else 0


def _takes_positions(skeleton: Skeleton) -> bool:
    return forward_takes(skeleton.architecture, "position_ids")


def _tokenizer(question: Question) -> tuple[Tokenizer | None, list[Finding]]:
    """The tokenizer where it is there and fits, and what is wrong with it."""
    subject = Subject(kind="file", name="tokenizer.json")
    try:
        tokenizer = load_tokenizer(question.release, tried_texts(question.prompt))
    except CheckpointError as error:
        return None, [make_finding("NUM013", subject, error.message)]
    if tokenizer is None:
        said = "The release has no tokenizer.json; seeded token ids were compared."
        return None, [make_finding("NUM012", subject, said)]
    start = tokenizer.encode(question.prompt, special=True)
    ids = {*from_texts(tokenizer, start, (), 1 << 14).ids, *running_text(tokenizer)}
    vocabulary = vocabulary_of(question.skeleton.config)
    if max(ids, default=0) >= vocabulary:
        said = f"tokenizer.json gives the token id {max(ids)}, the model's vocabulary has {vocabulary}."
        return None, [make_finding("NUM013", subject, said)]
    if len(ids) < min(thresholds.NUMERICS_DISTINCT_TOKENS, vocabulary // 2):
        said = (
            f"tokenizer.json makes {len(ids)} different token ids of all shipped texts; seeded ones were "
            "compared."
        )
        return None, [make_finding("NUM012", subject, said)]
    return tokenizer, []


def _drafted(case: Case, question: Question, start: Sequence[int]) -> list[int]:
    """The reference's continuation of the prompt, kept for every target; none where it would take long."""
    weights = sum(info.bytes for info in case.checkpoint.tensors.values())
    if weights > thresholds.NUMERICS_SAY_BYTES:
        return []
    key = digest(
        {
            "version": UNIT_VERSION,
            "says": list(start),
            "config": question.release.config_digest,
            "weights": question.release.weights_digest,
            "builder": dict(case.skeleton.builder),
        }
    )
    unit = load_unit(case.store, key)
    if unit is None:
        room = length_for(case.skeleton.config, question.tokens) - len(start)
        try:
            unit = Unit({}, {"said": draft(case, start, min(thresholds.NUMERICS_SAY_TOKENS, room))})
        except CheckpointError:  # the comparison meets it again and says at which node
            return []
        save_unit(case.store, key, unit)
    return list(unit.facts["said"])

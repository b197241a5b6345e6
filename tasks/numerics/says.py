"""What reference and target continue the prompt with, greedily.

The comparison runs on prompt, reference's continuation and texts, so its own logits say where the target
would have chosen otherwise: up to there its continuation is the reference's. Only after a difference does the
target walk again, on its own words and a fresh draft of the reference's, at the same length, so that nothing
has to be compiled anew.
"""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.errors import UnsupportedError, WorkerError
from day0.adapters.models.reference import StreamingReference
from day0.adapters.models.tokenizer import Tokenizer
from day0.adapters.models.walk import Glue, Walk
from day0.adapters.models.weights import resolve_weights

from .. import thresholds
from ..reference_arm import loose_weights, reference_options
from ..target_nodes import TargetNodes
from .measures.outputs import choices
from .measures.values import float_tensors
from .record import Says
from .walk.case import Case
from .walk.node import NodeFacts

_FURTHER_WALKS = 3
"""Of a target that differs; each brings one word at least, and all that are left where it differs in one
only."""


def draft(case: Case, start: Sequence[int], count: int) -> list[int]:
    """The reference's greedy continuation of `start`, in fp32; small weights stay in memory meanwhile."""
    reference = StreamingReference(
        case.skeleton,
        case.checkpoint,
        options=reference_options(case.options),
        keep_bytes=thresholds.NUMERICS_KEEP_BYTES,
    )
    return reference.generate(start, count)


def says(case: Case, prompt: str, tokenizer: Tokenizer, head: NodeFacts, target: TargetNodes) -> Says:
    """Both continuations as text.

    Args:
        case: as compared.
        prompt: as text.
        tokenizer: of the release.
        head: the head's facts.
        target: asked again only where it differs before the last word.
    """
    tokens = case.tokens
    ours = list(tokens.ids[tokens.prompt : tokens.prompt + tokens.said]) or list(head.reference_chosen[:1])
    theirs = _accepted(ours, head.chosen)
    if 0 < len(theirs) < len(ours):
        theirs = _continued(case, theirs, len(ours), target)
    return Says(
        prompt=prompt, reference=tokenizer.decode(ours), target=tokenizer.decode(theirs), agree=theirs == ours
    )


def _accepted(drafted: Sequence[int], chosen: Sequence[int]) -> list[int]:
    """What the target says as far as it shows: the draft up to the first difference, then its own word."""
    said: list[int] = []
    for word, own in zip(drafted, chosen, strict=False):
        said.append(own)
        if own != word:
            break
    return said


def _continued(case: Case, said: list[int], count: int, target: TargetNodes) -> list[int]:
    start = list(case.tokens.ids[: case.tokens.prompt])
    for _ in range(_FURTHER_WALKS):
        more = draft(case, [*start, *said], count - len(said))
        chosen = _walk(case, [*start, *said, *more], len(start) + len(said), target)
        said = [*said, *_accepted(more, chosen)]
        if len(said) >= count or not chosen:
            break
    return said


def _walk(case: Case, begin: Sequence[int], after: int, target: TargetNodes) -> Sequence[int]:
    """The target's choices for the words from position `after` of `begin` on; none where it fails."""
    ids = [*begin, *case.tokens.ids[len(begin) :]]
    glue = Glue(
        case.skeleton,
        case.dtype,
        reference_options(case.options),
        loose_weights(case.skeleton, case.checkpoint),
    )
    with Walk(case.skeleton, [ids], case.dtype, glue=glue) as walk:
        for call in walk:
            node = case.skeleton.node(call.node)
            try:
                answer = target.run(node, resolve_weights(node, case.checkpoint), call.call, mode="prefill")
            except (WorkerError, UnsupportedError):
                return ()
            if node.role == "head":
                tensor = float_tensors(answer.outputs)[0]
                return choices(tensor.reshape(-1, tensor.shape[-1]), range(after - 1, len(begin) - 1))
            call.reply(answer.outputs)
    return ()

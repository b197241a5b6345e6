"""Whether the reference itself is right: against stock transformers, by its likelihood, by published samples.

Reference and target share the reading of the checkpoint: a name mapped wrongly or a block scale dropped there
makes both wrong, and equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from day0.adapters.base.errors import CheckpointError, SkeletonError, SourceError
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.release import Release
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.values import json_number
from day0.adapters.models.initialised import looks_initialised
from day0.adapters.models.likelihood import Likelihood, Passage, likelihood, passage
from day0.adapters.models.reference import StreamingReference
from day0.adapters.models.stock_model import StockLogits, stock_logits
from day0.adapters.models.tokenizer import Tokenizer

from ... import thresholds
from ...finding import Finding, Subject, make_finding
from ...reference_arm import ArmError, reference_options
from ..record_parts import ReferenceCheck
from .following import Arms, Followed, Forward, follow
from .positions import compare_positions
from .samples import Sample

_NAMED = 3
_REMEDY_NOT_FINITE = (
    "Correct the first node whose weights or output are not finite, then run the comparison again: no check "
    "can speak before."
)
_REMEDY_SAMPLES = (
    "Look at the file of samples first: its outputs must be those of this revision, decoded greedily, with "
    "the prompt as the model reads it; only where they are is the reading of the checkpoint at fault."
)


@dataclass(frozen=True)
class _Outcome:
    """What one method says; `state` as in `ReferenceCheck`."""

    state: str
    method: str
    detail: str
    value: float = float("nan")
    limit: float = float("nan")


def check_reference(
    release: Release,
    skeleton: Skeleton,
    ours: Tensor,
    tokens: Sequence[int],
    memory: int,
    samples: Sequence[Sample] = (),
    *,
    tokenizer: Tokenizer | None = None,
    english: Tensor | None = None,
    arms: Arms | None = None,
    progress: Progress = silent,
) -> ReferenceCheck:
    """Checks the reference by whichever method can speak; raises nothing.

    Args:
        release: whose files stock transformers reads.
        skeleton: of it.
        ours: [length, vocabulary], the reference's logits in fp32 for `tokens`; a beginning of them will do.
        tokens: token ids of one sequence.
        memory: bytes that a process with the stock model may take.
        samples: published outputs.
        tokenizer: of the release; without it there is neither a likelihood nor a sample.
        english: logits for `english_passage`'s tokens, where the walk already ran them.
        arms: run where `english` is missing or samples are given; None: streaming transformers.
        progress: told while the stock model runs.
    """
    arms = arms or streaming_arms(release, skeleton)
    length = min(len(tokens), ours.shape[0], thresholds.REFERENCE_TOKENS)
    stock = stock_logits(release, skeleton, tokens[:length], memory, progress=progress)
    outcomes = [against_stock(ours[:length], stock, _routed(skeleton))]
    if stock.logits is None:
        outcomes.append(_by_likelihood(release, skeleton, tokenizer, english, arms))
    if samples:
        outcomes.append(_by_samples(samples, tokenizer, arms))
    return _together(outcomes)


def english_passage(tokenizer: Tokenizer, skeleton: Skeleton) -> Passage | None:
    """The tokens on which the likelihood is measured; None for a model of too few positions."""
    return passage(tokenizer, _positions(skeleton))


def streaming_arms(release: Release, skeleton: Skeleton) -> Arms:
    """The reference by streaming transformers, in fp32 and in the release's precision."""

    def arm(dtype: str) -> Forward:
        def forward(ids: Sequence[int]) -> Tensor:
            reference = StreamingReference(
                skeleton, release.checkpoint, dtype=dtype, options=reference_options({})
            )
            return reference.forward([list(ids)])[0]

        return forward

    return Arms(arm("fp32"), arm(skeleton.dtype))


def check_findings(check: ReferenceCheck, model: str, *, stopped: bool = False) -> list[Finding]:
    """An error where the reference is wrong, an undecided finding where nobody could tell, else none.

    Args:
        check: what came of it.
        model: as the person named it.
        stopped: whether the walk ended early: that has a finding of its own, which says why nobody could.
    """
    subject = Subject(kind="model", name=model)
    if check.state == "fail":
        remedy = _REMEDY_SAMPLES if check.decided_by == "samples" else None
        said = f"The reference itself is wrong: {check.detail}."
        return [make_finding("NUM020", subject, said, remedy=remedy)]
    if check.state == "unverified" and not stopped:
        said = f"Nothing shows that the reference is right: {check.detail}."
        compared = "from_pretrained" in check.method
        return [make_finding("NUM021", subject, said, remedy=_REMEDY_NOT_FINITE if compared else None)]
    return []


def against_stock(ours: Tensor, stock: StockLogits, routed: bool) -> _Outcome:
    """Our logits against stock's, position by position.

    The value is the largest relative L2 of a position; of a mixture of experts, of all but the few that
    `REFERENCE_ROUTED_SHARE` leaves out. Where neither side is finite nothing is shown.

    Args:
        ours: [length, vocabulary].
        stock: what `from_pretrained` gave.
        routed: whether the model is a mixture of experts.
    """
    if stock.logits is None:
        return _Outcome("unverified", "", f"{stock.name} was not run: {stock.reason}")
    limit = thresholds.REFERENCE_AGREES
    if ours.shape != stock.logits.shape:
        said = f"{stock.name} gives logits {list(stock.logits.shape)}, the reference {list(ours.shape)}"
        return _Outcome("fail", "from_pretrained", said, float("inf"), limit)
    found = compare_positions(ours, stock.logits)
    errors, tokens = sorted(found.errors), len(found.errors)
    if found.one_sided:
        said = f"the logits of {found.one_sided} of {tokens} tokens are finite in it or in {stock.name} only"
        return _Outcome("fail", "from_pretrained", said, float("inf"), limit)
    spare = int(thresholds.REFERENCE_ROUTED_SHARE * tokens) if routed else 0
    value = errors[tokens - 1 - spare]
    if value > limit:
        said = f"its logits differ by {value:.2g} from those of {stock.name} on the same {tokens} tokens"
        return _Outcome("fail", "from_pretrained", f"{said} (limit {limit:.0e})", value, limit)
    if found.unknown:
        said = (
            f"the logits of {found.unknown} of {tokens} tokens are not finite, neither its own nor those of "
            f"{stock.name}"
        )
        return _Outcome("unverified", "from_pretrained", said, limit=limit)
    said = f"logits of {tokens} tokens are within {value:.2g} of {stock.name} (limit {limit:.0e})"
    return _Outcome("pass", "from_pretrained", said, value, limit)


def judge_likelihood(found: Likelihood, characters: float, initialised: bool | None) -> _Outcome:
    """Whether the text is as likely as it must be to a model that was read rightly.

    Args:
        found: of the shipped text.
        characters: per token.
        initialised: whether the weights look as an initialiser left them; None: unknown.
    """
    limit = min(thresholds.REFERENCE_NATS_PER_CHARACTER * characters, found.uniform / 2)
    likely = found.nats <= limit
    copies = not found.copied > thresholds.REFERENCE_COPIED_SHARE * found.nats
    said = (
        f"plain English costs {found.nats:.2f} nats per token (at most {limit:.2f} is plausible, "
        f"{found.uniform:.2f} is knowing nothing), its repetition {found.copied:.2f}"
    )
    if likely and copies:
        return _Outcome("pass", "likelihood", said, found.nats, limit)
    worse = not found.nats <= found.uniform + thresholds.REFERENCE_WORSE_THAN_UNIFORM
    if initialised is not True and (worse or (initialised is False and not likely and not copies)):
        return _Outcome("fail", "likelihood", said, found.nats, limit)
    why = (
        "its weights look as an initialiser left them, so no text is likely"
        if initialised
        else "which a model of another language would do, too"
        if copies
        else "so it may not see what stands before"
    )
    return _Outcome("unverified", "likelihood", f"{said}; {why}", found.nats, limit)


def _by_likelihood(
    release: Release, skeleton: Skeleton, tokenizer: Tokenizer | None, english: Tensor | None, arms: Arms
) -> _Outcome:
    if tokenizer is None:
        return _Outcome("unverified", "", "without a tokenizer there is no text whose likelihood would tell")
    read = english_passage(tokenizer, skeleton)
    if read is None:
        return _Outcome("unverified", "", "the model takes too few positions for the shipped text")
    try:
        found = likelihood(read, arms.exact(read.ids) if english is None else english)
        initialised = looks_initialised(release.checkpoint)
    except (ArmError, CheckpointError, SkeletonError, SourceError, ValueError) as error:
        return _Outcome("unverified", "", f"the likelihood of text cannot be computed: {error}")
    return judge_likelihood(found, found.nats / max(found.per_character, 1e-9), initialised)


def _by_samples(samples: Sequence[Sample], tokenizer: Tokenizer | None, arms: Arms) -> _Outcome:
    if tokenizer is None:
        return _Outcome("unverified", "", "without a tokenizer no sample can be held against it")
    held = tied = 0
    wrong: list[str] = []
    for place, sample in enumerate(samples):
        start = tokenizer.encode(sample.prompt, special=True)
        try:
            found = follow(tokenizer, start, sample.output, arms.exact, arms.lowered)
        except (ArmError, CheckpointError, SkeletonError, SourceError) as error:
            return _Outcome("unverified", "", f"sample {place} cannot be run: {error}")
        if found.whole:
            held += 1
        elif found.decisive:
            wrong.append(_told(place, found, tokenizer))
        else:
            tied += 1
    if wrong:
        told = "; ".join(wrong[:_NAMED])
        said = f"{len(wrong)} of {len(samples)} published samples are not what it says: {told}"
        return _Outcome("fail", "samples", said, float(len(wrong)), 0.0)
    near = f", {tied} up to a near-tie" if tied else ""
    said = f"{held} of {len(samples)} published samples are what it says greedily{near}"
    return _Outcome("pass" if held else "unverified", "samples", said, 0.0, 0.0)


def _told(place: int, found: Followed, tokenizer: Tokenizer) -> str:
    theirs, ours = tokenizer.decode([found.given]), tokenizer.decode([found.chosen])
    return (
        f"sample {place} goes on with {theirs!r} after {len(found.tokens)} tokens, the reference with "
        f"{ours!r} "
        f"(margin {found.margin:.2g}, rounding explains {found.noise:.2g})"
    )


def _together(outcomes: Sequence[_Outcome]) -> ReferenceCheck:
    """The worst that was found, else the best: one method that speaks is enough, one that objects decides."""
    order = ("fail", "pass", "unverified")
    first = min(outcomes, key=lambda outcome: order.index(outcome.state))
    spoke = [outcome.method for outcome in outcomes if outcome.method]
    decided = [outcome for outcome in outcomes if outcome.state == first.state and outcome.method]
    told = [outcome for outcome in outcomes if outcome.state == "fail"] or list(outcomes)
    # The value is that of the first method that decided: another's would stand beside a limit of its own.
    shown = decided[0] if decided else first
    return ReferenceCheck(
        state=first.state,
        method=",".join(spoke) or "none",
        decided_by=",".join(outcome.method for outcome in decided),
        detail="; ".join(outcome.detail for outcome in told),
        value=json_number(shown.value),
        limit=json_number(shown.limit),
    )


def _routed(skeleton: Skeleton) -> bool:
    return any(node.feed_forward == "moe" for node in skeleton.nodes)


def _positions(skeleton: Skeleton) -> int:
    """Positions that the model takes, as far as the passage could need them."""
    sizes = [
        part[key]
        for part in (skeleton.config, skeleton.config.get("text_config"))
        if isinstance(part, dict)
        for key in ("max_position_embeddings", "n_positions", "max_seq_len")
        if type(part.get(key)) is int and part[key] > 0
    ]
    return min(sizes, default=1 << 16)

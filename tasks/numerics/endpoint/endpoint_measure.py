"""A served model as a target: what it says and how likely it finds the shipped texts."""

from __future__ import annotations

from day0.adapters.base.errors import CheckpointError
from day0.adapters.models.tokenizer import Tokenizer, load_tokenizer
from day0.adapters.targets.endpoint import EndpointTarget, Prompt

from ... import thresholds
from ...finding import Finding, Subject, make_finding
from ..made import Made, reference_text
from ..prompts.prompts import TEXTS
from ..prompts.tokens import tried_texts
from ..question import Question
from ..record_parts import ReferenceCheck
from ..trust.reference_check import check_findings, check_reference, streaming_arms
from .endpoint_ask import Ask
from .endpoint_compare import compare_endpoint


def measure_endpoint(question: Question, target: EndpointTarget) -> tuple[Made, list[Finding]]:
    """Compares what the server shows with the reference on the same texts.

    Raises:
        WorkerError: the server cannot be reached.
    """
    subject = Subject(kind="file", name="tokenizer.json")
    try:
        tokenizer = load_tokenizer(question.release, tried_texts(question.prompt))
    except CheckpointError as error:
        return _nothing(question), [make_finding("NUM013", subject, error.message)]
    if tokenizer is None:
        said = "The release has no tokenizer.json, so nothing can be asked of a server in words."
        return _nothing(question), [make_finding("NUM026", subject, said)]
    arms = streaming_arms(question.release, question.skeleton)
    asks = _asks(question, tokenizer)
    tokens = list(asks[0].prompt.ids)
    check = check_reference(
        question.release,
        question.skeleton,
        arms.exact(tokens),
        tokens,
        question.memory,
        tokenizer=tokenizer,
        arms=arms,
        progress=question.progress,
    )
    found = compare_endpoint(target, asks, tokenizer, arms, thresholds.NUMERICS_SAY_TOKENS)
    made = Made(
        reference=reference_text(question.skeleton, "bf16"),
        noise=f"reference in {question.skeleton.dtype} on the same tokens",
        tokens=sum(len(ask.prompt.ids) for ask in asks),
        nodes=(),
        says=found.says,
        check=check,
        left_out={},
        dropped={},
        bytes_read=0,
        logits=found.logits,
        decode=found.decode,
    )
    return made, [*check_findings(check, question.release.model), *found.findings]


def _asks(question: Question, tokenizer: Tokenizer) -> list[Ask]:
    texts = [("prompt", question.prompt), *((f"text {number}", text) for number, text in enumerate(TEXTS, 1))]
    return [Ask(name, Prompt(text, tuple(tokenizer.encode(text, special=True)))) for name, text in texts]


def _nothing(question: Question) -> Made:
    return Made(
        reference=reference_text(question.skeleton, "bf16"),
        noise="",
        tokens=0,
        nodes=(),
        says=None,
        check=ReferenceCheck(detail="nothing was compared"),
        left_out={},
        dropped={},
        bytes_read=0,
    )

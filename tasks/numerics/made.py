"""What a comparison came to, by whatever way, and the record of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from day0.adapters.base.release import Release
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.target import TargetDescription
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import json_number

from ..finding import Finding
from .again_script import again_script
from .findings import merge_calls
from .further import Further
from .measures.signatures import Signature, save_signatures
from .precision.lowerings import Lowering
from .prompts.passes import PURPOSES
from .question import Question
from .record import (
    FirstFault,
    Logits,
    NumericsFacts,
    NumericsObservations,
    NumericsRecord,
    PromptResult,
    Says,
)
from .record_parts import ImageFeatures, Manifest, ReferenceCheck, SelfTest
from .self_test.self_test import matrix
from .walk.case import REFERENCE_DTYPE
from .walk.node import NodeFacts

SOURCES: Mapping[str, str] = {
    "/fingerprint": "measured: the target describes itself",
    "/reference": "computed: versions of what the reference is made of",
    "/noise": "computed: precision of the target",
    "/tokens": "tokenizer.json, shipped texts",
    "/blocks": "measured: target and reference on the same tokens",
    "/first_fault": "measured: target and reference on the same tokens",
    "/logits": "measured: target and reference on the same tokens",
    "/decode": "measured: target and reference on the same tokens, one at a time with a cache",
    "/says": "measured: greedy continuation of the prompt",
    "/chosen": "measured: coverage tried them on the target",
    "/bytes_read": "computed: bytes of the tensors that the nodes are made of, from the headers",
    "/routing": "measured: choices of the target's routers and the reference's on the same input",
    "/manifest": "computed: calls that a forward makes, and those that the target answered",
    "/reference_check": "measured: against transformers' own loading, or by the likelihood of a text",
    "/task": "measured: both sides on the shipped items",
    "/self_test": "measured: bugs put in on purpose",
    "/precision": "measured: the reference with numbers rounded to a lower precision",
    "/training": "measured: one step on target and reference",
    "/images": "measured: target and reference on the same pictures",
}


@dataclass(frozen=True)
class Made:
    """What a comparison came to.

    Attributes:
        reference: what the target was held against.
        noise: what the noise arm was.
        tokens: of the main prompt.
        nodes: each call of a node.
        says: what both sides continue the prompt with.
        check: whether the reference can be trusted.
        left_out: prompt -> why it did not run, or not to the end.
        dropped: pass -> the same for those that began.
        bytes_read: of weights.
        signatures: of the target's output at each node.
        ids: of the tokens that the signatures are of.
        logits: where no node was compared: agreement at the output.
        decode: likewise in steps with a cache.
        reference_seconds: spent in reference and noise arm.
        target_seconds: that the target spent executing.
        target_peak: highest memory that an answer of the target named.
        reused: calls whose answers came from the store.
        further: what was asked beyond the comparison.
        images: features of images; None where the model takes none.
    """

    reference: str
    noise: str
    tokens: int
    nodes: Sequence[NodeFacts]
    says: Says | None
    check: ReferenceCheck
    left_out: Mapping[str, str]
    dropped: Mapping[str, str]
    bytes_read: int
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    ids: Sequence[int] = ()
    logits: Logits | None = None
    decode: Logits | None = None
    reference_seconds: float = 0.0
    target_seconds: float = 0.0
    target_peak: int = 0
    reused: int = 0
    further: Further = field(default_factory=Further)
    images: ImageFeatures | None = None


def record_of(
    question: Question,
    spec: TargetSpec,
    description: TargetDescription,
    made: Made | None,
    findings: Sequence[Finding],
    observations: NumericsObservations,
) -> NumericsRecord:
    """The record; `made` is None where nothing was compared."""
    if made is None:
        facts = NumericsFacts(
            fingerprint=description.fingerprint,
            reference="",
            noise="",
            tokens=0,
            blocks=(),
            first_fault=None,
            logits=None,
            chosen=question.chosen,
            reference_check=ReferenceCheck(detail="nothing was compared"),
        )
        return NumericsRecord.conclude(
            findings=findings, facts=facts, observations=observations, sources=SOURCES
        )
    files = {}
    if made.signatures:
        files["signatures"] = save_signatures(question.store, made.signatures, made.ids)
    return NumericsRecord.conclude(
        findings=findings,
        facts=_facts(question, spec, description, made),
        observations=observations,
        sources=SOURCES,
        files=files,
    )


def _first_fault(nodes: Sequence[NodeFacts]) -> FirstFault | None:
    """The first node at fault; one that gave nothing to compare has the class of failure for a measure."""
    for facts in nodes:
        if facts.fault is not None:
            return facts.fault
        if facts.block.verdict == "fail":
            return FirstFault(
                block=facts.block.name,
                metric=next(iter(facts.beyond.values()), facts.outcome),
                value=json_number(math.nan),
                tolerance=json_number(math.nan),
                detail=facts.block.reason,
            )
    return None


def _with_script(question: Question, spec: TargetSpec, fault: FirstFault | None) -> FirstFault | None:
    """The fault with a script that shows it again, where the search for its operator gave none."""
    if fault is None or fault.repro:
        return fault
    return fault.model_copy(update={"repro": again_script(question, spec, fault)})


def _facts(question: Question, spec: TargetSpec, description: TargetDescription, made: Made) -> NumericsFacts:
    nodes = merge_calls(made.nodes)
    head = next((facts for facts in nodes if facts.reference_chosen or facts.prompts), None)
    bugs = [bug for facts in nodes for bug in facts.bugs] + list(made.further.reading_bugs)
    self_test = SelfTest(matrix=matrix(bugs), observer=made.further.observer) if bugs else None
    return NumericsFacts(
        fingerprint=description.fingerprint,
        reference=made.reference,
        noise=made.noise,
        tokens=made.tokens,
        blocks=tuple(facts.block for facts in nodes),
        first_fault=_with_script(question, spec, _first_fault(nodes)),
        logits=_logits(made, nodes, head),
        decode=head.decode if head is not None else made.decode,
        says=made.says,
        bytes_read=made.bytes_read,
        chosen=question.chosen,
        routing=tuple(facts.routing for facts in nodes if facts.routing is not None),
        reference_check=made.check,
        task=made.further.task,
        self_test=self_test,
        precision=made.further.precision,
        training=made.further.training,
        manifest=_manifest(made),
        images=made.images,
    )


def _logits(made: Made, nodes: Sequence[NodeFacts], head: NodeFacts | None) -> Logits | None:
    """Agreement at the output with a line for each prompt, those that did not run included."""
    if head is None or head.logits is None:
        return made.logits
    ran = [prompt.model_copy(update={"worst_block": _worst(nodes, prompt.name)}) for prompt in head.prompts]
    known = {prompt.name for prompt in ran}
    rest = [
        PromptResult(name=name, purpose=PURPOSES.get(name, ""), reason=reason)
        for name, reason in made.left_out.items()
        if name not in known
    ]
    return head.logits.model_copy(update={"prompts": (*ran, *rest)})


def _worst(nodes: Sequence[NodeFacts], prompt: str) -> str:
    beyond = {
        facts.block.name: float(facts.ratios.get(prompt, 0)) for facts in nodes if prompt in facts.beyond
    }
    return max(beyond, key=lambda name: beyond[name], default="")


def _manifest(made: Made) -> Manifest:
    missing = [
        f"{facts.block.name} on {name}"
        for facts in made.nodes
        for name in facts.unseen
        if name not in made.dropped
    ]
    seen = sum(facts.seen for facts in made.nodes)
    return Manifest(expected=seen + len(missing), seen=seen, missing=tuple(missing[:20]))


def reference_text(skeleton: Skeleton, dtype: str) -> str:
    """What the numbers are held against."""
    version = skeleton.builder.get("transformers", "")
    return f"transformers {version} cpu {REFERENCE_DTYPE[dtype]}"


def noise_text(dtype: str, fake: Lowering | None = None) -> str:
    """What the noise arm is; arguments: see `Case`."""
    if fake is not None:
        return (
            f"reference fake-quantised to {fake.dtype} on the same input ({fake.text}), all else in {dtype}"
        )
    same = REFERENCE_DTYPE[dtype] == dtype
    return f"rounding of the output to {dtype} alone" if same else f"reference in {dtype} on the same input"


def bytes_read(release: Release, *skeletons: Skeleton | None) -> int:
    """Of all tensors that the nodes of a forward on each skeleton are made of, a tied one once a node."""
    tensors = release.checkpoint.tensors
    return sum(
        tensors[name].bytes
        for skeleton in skeletons
        if skeleton is not None
        for node in skeleton.nodes
        if node.called
        for name in {name for recipe in node.weights.values() for name in recipe.tensors}
        if name in tensors
    )

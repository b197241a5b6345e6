"""The numerics stage: the sequences, the walk over all nodes, what both sides say, and the record of it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from day0.adapters.base.target import Target, TargetDescription
from day0.adapters.base.values import digest
from day0.adapters.base.worker_memory import MemoryWatch

from ..finding import Finding, Subject, make_finding
from ..target_nodes import TargetNodes
from .case import REFERENCE_DTYPE, Case
from .findings import findings_of, left_out_findings, merge_calls
from .first_fault import FirstFaults
from .local_span import spread_locally
from .lockstep import Comparison, compare_model
from .node import NodeFacts
from .passes import PURPOSES
from .question import Question
from .record import Logits, NumericsFacts, NumericsObservations, NumericsRecord, PromptResult, Says
from .record_parts import Manifest, ReferenceCheck
from .reference_check import check_findings
from .reference_trust import ReferenceTrust
from .says import says
from .sequences import Sequences, sequences_of

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
}


def measure_numerics(question: Question, target: Target, description: TargetDescription) -> NumericsRecord:
    """Compares the target with the reference over the whole model.

    Raises:
        WorkerError: the target could not even be asked what it is.
    """
    began = time.perf_counter()
    dtype = target.spec.dtype or question.skeleton.dtype
    refusal = _refusal(description, dtype, str(target.spec))
    if refusal is not None:
        return _record(question, description, dtype, [refusal], None, NumericsObservations())
    memory = MemoryWatch(os.getpid(), 0, lambda: None)
    try:
        nodes = TargetNodes(target, question.skeleton, dtype)
        case = _case(question, target, description, dtype)
        given = sequences_of(case, question)
        trust = ReferenceTrust(question, given)
        case = trust.case()
        if question.spread is not None and question.span is not None:
            spread_locally(case, question.spread, question.span)
        comparison = compare_model(case, nodes, [FirstFaults(target, dtype)], trust.record)
        spoken = _says(given, question, comparison, nodes)
        check = trust.check()
    finally:
        memory.stop()
    kinds = {node.name: node.kind for node in question.skeleton.nodes}
    repro = f"day0 compare {question.release.model} --target '{target.spec}'"
    findings = [
        *given.findings,
        *check_findings(check, question.release.model),
        *findings_of(comparison, kinds, str(target.spec), repro),
        *left_out_findings(given.left_out, comparison.dropped),
    ]
    observations = NumericsObservations(
        seconds=time.perf_counter() - began,
        reference_seconds=comparison.reference_seconds + given.drafted,
        target_seconds=nodes.seconds,
        peak_bytes=nodes.peak_bytes,
        peak_memory=memory.peak,
        memory_bound=case.memory,
        nodes_reused=comparison.reused,
        worker_log=tuple(getattr(target, "log", ())),
    )
    return _record(
        question, description, dtype, findings, _Found(comparison, given, spoken, check), observations
    )


class _Found:
    """What the walk came to, with the sequences that it ran on."""

    def __init__(
        self, comparison: Comparison, given: Sequences, spoken: Says | None, check: ReferenceCheck
    ) -> None:
        self.comparison, self.given, self.says, self.check = comparison, given, spoken, check
        self.nodes = merge_calls(comparison.nodes)

    @property
    def head(self) -> NodeFacts | None:
        """Facts of the node whose output is the model's."""
        return next((facts for facts in self.nodes if facts.reference_chosen or facts.prompts), None)


def _case(question: Question, target: Target, description: TargetDescription, dtype: str) -> Case:
    return Case(
        skeleton=question.skeleton,
        checkpoint=question.release.checkpoint,
        dtype=dtype,
        store=question.store,
        target=digest(
            {
                "target": str(target.spec),
                "fingerprint": description.fingerprint.digest,
                "dtype": dtype,
                "salt": question.salt,
            }
        ),
        options=target.spec.options,
        memory=question.memory,
        step=f"numerics {target.spec}",
        progress=question.progress,
    )


def _refusal(description: TargetDescription, dtype: str, target: str) -> Finding | None:
    subject = Subject(kind="target", name=target)
    if "fragment" not in description.capabilities:
        offered = ", ".join(description.capabilities) or "nothing"
        return make_finding("NUM009", subject, f"{target} claims {offered}, not that it runs nodes.")
    if dtype not in REFERENCE_DTYPE:
        return make_finding(
            "NUM014", subject, f"{target} computes in {dtype}, in which the reference cannot."
        )
    return None


def _says(given: Sequences, question: Question, comparison: Comparison, nodes: TargetNodes) -> Says | None:
    head = next((facts for facts in comparison.nodes if facts.reference_chosen), None)
    if given.tokenizer is None or head is None:
        return None
    return says(given.case, question.prompt, given.tokenizer, head, nodes)


def _record(
    question: Question,
    description: TargetDescription,
    dtype: str,
    findings: Sequence[Finding],
    found: _Found | None,
    observations: NumericsObservations,
) -> NumericsRecord:
    reference = REFERENCE_DTYPE.get(dtype, "")
    version = question.skeleton.builder.get("transformers", "")
    nodes = found.nodes if found else []
    facts = NumericsFacts(
        fingerprint=description.fingerprint,
        reference=f"transformers {version} cpu {reference}" if found else "",
        noise=_noise(dtype) if found else "",
        tokens=len(found.given.case.tokens.ids) if found else 0,
        blocks=tuple(facts.block for facts in nodes),
        first_fault=next((facts.fault for facts in nodes if facts.fault is not None), None),
        logits=_logits(found) if found else None,
        decode=found.head.decode if found and found.head else None,
        says=found.says if found else None,
        bytes_read=_bytes_read(question) if found else 0,
        chosen=question.chosen,
        routing=tuple(facts.routing for facts in nodes if facts.routing is not None),
        manifest=_manifest(found) if found else Manifest(),
        reference_check=found.check if found else ReferenceCheck(detail="nothing was compared"),
    )
    return NumericsRecord.conclude(findings=findings, facts=facts, observations=observations, sources=SOURCES)


def _logits(found: _Found) -> Logits | None:
    """Agreement at the output with a line for each prompt, those that did not run included."""
    head = found.head
    if head is None or head.logits is None:
        return None
    left_out = {**found.given.left_out, **_groups(found.comparison.dropped)}
    ran = [
        prompt.model_copy(update={"worst_block": _worst(found.nodes, prompt.name)}) for prompt in head.prompts
    ]
    known = {prompt.name for prompt in ran}
    rest = [
        PromptResult(name=name, purpose=PURPOSES.get(name, ""), reason=reason)
        for name, reason in left_out.items()
        if name not in known
    ]
    return head.logits.model_copy(update={"prompts": (*ran, *rest)})


def _groups(dropped: Mapping[str, str]) -> dict[str, str]:
    return {name.partition(".")[0]: reason for name, reason in reversed(list(dropped.items()))}


def _worst(nodes: Sequence[NodeFacts], prompt: str) -> str:
    beyond = {
        facts.block.name: float(facts.ratios.get(prompt, 0)) for facts in nodes if prompt in facts.beyond
    }
    return max(beyond, key=lambda name: beyond[name], default="")


def _manifest(found: _Found) -> Manifest:
    dropped = set(found.comparison.dropped)
    missing = [
        f"{facts.block.name} on {name}"
        for facts in found.comparison.nodes
        for name in facts.unseen
        if name not in dropped
    ]
    seen = sum(facts.seen for facts in found.comparison.nodes)
    return Manifest(expected=seen + len(missing), seen=seen, missing=tuple(missing[:20]))


def _noise(dtype: str) -> str:
    same = REFERENCE_DTYPE[dtype] == dtype
    return f"rounding of the output to {dtype} alone" if same else f"reference in {dtype} on the same input"


def _bytes_read(question: Question) -> int:
    """Of all tensors that the nodes of a forward are made of, a tied one once a node."""
    tensors = question.release.checkpoint.tensors
    return sum(
        tensors[name].bytes
        for node in question.skeleton.nodes
        if node.called
        for name in {name for recipe in node.weights.values() for name in recipe.tensors}
        if name in tensors
    )

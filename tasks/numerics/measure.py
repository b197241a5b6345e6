"""The numerics stage: tokens, the walk over all nodes, what both sides say, and the record of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from day0.adapters.base.errors import CheckpointError
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.release import Release
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.target import Target, TargetDescription
from day0.adapters.base.values import digest
from day0.adapters.base.workaround import Chosen
from day0.adapters.models.tokenizer import Tokenizer, load_tokenizer

from .. import thresholds
from ..finding import Finding, Subject, make_finding
from ..target_nodes import TargetNodes
from .case import Case
from .compare import REFERENCE_DTYPE, UNIT_VERSION, Comparison, compare_model
from .findings import findings_of, merge_calls
from .record import NumericsFacts, NumericsObservations, NumericsRecord, Says
from .says import draft, says
from .tokens import Tokens, from_texts, length_for, seeded, vocabulary_of
from .units import Unit, load_unit, save_unit

SOURCES: Mapping[str, str] = {
    "/fingerprint": "measured: the target describes itself",
    "/reference": "computed: versions of what the reference is made of",
    "/noise": "computed: precision of the target",
    "/tokens": "tokenizer.json, shipped texts",
    "/blocks": "measured: target and reference on the same tokens",
    "/first_fault": "measured: target and reference on the same tokens",
    "/logits": "measured: target and reference on the same tokens",
    "/says": "measured: greedy continuation of the prompt",
    "/chosen": "measured: coverage tried them on the target",
    "/bytes_read": "computed: bytes of the tensors that the nodes are made of, from the headers",
}


@dataclass(frozen=True)
class Question:
    """What the stage is asked.

    Attributes:
        release: whose weights count.
        skeleton: of it.
        store: for finished nodes.
        prompt: continued by both sides.
        salt: empty; or the run's id, where stored answers of the target do not count.
        progress: told of each node.
        chosen: ways around with which the target was opened.
    """

    release: Release
    skeleton: Skeleton
    store: RunStore
    prompt: str
    salt: str = ""
    progress: Progress = silent
    chosen: Sequence[Chosen] = ()


def measure_numerics(question: Question, target: Target, description: TargetDescription) -> NumericsRecord:
    """Compares the target with the reference over the whole model.

    Raises:
        WorkerError: the target could not even be asked what it is.
    """
    began = time.perf_counter()
    dtype = target.spec.dtype or question.skeleton.dtype
    refusal = _refusal(description, dtype, str(target.spec))
    if refusal is not None:
        return _record(question, description, dtype, [refusal], None, None, NumericsObservations())
    nodes = TargetNodes(target, question.skeleton, dtype)
    case = Case(
        skeleton=question.skeleton,
        checkpoint=question.release.checkpoint,
        tokens=Tokens(()),
        dtype=dtype,
        store=question.store,
        target=_target_digest(question, target, description, dtype),
        options=target.spec.options,
        step=f"numerics {target.spec}",
        progress=question.progress,
    )
    tokenizer, trouble = _tokenizer(question)
    case, drafted = _with_tokens(case, question, tokenizer)
    comparison = compare_model(case, nodes)
    spoken = _says(case, question, tokenizer, comparison, nodes)
    kinds = {node.name: node.kind for node in question.skeleton.nodes}
    repro = f"day0 compare {question.release.model} --target '{target.spec}'"
    observations = NumericsObservations(
        seconds=time.perf_counter() - began,
        reference_seconds=comparison.reference_seconds + drafted,
        target_seconds=nodes.seconds,
        peak_bytes=nodes.peak_bytes,
        nodes_reused=comparison.reused,
        worker_log=tuple(getattr(target, "log", ())),
    )
    findings = trouble + findings_of(comparison, kinds, str(target.spec), repro)
    return _record(
        question, description, dtype, findings, comparison, spoken, observations, len(case.tokens.ids)
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


def _target_digest(question: Question, target: Target, description: TargetDescription, dtype: str) -> str:
    return digest(
        {
            "target": str(target.spec),
            "fingerprint": description.fingerprint.digest,
            "dtype": dtype,
            "salt": question.salt,
        }
    )


def _tokenizer(question: Question) -> tuple[Tokenizer | None, list[Finding]]:
    """The tokenizer where it is there and fits, and what is wrong with it."""
    subject = Subject(kind="file", name="tokenizer.json")
    try:
        tokenizer = load_tokenizer(question.release)
    except CheckpointError as error:
        return None, [make_finding("NUM013", subject, error.message)]
    if tokenizer is None:
        return None, [
            make_finding(
                "NUM012", subject, "The release has no tokenizer.json; seeded token ids were compared."
            )
        ]
    largest = max(
        from_texts(tokenizer, tokenizer.encode(question.prompt, special=True), (), 1 << 30).ids, default=0
    )
    vocabulary = vocabulary_of(question.skeleton.config)
    if largest >= vocabulary:
        said = f"tokenizer.json gives the token id {largest}, the model's vocabulary has {vocabulary}."
        return None, [make_finding("NUM013", subject, said)]
    return tokenizer, []


def _with_tokens(case: Case, question: Question, tokenizer: Tokenizer | None) -> tuple[Case, float]:
    """The case with its tokens, and the seconds that the reference took to continue the prompt."""
    length = length_for(case.skeleton.config)
    if tokenizer is None:
        tokens, seconds = seeded(vocabulary_of(case.skeleton.config), length), 0.0
    else:
        start = list(tokenizer.encode(question.prompt, special=True))[: length // 2]
        began = time.perf_counter()
        said = _drafted(case, question, start) if start else []
        seconds = time.perf_counter() - began
        tokens = from_texts(tokenizer, start, said, length)
    return Case(**{**vars(case), "tokens": tokens}), seconds


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
        count = min(thresholds.NUMERICS_SAY_TOKENS, length_for(case.skeleton.config) - len(start))
        try:
            unit = Unit({}, {"said": draft(case, start, count)})
        except CheckpointError:  # the comparison meets it again and says at which node
            return []
        save_unit(case.store, key, unit)
    return list(unit.facts["said"])


def _says(
    case: Case, question: Question, tokenizer: Tokenizer | None, comparison: Comparison, nodes: TargetNodes
) -> Says | None:
    head = next((facts for facts in comparison.nodes if facts.reference_chosen), None)
    if tokenizer is None or head is None:
        return None
    return says(case, question.prompt, tokenizer, head, nodes)


def _record(
    question: Question,
    description: TargetDescription,
    dtype: str,
    findings: Sequence[Finding],
    comparison: Comparison | None,
    spoken: Says | None,
    observations: NumericsObservations,
    tokens: int = 0,
) -> NumericsRecord:
    nodes = merge_calls(comparison.nodes) if comparison else []
    reference = REFERENCE_DTYPE.get(dtype, "")
    version = question.skeleton.builder.get("transformers", "")
    facts = NumericsFacts(
        fingerprint=description.fingerprint,
        reference=f"transformers {version} cpu {reference}" if comparison else "",
        noise=_noise(dtype) if comparison else "",
        tokens=tokens,
        blocks=tuple(facts.block for facts in nodes),
        first_fault=next((facts.fault for facts in nodes if facts.fault is not None), None),
        logits=next((facts.logits for facts in nodes if facts.logits is not None), None),
        says=spoken,
        bytes_read=_bytes_read(question) if comparison else 0,
        chosen=question.chosen,
    )
    return NumericsRecord.conclude(findings=findings, facts=facts, observations=observations, sources=SOURCES)


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

"""The numerics stage: whatever the target can show is held against the reference, and becomes a record."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack

from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.target import Target, TargetDescription
from day0.adapters.base.values import digest
from day0.adapters.base.worker_memory import MemoryWatch
from day0.adapters.targets.endpoint import EndpointTarget

from ..finding import Finding, Subject, make_finding
from ..target_nodes import TargetNodes
from .command import command_of
from .descent.first_fault import FirstFaults
from .findings import findings_of, left_out_findings
from .further import further_of
from .images.image_compare import with_images
from .images.image_findings import image_findings
from .made import Made, bytes_read, noise_text, record_of, reference_text
from .precision.fake_noise import Carried, carried
from .question import Question
from .record import NumericsObservations, NumericsRecord, Says
from .record_parts import ReferenceCheck
from .says import says
from .self_test.self_test_watch import SelfTestWatch
from .sequences import Sequences, sequences_of
from .spread.local_span import spread_locally
from .trust.reference_check import check_findings
from .trust.reference_trust import ReferenceTrust
from .trust.unscaled import unscaled_findings
from .walk.case import Case
from .walk.lockstep import Comparison, compare_model
from .walk.node_work import Watch


def measure_numerics(question: Question, target: Target, description: TargetDescription) -> NumericsRecord:
    """Compares the target with the reference over the whole model.

    Raises:
        WorkerError: the target could not even be asked what it is.
        InputError: a file that was named cannot be used.
    """
    began = time.perf_counter()
    skeleton = question.skeleton
    precision = target.spec.dtype or skeleton.dtype
    carriage = carried(precision, skeleton.dtype, question.release.config)
    refusal = _refusal(target, description, precision, carriage)
    if refusal is not None:
        return record_of(question, target.spec, description, None, [refusal], NumericsObservations())
    memory = MemoryWatch(os.getpid(), 0, lambda: None)
    try:
        if isinstance(target, EndpointTarget):
            from .endpoint.endpoint_measure import measure_endpoint

            made, findings = measure_endpoint(question, target)
        elif question.bundle is not None:
            made, findings = _from_bundle(question, target, description)
        else:
            assert carriage is not None, "what has none is refused, but for endpoints"
            made, findings = _walked(question, target, description, carriage)
    finally:
        memory.stop()
    observations = NumericsObservations(
        seconds=time.perf_counter() - began,
        reference_seconds=made.reference_seconds,
        target_seconds=made.target_seconds,
        peak_bytes=made.target_peak,
        peak_memory=memory.peak,
        memory_bound=question.memory,
        nodes_reused=made.reused,
        worker_log=tuple(getattr(target, "log", ())),
    )
    return record_of(question, target.spec, description, made, findings, observations)


def _refusal(
    target: Target, description: TargetDescription, precision: str, carriage: Carried | None
) -> Finding | None:
    subject = Subject(kind="target", name=str(target.spec))
    if isinstance(target, EndpointTarget):
        return None
    if "fragment" not in description.capabilities:
        offered = ", ".join(description.capabilities) or "nothing"
        return make_finding("NUM009", subject, f"{target.spec} claims {offered}, not that it runs nodes.")
    if carriage is None:
        said = f"{target.spec} computes in {precision}, which the reference can neither do nor model."
        return make_finding("NUM014", subject, said)
    claimed = description.dtypes.get("weights", ())
    if carriage.fake is not None and precision not in claimed:
        said = (
            f"{target.spec} is sent {carriage.dtype} and does not say that it computes in {precision}: it "
            f"names {', '.join(claimed) or 'no dtype'} for weights."
        )
        return make_finding("NUM014", subject, said)
    return None


def _modelled(target: Target, noise: str) -> Finding:
    said = f"What rounding explains on {target.spec} is modelled, not measured: {noise}."
    return make_finding("NUM032", Subject(kind="target", name=str(target.spec)), said)


def _identity(question: Question, target: Target, description: TargetDescription, precision: str) -> str:
    """Digest of everything about the target that its numbers depend on, and of what is looked at besides."""
    return digest(
        {
            "target": str(target.spec),
            "fingerprint": description.fingerprint.digest,
            "dtype": precision,
            "salt": question.salt,
            "self_test": question.asked.self_test,
        }
    )


def _walked(
    question: Question, target: Target, description: TargetDescription, carriage: Carried
) -> tuple[Made, list[Finding]]:
    dtype, fake = carriage.dtype, carriage.fake
    nodes = TargetNodes(target, question.skeleton, dtype)
    case = Case(
        skeleton=question.skeleton,
        checkpoint=question.release.checkpoint,
        dtype=dtype,
        store=question.store,
        target=_identity(question, target, description, carriage.precision),
        options=target.spec.options,
        memory=question.memory,
        step=f"numerics {target.spec}",
        progress=question.progress,
        fake=fake,
    )
    given = sequences_of(case, question)
    trust = ReferenceTrust(question, given)
    case = trust.case()
    if question.spread is not None and question.span is not None:
        spread_locally(case, question.spread, question.span)
    with ExitStack() as stack:
        comparison = compare_model(case, nodes, _watches(question, case, target, stack), trust.record)
    spoken = _says(given, question, comparison, nodes)
    check = trust.check(stopped=comparison.stopped is not None)
    images = with_images(question, case, target, comparison)
    further = further_of(question, case, target, given)
    made = Made(
        reference=reference_text(question.skeleton, dtype),
        noise=noise_text(dtype, fake),
        tokens=len(case.tokens.ids),
        nodes=images.nodes,
        says=spoken,
        check=check,
        left_out={**given.left_out, **images.left_out, **_groups(comparison)},
        dropped=images.dropped,
        bytes_read=bytes_read(question.release, question.skeleton, images.skeleton),
        signatures=images.signatures,
        ids=case.tokens.ids,
        reference_seconds=images.reference_seconds + given.drafted,
        target_seconds=nodes.seconds + images.seconds,
        target_peak=max(nodes.peak_bytes, images.peak_bytes),
        reused=images.reused,
        further=further,
        images=images.facts,
    )
    findings = [
        *given.findings,
        *([_modelled(target, made.noise)] if fake is not None else ()),
        *check_findings(check, question.release.model, stopped=comparison.stopped is not None),
        *unscaled_findings(question.release, question.skeleton),
        *(finding for part in images.parts for finding in _compared(question, target, part, images.skeleton)),
        *left_out_findings({**given.left_out, **images.left_out}, images.dropped),
        *image_findings(images.facts, str(target.spec), question.release.model),
        *further.findings,
    ]
    return made, findings


def _watches(question: Question, case: Case, target: Target, stack: ExitStack) -> Sequence[Watch]:
    watches: list[Watch] = [FirstFaults(target, case)]
    if question.asked.self_test:

        def wide() -> Target | None:
            return stack.enter_context(question.open_wide()) if question.open_wide is not None else None

        watches.append(SelfTestWatch(case, wide))
    return watches


def _from_bundle(
    question: Question, target: Target, description: TargetDescription
) -> tuple[Made, list[Finding]]:
    from .bundles.bundle_task import compare_opened

    bundle = question.bundle
    assert bundle is not None, "asked only with one"
    head = bundle.head
    identity = _identity(question, target, description, head.computes_in)
    case, comparison = compare_opened(bundle, question, target, description, identity)
    check = ReferenceCheck.model_validate(dict(head.check))
    left_out = {
        name: f"it is not in the bundle, whose capture said: {why}" for name, why in head.left_out.items()
    }
    made = Made(
        reference=f"{head.reference}, captured",
        noise=head.noise or noise_text(head.dtype),
        tokens=len(case.tokens.ids),
        nodes=comparison.nodes,
        says=None,
        check=check,
        left_out=left_out,
        dropped=comparison.dropped,
        bytes_read=comparison.bytes_read,
        signatures=comparison.signatures,
        ids=case.tokens.ids,
        reused=comparison.reused,
    )
    return made, [
        *([_modelled(target, made.noise)] if head.precision else ()),
        *check_findings(check, question.release.model),
        *_compared(question, target, comparison),
        *left_out_findings(left_out, {}),
    ]


def _compared(
    question: Question, target: Target, comparison: Comparison, further: Skeleton | None = None
) -> list[Finding]:
    kinds = {node.name: node.kind for node in question.skeleton.nodes}
    kinds |= {node.name: node.kind for node in (further.nodes if further else ()) if node.called}
    return findings_of(comparison, kinds, str(target.spec), command_of(question, target.spec))


def _groups(comparison: Comparison) -> dict[str, str]:
    return {name.partition(".")[0]: reason for name, reason in reversed(list(comparison.dropped.items()))}


def _says(given: Sequences, question: Question, comparison: Comparison, nodes: TargetNodes) -> Says | None:
    head = next((facts for facts in comparison.nodes if facts.reference_chosen), None)
    if given.tokenizer is None or head is None:
        return None
    return says(given.case, question.prompt, given.tokenizer, head, nodes)

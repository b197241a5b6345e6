"""The minimal run: first layers of each kind on real weights, then a cut-down release in the loader."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from day0.adapters.base.errors import (
    Day0Error,
    SkeletonError,
    UnsupportedError,
    WorkerCrashed,
    WorkerError,
)
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.release import Release
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.target import Generation, Target, TargetDescription
from day0.adapters.base.workaround import Chosen

from ..carrier import carrier_of
from ..confirmed import confirmed
from ..cut import Cut, cut_release, write_cut
from ..finding import Finding, Subject, make_finding
from ..outcomes import detail_of, log_of, outcome_of
from ..target_nodes import TargetNodes
from .findings import load_findings, node_findings
from .nodes import NodeRuns, batch, run_nodes
from .record import CutRelease, LoadFact, MinimalFacts, MinimalObservations, MinimalRecord

NEW_TOKENS = 4
SOURCES: Mapping[str, str] = {
    "/fingerprint": "measured: the target describes itself",
    "/tokens": "computed: drawn by a fixed seed",
    "/nodes": "measured: the target ran them",
    "/cut": "computed: config.json and headers",
    "/load": "measured: the target's own loader",
    "/generated": "measured: the target's own loader",
    "/chosen": "measured: coverage tried them on the target",
}


@dataclass(frozen=True)
class Question:
    """What the stage is asked.

    Attributes:
        release: whose weights run.
        skeleton: of it.
        store: holds the cut-down release.
        memory_limit: bytes of a worker; a larger cut-down release is not written.
        progress: told of each node.
        chosen: ways around with which the target was opened.
    """

    release: Release
    skeleton: Skeleton
    store: RunStore
    memory_limit: int
    progress: Progress = silent
    chosen: Sequence[Chosen] = ()


@dataclass(frozen=True)
class _Loaded:
    """What came of the cut-down release in the target's loader."""

    findings: Sequence[Finding] = ()
    cut: CutRelease | None = None
    load: LoadFact | None = None
    generated: Sequence[Sequence[int]] | None = None
    seconds: float = 0.0
    peak_bytes: int = 0
    file: str = ""


def measure_minimal(question: Question, target: Target, description: TargetDescription) -> MinimalRecord:
    """Runs nodes and loader; whatever fails becomes a finding of its own kind."""
    began = time.perf_counter()
    spec = str(target.spec)
    repro = f"day0 minimal {question.release.model} --target '{spec}'"
    dtype = carrier_of(target.spec.dtype or question.skeleton.dtype, question.skeleton.dtype)
    tokens = batch(question.skeleton.config)
    runs, loaded, peak = NodeRuns(), _Loaded(), 0
    findings: list[Finding] = []
    try:
        cut = cut_release(question.release, question.skeleton, question.store)
    except SkeletonError as error:
        findings.append(_no_cut(question, error.message))
    else:
        if "fragment" in description.capabilities:
            runs, peak = _run(question, cut, target, dtype, tokens)
            findings += node_findings(runs.facts, runs.logs, spec, repro)
        else:
            offered = ", ".join(description.capabilities) or "nothing"
            said = f"{spec} claims {offered}, not that it runs nodes."
            findings.append(make_finding("MIN017", Subject(kind="target", name=spec), said))
        loaded = _load(question, cut, target, description, dtype, tokens, repro)
    return MinimalRecord.conclude(
        findings=[*findings, *loaded.findings],
        facts=MinimalFacts(
            fingerprint=description.fingerprint,
            tokens=tokens,
            nodes=tuple(runs.facts),
            cut=loaded.cut,
            load=loaded.load,
            generated=loaded.generated,
            chosen=question.chosen,
        ),
        observations=MinimalObservations(
            seconds=time.perf_counter() - began,
            load_seconds=loaded.seconds,
            peak_bytes=max(peak, loaded.peak_bytes),
            worker_log=tuple(getattr(target, "log", ())),
        ),
        sources=SOURCES,
        files={"cut": loaded.file} if loaded.file else {},
    )


def _run(
    question: Question, cut: Cut, target: Target, dtype: str, tokens: Sequence[Sequence[int]]
) -> tuple[NodeRuns, int]:
    nodes = TargetNodes(target, cut.skeleton, dtype)
    runs = run_nodes(
        cut,
        nodes,
        dtype=dtype,
        options=target.spec.options,
        tokens=tokens,
        progress=question.progress,
        step=f"minimal {target.spec}",
    )
    return runs, nodes.peak_bytes


def _load(
    question: Question,
    cut: Cut,
    target: Target,
    description: TargetDescription,
    dtype: str,
    tokens: Sequence[Sequence[int]],
    repro: str,
) -> _Loaded:
    """Writes the cut-down release and has the target's own loader load and continue it."""
    size = sum(info.bytes for info in cut.release.checkpoint.tensors.values())
    if size > question.memory_limit:
        limit = f"more than the {question.memory_limit} that a worker may take"
        return _Loaded(findings=[_no_cut(question, f"its weights alone have {size} bytes, {limit}")])
    with _folder(question.store, cut) as (folder, file):
        try:
            write_cut(cut, folder)
        except (Day0Error, OSError) as error:
            reason = detail_of(error) if isinstance(error, Day0Error) else str(error)
            return _Loaded(findings=[_no_cut(question, reason)])
        summary = cut.summary(question.release.config)
        if "model" not in description.capabilities:
            fact = LoadFact(outcome="unsupported", detail="the target does not claim the capability `model`")
            findings = load_findings(fact, (), str(target.spec), repro)
            return _Loaded(findings=findings, cut=summary, load=fact, file=file)
        return _loaded(cut, summary, folder, file, target, description, dtype, tokens, repro)


def _loaded(
    cut: Cut,
    summary: CutRelease,
    folder: Path,
    file: str,
    target: Target,
    description: TargetDescription,
    dtype: str,
    tokens: Sequence[Sequence[int]],
    repro: str,
) -> _Loaded:
    spec = str(target.spec)
    try:
        report = confirmed(lambda: target.load(str(folder), dtype=dtype))
    except (WorkerError, UnsupportedError) as error:
        fact = LoadFact(outcome=outcome_of(error), detail=detail_of(error))
        findings = load_findings(fact, (), spec, " ".join([repro, *log_of(error)]))
        return _Loaded(findings=findings, cut=summary, load=fact, file=file)
    fact = LoadFact(
        outcome="loaded",
        missing=tuple(report.missing),
        unexpected=tuple(report.unexpected),
        mismatched=tuple(report.mismatched),
    )
    findings = load_findings(fact, cut.skeleton.unused, spec, repro)
    generated, peak = None, 0
    if "generate" in description.capabilities:
        try:
            generation = _continued(target, folder, dtype, tokens)
            generated, peak = [list(row) for row in generation.tokens], generation.peak_bytes
        except (WorkerError, UnsupportedError) as error:
            subject = Subject(kind="target", name=spec)
            why = f"({outcome_of(error)}): {detail_of(error)}"
            said = f"{spec} loaded the cut-down release and does not generate {why}."
            findings.append(make_finding("MIN016", subject, said, evidence=(*log_of(error), repro)))
    return _Loaded(
        findings=findings,
        cut=summary,
        load=fact,
        generated=generated,
        seconds=report.seconds,
        peak_bytes=peak,
        file=file,
    )


def _no_cut(question: Question, reason: str) -> Finding:
    subject = Subject(kind="model", name=question.release.model)
    return make_finding("MIN015", subject, f"No cut-down release of {question.release.model}: {reason}.")


def _continued(target: Target, folder: Path, dtype: str, tokens: Sequence[Sequence[int]]) -> Generation:
    """A continuation by the release that the target has just loaded; a fresh worker loads it first."""
    try:
        return target.generate(tokens, new_tokens=NEW_TOKENS)
    except WorkerCrashed:
        target.load(str(folder), dtype=dtype)
        return target.generate(tokens, new_tokens=NEW_TOKENS)


@contextmanager
def _folder(store: RunStore, cut: Cut) -> Iterator[tuple[Path, str]]:
    """Where the cut-down release lies and its name in the run store; a remote store does not keep it."""
    if store.is_local:
        name = f"cuts/{cut.key}"
        yield Path(store.path(name)), name
        return
    with tempfile.TemporaryDirectory(prefix="day0-cut-") as folder:
        yield Path(folder), ""

"""The coverage stage: what the model calls against what is known of the target and what a probe can tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from day0.adapters.registries.registry import Registry

from .findings import findings_of, findings_of_model
from .kernels import kernels_of, merged
from .knowledge import Knowledge
from .needs import Need, needs_of
from .question import Question
from .record import CoverageFacts, CoverageObservations, CoverageRecord
from .statuses import State, covered_ops, gaps_of, states_of

SOURCES: Mapping[str, str] = {
    "/fingerprint": "measured: the target describes itself",
    "/config_digest": "computed: digest of config.json",
    "/overloads": "computed: operators captured on the meta device from config.json",
    "/signatures": "computed: operators captured on the meta device from config.json",
    "/statuses": "measured: replay of the captured calls, registry rows",
    "/ops": "measured: replay of the captured calls; impact computed from bytes and operations",
    "/gaps": "measured: replay of the captured calls; impact computed from bytes and operations",
    "/new_since_registry": "computed: captured operators without a registry row",
    "/kernels": "config.json#/quantization_config, sources of the model's classes",
    "/functions": "computed: functions called while the operators were captured",
    "/alternatives": "computed: operators captured with other implementations, registry rows",
    "/chosen": "measured: tried on the target",
}


def measure_coverage(question: Question) -> CoverageRecord:
    """Says of every operator that the model calls what the target makes of it.

    Rows measured under the target's very fingerprint stand. Inherited ones are tried again first, then those
    that are only declared, then those nobody has tried, each the one with the largest share of the model's
    work first, until the budget is spent. What then remains is unknown, which makes the stage unverified.
    """
    needs = needs_of(question.capture, question.spec)
    new = _new(needs, question.registry)
    with _knowledge(question) as knowledge:
        knowledge.learn(needs)
        states = _judged(needs, knowledge)
        return _record(question, knowledge, states, new)


def _knowledge(question: Question) -> Knowledge:
    return Knowledge(
        question.spec,
        question.description,
        question.registry,
        question.open_target,
        budget=question.budget,
        keep=question.keep,
        progress=question.progress,
    )


def _judged(needs: Sequence[Need], knowledge: Knowledge) -> list[State]:
    """The state of each need, missing ones rebuilt where that is possible."""
    states = states_of(needs, knowledge.registry, knowledge.fingerprint)
    missing = [state.need.example for state in states if state.status == "missing"]
    if not missing:
        return states
    from .decomposition import rebuild  # imports torch, which a target without gaps does not need

    rebuilt = rebuild(missing, knowledge.native)
    return states_of(needs, knowledge.registry, knowledge.fingerprint, rebuilt)


def _record(
    question: Question, knowledge: Knowledge, states: Sequence[State], new: Sequence[str]
) -> CoverageRecord:
    ops = covered_ops(states, question.spec)
    gaps = gaps_of(ops)
    calls = [call for state in states for call in state.need.calls]
    kernels = merged(kernels_of(question.config), question.capture.kernels, question.kernels)
    facts = CoverageFacts(
        fingerprint=knowledge.fingerprint,
        config_digest=question.config_digest,
        overloads=len({call.op for call in calls}),
        signatures=len({call.signature for call in calls}),
        statuses=dict(sorted(Counter(entry.status for entry in ops).items())),
        ops=ops,
        gaps=gaps,
        new_since_registry=new,
        kernels=kernels,
        functions=question.capture.functions,
    )
    return CoverageRecord.conclude(
        findings=[
            *findings_of(question.spec, ops, gaps, can_probe=knowledge.can_probe),
            *findings_of_model(question.capture.anomalies, kernels, question.spec),
        ],
        target=str(question.spec),
        facts=facts,
        observations=CoverageObservations(
            capture_seconds=question.seconds, probe_seconds=knowledge.seconds, probed=knowledge.probed
        ),
        sources=SOURCES,
    )


def _new(needs: Sequence[Need], registry: Registry) -> tuple[str, ...]:
    """`OP(DTYPES)` of which the registry has no measured row at all, under whatever fingerprint."""
    known = {(row.op, tuple(row.dtypes)) for row in registry.rows.values()}
    asked = {(need.example.op, tuple(need.example.dtypes)) for need in needs}
    return tuple(f"{op}({','.join(dtypes)})" for op, dtypes in sorted(asked - known))

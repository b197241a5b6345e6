"""The coverage stage: what the model calls against what is known of the target and what a probe can tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from day0.adapters.registries.registry import Registry

from .compiled import findings_of_kinds
from .findings import failed_ways, findings_of, findings_of_model, low_precision_findings
from .gaps import gap_entries, stored_gaps
from .judgement import judge
from .kernels import merged
from .knowledge import Knowledge
from .needs import Need, needs_of
from .passed_over import findings_of_passed_over
from .question import Question
from .record import CoverageFacts, CoverageObservations, CoverageRecord
from .statuses import covered_ops, gap_id, key_of

SOURCES: Mapping[str, str] = {
    "/fingerprint": "measured: the target describes itself",
    "/config_digest": "computed: digest of config.json",
    "/overloads": "computed: operators captured on the meta device from config.json",
    "/signatures": "computed: operators captured on the meta device from config.json",
    "/statuses": "measured: replay of the captured calls, registry rows",
    "/ops": "measured: replay of the captured calls; impact computed from bytes and operations",
    "/gaps": "measured: replay of the captured calls; impact computed from bytes and operations",
    "/new_since_registry": "computed: captured operators without a registry row",
    "/kernels": "computed: config.json and sources of the model's classes",
    "/functions": "computed: functions called while the operators were captured",
    "/kinds": "measured: one node of each kind on the target, random weights",
    "/dynamic": "measured: one node of each kind on the target, random weights",
    "/alternatives": "computed: operators captured with other implementations, registry rows",
    "/chosen": "measured: tried on the target",
}


def measure_coverage(question: Question) -> CoverageRecord:
    """Says of every operator that the model calls what the target makes of it.

    Rows measured under the target's very fingerprint stand. Inherited ones are tried again first, then those
    that are only declared, then those nobody has tried, each the one with the largest share of the model's
    work first, until the budget is spent. What then remains is unknown, which makes the stage unverified.
    Where something is missing or wrong, the model's other implementations and ways around single operators
    are judged in the same way and tried on the target.
    """
    new = _new(needs_of(question.capture, question.spec), question.registry)
    with _knowledge(question) as knowledge:
        judgement = judge(question, knowledge)
    ops = covered_ops(judgement.named.states, question.spec)
    low = covered_ops(judgement.low, question.spec)
    entries = gap_entries(ops, judgement, question)
    stored = stored_gaps(low, ops)
    gaps = [gap for _, gap in [*entries, *stored]]
    kernels = merged(question.capture.kernels)
    around = {gap.id: gap.workaround for gap in gaps}
    ops = tuple(
        one.model_copy(update={"workaround": around.get(gap_id(key_of(one)), "")}) for one in (*ops, *low)
    )
    dtype = question.spec.dtype or question.capture.captured_dtype
    calls = [call for state in judgement.named.states for call in state.need.calls]
    return CoverageRecord.conclude(
        findings=[
            *findings_of(
                question.spec,
                ops[: len(ops) - len(low)],
                entries,
                can_probe=knowledge.can_probe,
                undecided=[
                    gap.id
                    for entry, gap in entries
                    if judgement.is_undecided(key_of(entry), dtype)
                    or (knowledge.spent and not gap.workaround)
                ],
            ),
            *low_precision_findings(question.spec, question.scheme, [gap for _, gap in stored]),
            *findings_of_kinds(question.spec, dtype, judgement.compiled),
            *failed_ways(question.spec, judgement.ways.failed, judgement.broken),
            *findings_of_model(question.capture, kernels, question.spec),
            *findings_of_passed_over(question, gaps),
        ],
        target=str(question.spec),
        facts=CoverageFacts(
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
            kinds=judgement.compiled.kinds,
            dynamic=judgement.compiled.dynamic,
            alternatives=judgement.alternatives(),
            chosen=judgement.chosen(),
        ),
        observations=CoverageObservations(
            capture_seconds=question.seconds,
            probe_seconds=knowledge.seconds,
            probed=knowledge.probed,
            kinds=judgement.compiled.seconds,
            spent=knowledge.is_unfinished([state.need for state in judgement.named.states]),
        ),
        sources=SOURCES,
    )


def _knowledge(question: Question) -> Knowledge:
    return Knowledge(
        question.spec,
        question.description,
        question.registry,
        question.open_target,
        budget=question.budget,
        keep=question.keep,
        stored=question.known_rows,
        progress=question.progress,
    )


def _new(needs: Sequence[Need], registry: Registry) -> tuple[str, ...]:
    """`OP(DTYPES)` of which the registry has no measured row at all, under whatever fingerprint."""
    known = {(row.op, tuple(row.dtypes)) for row in registry.rows.values()}
    asked = {(need.example.op, tuple(need.example.dtypes)) for need in needs}
    return tuple(f"{op}({','.join(dtypes)})" for op, dtypes in sorted(asked - known))

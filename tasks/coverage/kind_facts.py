"""What the record says of kinds, out of the rows that are known; and what of them is still to be tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from day0.adapters.base.skeleton import Node, Skeleton

from ..outcomes import RAN
from .kind_rows import KindRow, KindRows, KindsOn
from .record_kinds import KindCompile, KindSeconds, KindShapes, ShapeFailure
from .size_cases import EXAMPLE, ODD_WIDTHS, ONES, Case, cases_of, untaken

PHASES = ("prefill", "decode")
UNCOMPILED, UNTESTED, ALIKE = "uncompiled", "untested", "alike"
NO_TIME = "no time was left"


def firsts_of(skeleton: Skeleton) -> Mapping[str, Node]:
    """Kind -> its first node that a forward calls."""
    found: dict[str, Node] = {}
    for node in skeleton.nodes:
        if node.called:
            found.setdefault(node.kind, node)
    return found


def is_uncompiled(on: KindsOn, rows: KindRows, kind: str) -> bool:
    """Whether a kind is still to be compiled, in prefill or for a decode step."""
    if on.is_due(rows, kind, "prefill"):
        return True
    before = on.known(rows, kind, "prefill")
    ran = before is not None and before[0].outcome == RAN
    return ran and on.is_due(rows, kind, "decode")


def is_open(on: KindsOn, rows: KindRows, node: Node, case: Case) -> bool:
    """Whether something is to be learnt of a kind from a case of the sweep."""
    prefill, example = on.known(rows, node.kind, "prefill"), on.known(rows, node.kind, EXAMPLE.name)
    if prefill is not None and prefill[0].outcome != RAN:
        return False
    if case is not EXAMPLE and example is not None and example[0].outcome == UNCOMPILED:
        return False
    return case.concerns(node) and on.is_due(rows, node.kind, case.name)


def is_known(on: KindsOn, rows: KindRows, skeleton: Skeleton) -> bool:
    """Whether nothing of a model's kinds is left to be tried."""
    cases = cases_of(skeleton.config)
    return not any(
        is_uncompiled(on, rows, kind) or any(is_open(on, rows, node, case) for case in cases)
        for kind, node in firsts_of(skeleton).items()
    )


def compiled_facts(
    on: KindsOn, rows: KindRows, skeleton: Skeleton, reason: str = NO_TIME
) -> list[KindCompile]:
    """Each kind in prefill, then each in decode; `reason` says why one was not tried."""
    firsts = firsts_of(skeleton)
    return [
        _compiled(on, rows, node, phase, len(skeleton.kinds[kind]), reason)
        for phase in PHASES
        for kind, node in firsts.items()
    ]


def size_facts(on: KindsOn, rows: KindRows, skeleton: Skeleton) -> list[KindShapes]:
    """Each kind over all cases; empty where the target compiles nothing, or nothing was compiled."""
    firsts = firsts_of(skeleton)
    known = {kind: on.known(rows, kind, EXAMPLE.name) for kind in firsts}
    compiling = any(found and found[0].outcome != UNCOMPILED for found in known.values())
    started = (on.known(rows, kind, "prefill") for kind in firsts)
    if not compiling and not any(found and found[0].graphs for found in started):
        return []
    return [_sizes(on, rows, node, skeleton) for node in firsts.values()]


def seconds_of(on: KindsOn, rows: KindRows, skeleton: Skeleton) -> list[KindSeconds]:
    """What compiling and running each kind took, where it ran."""
    found = []
    for phase in PHASES:
        for kind, node in firsts_of(skeleton).items():
            known = on.known(rows, kind, phase)
            if known is not None and known[0].outcome == RAN:
                took = {"compile": known[0].compile_seconds, "run": known[0].run_seconds}
                found.append(KindSeconds(node=node.name, phase=phase, **took))
    return found


def _compiled(on: KindsOn, rows: KindRows, node: Node, phase: str, nodes: int, reason: str) -> KindCompile:
    found = on.known(rows, node.kind, phase)
    same: dict[str, Any] = {
        "kind": node.kind,
        "node": node.name,
        "nodes": nodes,
        "role": node.role,
        "layer_kind": node.layer_kind,
        "feed_forward": node.feed_forward,
        "phase": phase,
    }
    if found is None or found[0].outcome == UNTESTED:
        before = on.known(rows, node.kind, "prefill") if phase == "decode" else None
        ended = before[0].outcome if before is not None else RAN
        why = f"its prefill ended as {'not_run' if ended == UNTESTED else ended}"
        detail = found[0].detail if found else reason if ended == RAN else why
        return KindCompile(**same, outcome="not_run", detail=detail)
    row, grade = found
    return KindCompile(
        **same,
        outcome=row.outcome,
        grade=grade,
        op=row.op,
        dtype=row.op_dtype,
        shape=row.shape,
        place=row.place,
        detail=row.detail,
        operators=row.operators,
        kernels=row.kernels,
        breaks=row.breaks,
        deviation=row.deviation,
        reduced=row.reduced,
    )


def _sizes(on: KindsOn, rows: KindRows, node: Node, skeleton: Skeleton) -> KindShapes:
    cases = [case for case in cases_of(skeleton.config) if case.concerns(node)]
    known = {case.name: on.known(rows, node.kind, case.name) for case in cases}
    found = [row for row, _ in filter(None, known.values()) if row.outcome != ALIKE]
    ran = [row for row in found if row.outcome == RAN]
    failed = [row for row in found if row.outcome not in (RAN, UNTESTED)]
    prefill = on.known(rows, node.kind, "prefill")
    if prefill is not None and prefill[0].outcome not in (RAN, UNTESTED):
        failed = [prefill[0]]
        untested = [f"all: its prefill ended as {prefill[0].outcome}"]
    else:
        untested = [f"{name}: {NO_TIME}" for name, one in known.items() if one is None]
    untested += [f"{row.case}: {row.detail}" for row in found if row.outcome == UNTESTED]
    grades = {grade for _, grade in filter(None, known.values())}
    return KindShapes(
        kind=node.kind,
        node=node.name,
        role=node.role,
        answer=_answer(ran, failed),
        grade="inherited" if "inherited" in grades else "measured" if grades else "",
        ran=[row.case for row in ran],
        graphs=sum(row.graphs for row in ran),
        recompiled=[row.case for row in ran if row.anew],
        fixed=next((row.fixed for row in ran if row.fixed), ""),
        breaks=list(dict.fromkeys(text for row in ran for text in row.breaks)),
        failures=[
            ShapeFailure(case=row.case, outcome=row.outcome, op=row.op, detail=row.detail) for row in failed
        ],
        untested=[*untested, *untaken(skeleton.config, node)],
    )


def _answer(ran: Sequence[KindRow], failed: Sequence[KindRow]) -> str:
    """See `KindShapes.answer`; a size of 1, which torch compiles for by itself, decides nothing."""
    if not ran:
        return "failed" if failed else "unknown"
    if any(row.breaks for row in ran):
        return "fallback"
    others = [row for row in ran if row.case not in (EXAMPLE.name, *ONES, *ODD_WIDTHS)]
    if any(row.fixed for row in ran) or any(row.anew for row in others):
        return "static"
    return "dynamic" if others else "unknown"

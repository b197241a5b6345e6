"""From what ran and loaded to findings: one for each class of failure of each kind of node."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..finding import Finding, Subject, make_finding
from ..outcomes import RAN
from .record import LoadFact, NodeRunFact

CODES: Mapping[str, str] = {
    "missing_operator": "MIN001",
    "dtype": "MIN002",
    "shape": "MIN003",
    "key_mismatch": "MIN004",
    "memory": "MIN005",
    "crash": "MIN006",
    "hang": "MIN007",
    "import": "MIN008",
    "unsupported": "MIN009",
    "nonfinite": "MIN010",
    "runtime": "MIN011",
    "not_run": "MIN012",
}
"""Class of failure -> finding."""

_OPERATORS = (
    r"aten::[A-Za-z_0-9]+(?:\.[A-Za-z_0-9]+)?",
    r"aten\.[A-Za-z_0-9]+\.[A-Za-z_0-9]+",
    r"could not find an implementation for *'?([A-Za-z_0-9]+)(?=\(\d+\)|')",
    r"unsupported (?:onnx )?(?:operator|op|node)s?:? *'?([A-Za-z_0-9]+)",
    r"[\"']([A-Za-z_0-9]+)[\"'] not implemented for",
    r"([A-Za-z_0-9]+) is not implemented for",
)
_NAMED = 5


def operator_in(text: str) -> str:
    """The operator that an error names, as it spells it; empty where it names none."""
    for pattern in _OPERATORS:
        found = re.search(pattern, text, re.IGNORECASE)
        if found is not None:
            return found.group(found.lastindex or 0)
    return ""


def node_findings(
    facts: Sequence[NodeRunFact], logs: Mapping[str, Sequence[str]], target: str, repro: str
) -> list[Finding]:
    """One finding for each class of failure of each kind, named by its first node.

    Args:
        facts: each node in each phase.
        logs: node name -> the worker's last lines.
        target: the target's text.
        repro: command that shows it again.
    """
    groups: dict[tuple[str, str], list[NodeRunFact]] = {}
    for fact in facts:
        if fact.outcome != RAN:
            kind = "" if fact.outcome == "not_run" else fact.kind
            groups.setdefault((fact.outcome, kind), []).append(fact)
    return [_finding(group, logs, target, repro) for group in groups.values()]


def load_findings(load: LoadFact | None, unused: Sequence[str], target: str, repro: str) -> list[Finding]:
    """What the target's own loader said of the cut-down release.

    Args:
        load: its report; None where it was not asked.
        unused: tensors of the cut-down release that the reference's structure has no place for either.
        target: the target's text.
        repro: command that shows it again.
    """
    if load is None:
        return []
    subject = Subject(kind="target", name=target)
    if load.outcome != "loaded":
        code = "MIN009" if load.outcome == "unsupported" else "MIN014"
        said = f"The loader of {target} fails on the cut-down release ({load.outcome}): {load.detail}."
        return [make_finding(code, subject, said, evidence=(repro,))]
    strange = [name for name in load.unexpected if name not in unused]
    wrong = [
        (load.missing, "are missing"),
        (strange, "are unexpected"),
        (load.mismatched, "have another shape"),
    ]
    parts = [f"{len(names)} keys {what}: {_some(names)}" for names, what in wrong if names]
    if parts:
        said = f"The loader of {target} finds that keys do not fit: {'; '.join(parts)}."
        return [make_finding("MIN013", subject, said, evidence=(repro,))]
    left = [name for name in load.unexpected if name in unused]
    if left:
        what = f"{len(left)} tensors that the model has no place for: {_some(left)}"
        said = f"The loader of {target} leaves out {what}."
        return [make_finding("MIN018", subject, said)]
    return []


def _finding(
    group: Sequence[NodeRunFact], logs: Mapping[str, Sequence[str]], target: str, repro: str
) -> Finding:
    first = group[0]
    operator = operator_in(first.detail) if first.outcome in ("missing_operator", "dtype") else ""
    names = list(dict.fromkeys(fact.name for fact in group))
    phases = " and ".join(dict.fromkeys(fact.phase for fact in group))
    named = f" (operator {operator})" if operator else ""
    return make_finding(
        CODES[first.outcome],
        Subject(kind="node", name=first.name),
        f"{_some(names)} on {target}, {phases}: {first.outcome}{named}: {first.detail}.",
        evidence=(*logs.get(first.name, ()), repro),
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more

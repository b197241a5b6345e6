"""Ways around single operators: which may help, and which of them work on the target."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Number
from day0.adapters.base.workaround import Chosen, Cost, Workaround, with_chosen
from day0.adapters.registries.registry import Registry
from day0.adapters.registries.row import RegistryRow
from day0.adapters.workarounds.registry import fits, load, plugins

from .knowledge import Knowledge
from .needs import Need
from .statuses import Key, State, half_tried, worst

_WIDER = "fp32"
_ROUNDS = 3
_OF_OPERATORS = ("cast", "decompose")
"""Ways around that take an operator; they are proposed for each gap by themselves."""


@dataclass(frozen=True)
class Tried:
    """A way around that was replayed on the target.

    Attributes:
        way: its id.
        works: whether every row ran and was right.
        checked: what was seen, in a few words.
        error: largest deviation from fp64.
        tolerance: what it was held against.
    """

    way: str
    works: bool
    checked: str
    error: Number | None = None
    tolerance: float | None = None


@dataclass(frozen=True)
class Ways:
    """What came of the ways around single operators.

    Attributes:
        works: those that work, by entry.
        failed: id of one that was tried in vain -> what became of it.
        untried: those that may help and that there was no time for, by entry, where none works.
    """

    works: Mapping[Key, Tried] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    untried: Mapping[Key, str] = field(default_factory=dict)


def candidates(states: Sequence[State], config: Mapping[str, Any], named: str = "") -> list[str]:
    """Ids of the ways around one entry's operator that may help, the smallest first.

    What an installed package registers for this very operator comes before what is made of torch alone.

    Args:
        states: of the entry.
        config: of the model.
        named: ids that the target names already, which come first.
    """
    call = states[0].need.example
    encoded = call.model_dump(mode="json")
    listed: list[Workaround] = [load(way) for way in named.split(",") if way]
    listed += [way for way in plugins(without=_OF_OPERATORS) if way.operators()]
    if any(state.rebuilt for state in states):
        listed.append(load(f"decompose:{call.op}"))
    if call.op.startswith("aten.") and _WIDER not in call.dtypes:
        listed.append(load(f"cast:{call.op}:{_WIDER}"))
    fitting = [way for way in listed if way.operators() and fits(way, encoded, config)]
    return list(dict.fromkeys(way.id for way in fitting))


def remodelled(gaps: Mapping[Key, Sequence[State]], spec: TargetSpec, config: Mapping[str, Any]) -> list[str]:
    """Ids of ways around that change the model and may help with a gap; the named ones are in already."""
    named = spec.options.get("with", "").split(",")
    calls = [states[0].need.example.model_dump(mode="json") for states in gaps.values()]
    return [
        way.id
        for way in plugins(without=_OF_OPERATORS)
        if not way.operators() and way.id not in named and any(fits(way, call, config) for call in calls)
    ]


def try_ways(
    groups: Mapping[Key, Sequence[State]], knowledge: Knowledge, spec: TargetSpec, config: Mapping[str, Any]
) -> Ways:
    """The first way around each entry that works on the target, replayed there with the entry's own calls.

    In each round every entry's next candidate is looked up, and where nobody has tried it, switched on with
    others in one worker while time is left.

    Args:
        groups: entries with a gap.
        knowledge: opens the target, and holds the time left.
        spec: the target with the implementations that were chosen.
        config: of the model.
    """
    named = spec.options.get("with", "")
    left = {key: candidates(states, config, named) for key, states in groups.items()}
    works: dict[Key, Tried] = {}
    failed: dict[str, str] = {}
    untried: dict[Key, str] = {}
    for _ in range(_ROUNDS):
        due = {key: ways.pop(0) for key, ways in left.items() if ways and key not in works}
        if not due:
            break
        found = _replayed(due, groups, knowledge, spec)
        for key, way in due.items():
            tried = found.get(key)
            if tried is None:
                if _may_help(way, worst(groups[key])):
                    untried.setdefault(key, way)
            elif tried.works:
                works[key] = tried
            else:
                failed[way] = tried.checked
    return Ways(works, failed, {key: way for key, way in untried.items() if key not in works})


def try_named(
    groups: Mapping[Key, Sequence[State]], knowledge: Knowledge, spec: TargetSpec, config: Mapping[str, Any]
) -> dict[str, str]:
    """Ways around single operators that the target names and that do not work there: id -> what came of it.

    A target runs with what it names, whether it has the operator itself or not.

    Args:
        groups: all entries.
        knowledge: opens the target, and holds the time left.
        spec: the target as named.
        config: of the model.
    """
    named = [load(way) for way in spec.options.get("with", "").split(",") if way]
    due: dict[Key, str] = {}
    for key, states in groups.items():
        call = states[0].need.example.model_dump(mode="json")
        for way in named:
            if key[0] in way.operators() and fits(way, call, config):
                due[key] = way.id
    found = _replayed(due, groups, knowledge, spec) if due else {}
    return {tried.way: tried.checked for tried in found.values() if not tried.works}


def _may_help(way: str, state: State) -> bool:
    """Whether a way around that nobody tried counts as found: a cast gives no kernel where there is none."""
    cast, row = way.startswith("cast:"), state.known.row if state.known else None
    return not cast or state.status != "missing" or (row is not None and row.reason.startswith("dtype:"))


def _replayed(
    due: Mapping[Key, str], groups: Mapping[Key, Sequence[State]], knowledge: Knowledge, spec: TargetSpec
) -> dict[Key, Tried]:
    """What is known of each entry's way around, or found out now; nothing of those there is no time for."""
    needs = {key: [state.need for state in groups[key]] for key in due}
    known = {key: knowledge.registry_with(way) for key, way in due.items()}
    asked = {
        key: way
        for key, way in due.items()
        if any(
            knowledge.is_due(need, known[key]) or knowledge.is_half_tried(need, known[key])
            for need in needs[key]
        )
    }
    failed: dict[Key, Tried] = {}
    if asked and knowledge.left > 0:
        try:
            found = _try(asked, needs, knowledge, spec)
            known |= {key: known[key].overlaid(found[key]) for key in asked}
        except Day0Error as error:  # a way around of somebody else's may not even load
            failed = {key: Tried(way, False, error.message) for key, way in asked.items()}
    judged = {
        key: _judged(way, needs[key], _rows(needs[key], known[key], knowledge))
        for key, way in due.items()
        if key not in failed
    }
    return failed | {key: tried for key, tried in judged.items() if tried is not None}


def _try(
    asked: Mapping[Key, str], needs: Mapping[Key, Sequence[Need]], knowledge: Knowledge, spec: TargetSpec
) -> dict[Key, Registry]:
    """The rows of each entry with its way around switched on, which are kept for the next time."""
    from .prober import Prober

    began = time.monotonic()
    chosen = [Chosen(id=way, options={"with": way}) for way in asked.values()]
    empty = Registry(knowledge.registry.name)
    try:
        with knowledge.open(with_chosen(spec, chosen)) as target:
            prober = Prober(
                target, knowledge.fingerprint, empty, budget=knowledge.left, progress=knowledge.progress
            )
            prober.run([need for key in asked for need in needs[key]])
    finally:
        knowledge.timed(began)
    tried = prober.registry
    return {key: knowledge.kept_with(way, _rows(needs[key], tried, knowledge)) for key, way in asked.items()}


def _rows(needs: Sequence[Need], registry: Registry, knowledge: Knowledge) -> list[RegistryRow]:
    found = [registry.lookup(need.key, knowledge.fingerprint) for need in needs]
    return [known.row for known in found if known is not None and known.grade == "measured"]


def _judged(way: str, needs: Sequence[Need], rows: Sequence[RegistryRow]) -> Tried | None:
    """What rows say of a way around; None: the time was too short for some of them."""
    calls = {need.key: need.calls for need in needs}
    bad = [
        row
        for row in rows
        if row.status != "native" or row.refusal(call.signature for call in calls[row.key])
    ]
    if bad:
        return Tried(way, False, bad[0].reason or bad[0].status)
    if len(rows) < len(needs):
        return None
    how = "replayed on the target" + (" with one call" if any(map(half_tried, rows)) else "")
    measured = [row for row in rows if isinstance(row.error, int | float)]
    if not measured:
        return Tried(way, True, f"{how}: exact")
    largest = max(measured, key=lambda row: float(row.error or 0.0))
    said = f"error {float(largest.error or 0.0):.2g} of {largest.tolerance or 0.0:.2g} allowed"
    return Tried(way, True, f"{how}: {said}", largest.error, largest.tolerance)


def as_chosen(tried: Tried, op: str, launches: int) -> Chosen:
    """The record's entry of a way around that works."""
    cost = Cost(error=tried.error, tolerance=tried.tolerance, launches=launches)
    options = {"with": tried.way}
    return Chosen(id=tried.way, options=options, replaces=(op,), cost=cost, checked=tried.checked)

"""The judgement of one target: the model as named, its alternatives, ways around what then is open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from day0.adapters.base.workaround import Chosen, Cost, with_chosen

from .alternatives import Judged, captured, combinations, entry, name_of, needs_with, smallest, with_options
from .compiled import Compiled, run_kinds
from .impact import share_key
from .knowledge import FOR_ONE_STEP, Knowledge
from .low_precision import low_precision_needs
from .needs import GRAPH_STACKS, Need, group, needs_of
from .question import Question
from .record import Alternative
from .statuses import RUNS, Key, State, grouped, states_of, worst
from .ways import Ways, as_chosen, remodelled, try_named, try_ways

_REBUILT = ("missing", "wrong", "crash", "hang", "double_fault", "slow", "fallback")
"""Statuses of operators that torch's decomposition may stand for."""

_ROUNDS = 3
"""How often all combinations are judged anew where judging one taught something of others."""


@dataclass(frozen=True)
class Judgement:
    """What the stage found out.

    Attributes:
        named: the target as named.
        best: the combination with the smallest gap; `named` itself where none has a smaller one.
        judged: all combinations, `named` first.
        checked: how the best one was tried on the target, empty where it was not.
        ways: around single operators.
        compiled: what came of one node of each kind, run with what was chosen.
        low: rows that the stored precision asks for.
        broken: id of a way around that the target names and that does not work -> what came of it.
    """

    named: Judged
    best: Judged
    judged: Sequence[Judged]
    checked: str = ""
    ways: Ways = field(default_factory=Ways)
    compiled: Compiled = field(default_factory=Compiled)
    low: Sequence[State] = ()
    broken: Mapping[str, str] = field(default_factory=dict)

    @property
    def switched(self) -> bool:
        """Whether other implementations than the target's own were chosen."""
        return bool(self.best.options)

    def alternatives(self) -> tuple[Alternative, ...]:
        """The record's table; empty where there was nothing to choose."""
        if len(self.judged) < 2:
            return ()
        return tuple(
            entry(one, self.named, chosen=one is self.best, checked=self.checked if one is self.best else "")
            for one in self.judged
        )

    def chosen(self) -> tuple[Chosen, ...]:
        """What the later stages run with."""
        found = []
        if self.switched:
            options = dict(self.best.options)
            gone = sorted({key[0] for key in gaps_in(self.named)} - {key[0] for key in gaps_in(self.best)})
            found.append(
                Chosen(id=name_of(options), options=options, replaces=tuple(gone), checked=self.checked)
            )
        best = grouped(self.best.states)
        for key, tried in self.ways.works.items():
            rebuilt = worst(best[key]).rebuilt
            launches = rebuilt.launches if rebuilt and tried.way.startswith("decompose:") else 0
            found.append(as_chosen(tried, key[0], launches))
        return tuple({one.id: one for one in found}.values())

    def way_around(self, key: Key) -> tuple[str, str, Cost]:
        """Id of the way around an entry, how it was tried, and what it costs; empty where there is none."""
        tried = self.ways.works.get(key)
        if tried is not None:
            return tried.way, tried.checked, Cost(error=tried.error, tolerance=tried.tolerance)
        if self.switched and key not in gaps_in(self.best):
            return name_of(self.best.options), self.checked, Cost()
        states = gaps_in(self.named).get(key) or gaps_in(self.best)[key]
        if list(states[0].need.phases) == ["sampling"]:
            return "sample=host", "", Cost()
        if key in self.ways.untried:
            return self.ways.untried[key], "", Cost()
        untried = f"decompose:{key[0]}"
        return (untried if worst(states).rebuilt and untried not in self.ways.failed else ""), "", Cost()

    def is_undecided(self, key: Key, dtype: str) -> bool:
        """Whether there is a way around an entry that there was no time to try."""
        if key in self.ways.works:
            return False
        if self.switched and key not in gaps_in(self.best):
            return not self.checked and not self.compiled.failed(dtype)
        return key in self.ways.untried


def gaps_in(one: Judged) -> Mapping[Key, Sequence[State]]:
    """The entries of a combination that are not native, nor merely unknown."""
    return {
        key: states
        for key, states in grouped(one.states).items()
        if worst(states).status not in ("native", "unknown")
    }


def judge(question: Question, knowledge: Knowledge) -> Judgement:
    """Tries what is not known, then looks for ways around what turns out to be missing or wrong."""
    needs = needs_of(question.capture, question.spec)
    knowledge.learn(needs, share=FOR_ONE_STEP)
    named = Judged({}, question.capture, judged_states(needs, knowledge))
    if not gaps_in(named):
        knowledge.learn(needs)
        named = Judged({}, question.capture, judged_states(needs, knowledge))
    low = _stored(question, needs, knowledge)
    broken = try_named(grouped(named.states), knowledge, question.spec, question.config)
    judgement = Judgement(named, named, [named], low=low, broken=broken)
    if gaps_in(named):
        options = combinations(question.capture, question.spec)
        judged = _with_others([named], options, question, knowledge)
        best = smallest(judged)
        remodel = remodelled(gaps_in(best), question.spec, question.config)
        if remodel:
            bases = [best.options] if best is judged[0] else [best.options, {}]
            more = [{**base, "with": way} for way in remodel for base in bases]
            judged = _with_others(judged, more, question, knowledge)
            best = smallest(judged)
        spec = with_options(question.spec, best.options)
        ways = try_ways(gaps_in(best), knowledge, spec, question.config)
        judgement = Judgement(judged[0], best, judged, "", ways, low=low, broken=broken)
    return _run(judgement, question, knowledge)


def _run(judgement: Judgement, question: Question, knowledge: Knowledge) -> Judgement:
    """The judgement with one node of each kind run: where the target compiles, and to check a choice."""
    chosen = judgement.chosen()
    spec = with_chosen(question.spec, chosen)
    compiled = Compiled()
    wanted = bool(chosen) or spec.stack in GRAPH_STACKS
    if wanted and question.skeleton is not None and question.runs_nodes:
        compiled = run_kinds(question, spec, knowledge)
    checked = ""
    if judgement.switched:
        dtype = spec.dtype or question.capture.captured_dtype
        checked = compiled.checked(dtype) or ("" if compiled.kinds else _checked(judgement.best))
    return replace(judgement, compiled=compiled, checked=checked)


def _stored(question: Question, needs: Sequence[Need], knowledge: Knowledge) -> list[State]:
    """The rows that the stored precision asks for, those of torch's own operators tried."""
    low = low_precision_needs(
        needs, question.scheme, question.group, question.stored, question.capture.kernels
    )
    knowledge.learn([need for need in low if need.example.op.startswith("aten.")], share=FOR_ONE_STEP)
    return states_of(low, knowledge.registry, knowledge.fingerprint)


def judged_states(needs: Sequence[Need], knowledge: Knowledge) -> list[State]:
    """The state of each need, those that do not run as they should rebuilt where that is possible."""
    states = states_of(needs, knowledge.registry, knowledge.fingerprint)
    missing = [state.need.example for state in states if state.status in _REBUILT]
    if not missing:
        return states
    from .decomposition import rebuild  # imports torch, which a target without gaps does not need

    rebuilt = rebuild(missing, knowledge.native)
    return states_of(needs, knowledge.registry, knowledge.fingerprint, rebuilt)


def _with_others(
    judged: Sequence[Judged],
    options: Sequence[Mapping[str, str]],
    question: Question,
    knowledge: Knowledge,
) -> list[Judged]:
    """Combinations with further ways to build the model, all judged by what is known when the last was tried.

    What one of them calls says something of the others too.
    """
    known, found = knowledge.registry, [*judged, *_others(options, question, knowledge)]
    for _ in range(_ROUNDS):
        if knowledge.registry is known:
            break
        known = knowledge.registry
        found = [
            replace(one, states=judged_states([state.need for state in one.states], knowledge))
            for one in found
        ]
    return found


def _others(options: Sequence[Mapping[str, str]], question: Question, knowledge: Knowledge) -> list[Judged]:
    """Other ways to build the model, judged by what is known or tried."""
    if question.capture_all is None:
        return []
    taken = captured(options, question.spec, question.capture_all) if options else []
    needs = {
        name_of(one): needs_with(capture, question.spec, one)
        for one, capture, _ in taken
        if capture is not None
    }
    calls = {share_key(call): call for listed in needs.values() for need in listed for call in need.calls}
    knowledge.learn(group(calls.values()), share=FOR_ONE_STEP)
    return [
        Judged(one, capture, judged_states(needs[name_of(one)], knowledge) if capture else (), why)
        for one, capture, why in taken
    ]


def _checked(best: Judged) -> str:
    """How a combination's operators were tried; empty where one of them was not, or failed."""
    needed = [state for state in best.states if list(state.need.phases) != ["sampling"]]
    if any(state.status not in RUNS or state.known is None for state in needed):
        return ""
    operators = {state.need.example.op for state in needed}
    return f"each of its {len(operators)} operators was run on the target"

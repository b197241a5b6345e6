"""What a declaration leaves out, held against the tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

from ..finding import Finding, Subject, make_finding
from .counts import Counted
from .declaration import Declaration, NamePattern
from .declared_modules import DeclaredModules, module_names, unwrapped
from .member_sets import Tally, members
from .name_matching import NameMatcher, fill
from .patterns import Group, Member
from .readable import readable
from .record_quantization import Exclusion
from .stored_weights import StoredWeights

# Roles whose matrices every engine builds as a `Linear`; routers, embeddings and heads differ by engine.
_LINEAR_ROLES = frozenset({"attention", "dense_mlp", "expert", "shared_expert"})
# gpt-oss: transformers and vLLM convert the experts alone, whatever else the list leaves open.
_EXPERTS_ONLY = frozenset({"mxfp4", "gpt_oss_mxfp4"})
_PLAIN = frozenset({"bf16", "fp16", "fp32", "fp64"})
_MOST_UNMATCHED = 20


@dataclass
class ExclusionCheck:
    """What was found.

    Attributes:
        findings: about patterns and about what they leave out.
        exclusions: each pattern with what it matches.
        excluded_plain: weights left out and plain.
        excluded_quantized: weights left out and quantised all the same.
        targeted_plain: weights not left out and plain.
        left_out: pattern and layer of the weights that are left out.
    """

    findings: list[Finding] = field(default_factory=list)
    exclusions: list[Exclusion] = field(default_factory=list)
    excluded_plain: int = 0
    excluded_quantized: int = 0
    targeted_plain: int = 0
    left_out: set[tuple[str, int | None]] = field(default_factory=set)


def check_exclusions(
    counted: Sequence[Counted], stored: StoredWeights, declarations: Sequence[Declaration], main: Declaration
) -> ExclusionCheck:
    """Holds the exclusions of all declarations against all weights.

    Args:
        counted: all groups.
        stored: how each weight is stored.
        declarations: all of them; a pattern that several list is evaluated once.
        main: the one that holds.
    """
    check = ExclusionCheck()
    patterns: dict[NamePattern, Declaration] = {}
    for item in (main, *declarations):
        if item.part is not None:
            for pattern in item.excluded:
                patterns.setdefault(pattern, item)
    weights = [item for item in counted if item.place.counts]
    matching = _Matching(list(patterns), weights, nested=main.nested)
    matching.run(stored)
    for number, pattern in enumerate(matching.patterns):
        source = patterns[pattern].source
        check.exclusions.append(_exclusion(number, pattern, source, matching))
    check.findings += _quantized(matching, patterns)
    check.findings += _unmatched(matching, patterns, weights)
    check.findings += _refused(matching, patterns)
    check.left_out = matching.left_out
    check.excluded_plain, check.excluded_quantized = matching.plain_weights, matching.quantized_weights
    if main.part is not None and (main.lists or main.rules or main.named):
        _targeted(check, weights, stored, main, declarations, matching)
    return check


class _Matching:
    """Every pattern over every module, once."""

    def __init__(self, patterns: Sequence[NamePattern], weights: Sequence[Counted], *, nested: bool) -> None:
        self.patterns = patterns
        self.matcher = NameMatcher(patterns)
        self.numbers = [0] * len(patterns)
        self.low = [0] * len(patterns)
        self.quantized: dict[str, tuple[str, set[int], Tally]] = {}
        self.left_out: set[tuple[str, int | None]] = set()
        self.plain_weights = self.quantized_weights = 0
        self._weights, self._nested = weights, nested

    def run(self, stored: StoredWeights) -> None:
        """Matches all weights."""
        if not self.patterns:
            return
        for item in self._weights:
            group = item.group
            found = stored.format(group)
            touched: set[Member] = set()
            for which, member in self._matched(group):
                touched |= member
                for number in which:
                    self.numbers[number] += len(member)
                    self.low[number] += len(member) if found is not None else 0
                if found is not None:
                    fresh = (found.scheme, set[int](), Tally())
                    _, numbers, tally = self.quantized.setdefault(group.pattern.text, fresh)
                    numbers |= which
                    tally.add(group, member)
            if touched:
                self.left_out.add((group.pattern.text, group.layer))
                if found is None:
                    self.plain_weights += len(touched)
                else:
                    self.quantized_weights += len(touched)

    def _matched(self, group: Group) -> Iterable[tuple[Set[int], Set[Member]]]:
        """Patterns and the group's tensors that they match: all alike, unless a pattern names one expert."""
        if not (self.matcher.by_expert and len(group.others) > 1):
            found = self._of(group.example)
            if found:
                yield found, members(group)
            return
        text, slot = group.pattern.text, group.pattern.layer_slot
        for member in members(group):
            found = self._of(fill(text, group.layer, slot, member))
            if found:
                yield found, {member}

    def _of(self, tensor: str) -> set[int]:
        names = module_names(tensor, nested=self._nested)
        return set[int]().union(*(self.matcher.matched(name) for name in names))


def _exclusion(number: int, pattern: NamePattern, source: str, matching: _Matching) -> Exclusion:
    refused = number in matching.matcher.refused
    kind = "refused" if refused else pattern.kind
    unknown = refused or pattern.kind == "class"
    return Exclusion(
        pattern=pattern.shown[:500], kind=kind, source=source,
        modules=-1 if unknown else matching.numbers[number], quantized=matching.low[number],
    )  # fmt: skip


def _quantized(matching: _Matching, patterns: dict[NamePattern, Declaration]) -> Iterable[Finding]:
    """One for each pattern of weights that are left out and quantised all the same."""
    for text, (scheme, numbers, tally) in matching.quantized.items():
        named = [matching.patterns[number] for number in sorted(numbers)]
        lines = [line for line in tally.lines() if line]
        where = f" ({lines[0]})" if lines else ""
        by = ", ".join(readable(item.shown) for item in named[:3])
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        message = (
            f"{readable(text)} is left out by {by}{more}, yet {tally.number} are stored in {scheme}{where}"
        )
        sources = dict.fromkeys(patterns[item].source for item in named)
        yield make_finding(
            "INV054", Subject(kind="tensor", name=text), message, evidence=[*sources, tally.example, *lines]
        )


def _unmatched(
    matching: _Matching, patterns: dict[NamePattern, Declaration], weights: Sequence[Counted]
) -> Iterable[Finding]:
    """One finding for all patterns that match nothing; a wrapper's prefix is the usual reason."""
    lost = [
        number
        for number, pattern in enumerate(matching.patterns)
        if not matching.numbers[number] and pattern.kind != "class" and number not in matching.matcher.refused
    ]
    if not lost or not weights:
        return
    again = NameMatcher([matching.patterns[number] for number in lost])
    helped: dict[int, str] = {}
    for item in weights:
        for name in module_names(item.group.example, nested=False):
            for other in unwrapped(name):
                for place in again.matched(other):
                    helped.setdefault(lost[place], name)
                    matching.left_out.add((item.group.pattern.text, item.group.layer))
    said = [
        readable(matching.patterns[number].shown)
        + (f" (would match {readable(helped[number])} under another prefix)" if number in helped else "")
        for number in lost
    ]
    more = f" and {len(said) - 5} more" if len(said) > 5 else ""
    message = (
        f"{len(lost)} of {len(matching.patterns)} exclusions match no weight: {', '.join(said[:5])}{more}"
    )
    sources = dict.fromkeys(patterns[matching.patterns[number]].source for number in lost)
    evidence = [*sources, *said[:_MOST_UNMATCHED]]
    yield make_finding("INV052", Subject(kind="config", name="exclusions"), message, evidence=evidence)


def _refused(matching: _Matching, patterns: dict[NamePattern, Declaration]) -> Iterable[Finding]:
    for number, why in sorted(matching.matcher.refused.items())[:_MOST_UNMATCHED]:
        pattern = matching.patterns[number]
        message = f"the exclusion {readable(pattern.shown)} was not evaluated: it {why}"
        subject = Subject(kind="config", name=f"exclusion {pattern.shown[:200]}")
        yield make_finding("INV057", subject, message, evidence=[patterns[pattern].source])


def _targeted(
    check: ExclusionCheck,
    weights: Sequence[Counted],
    stored: StoredWeights,
    main: Declaration,
    declarations: Sequence[Declaration],
    matching: _Matching,
) -> None:
    """Matrices that no exclusion names and that are plain."""
    modules = DeclaredModules([main, *(item for item in declarations if item is not main)])
    roles = {"expert"} if main.dialect.lower() in _EXPERTS_ONLY else _LINEAR_ROLES
    tallies: dict[str, Tally] = {}
    for item in weights:
        group, place = item.group, item.place
        if place.part != "text" or place.role not in roles or group.dtype not in _PLAIN:
            continue
        name = group.pattern.segments[-1]
        matrix = len(group.shape) == 2 and name == "weight"
        fused = len(group.shape) == 3 and place.role == "expert" and "bias" not in name
        if not (matrix or fused) or (group.pattern.text, group.layer) in matching.left_out:
            continue
        part = modules.part_of(group)
        if part is not None and stored.format(group) is None:
            tallies.setdefault(group.pattern.text, Tally()).add(group, members(group))
    check.targeted_plain = sum(tally.number for tally in tallies.values())
    if not tallies:
        return
    listed = [f"{text} {' '.join(tally.lines()[:1])}".strip() for text, tally in tallies.items()]
    more = f" and {len(listed) - 3} more patterns" if len(listed) > 3 else ""
    said = "; ".join(readable(line) for line in listed[:3])
    message = f"{check.targeted_plain} weights that no exclusion names are stored plain: {said}{more}"
    subject = Subject(kind="config", name=main.source)
    check.findings.append(make_finding("INV055", subject, message, evidence=[main.source, *listed[:20]]))

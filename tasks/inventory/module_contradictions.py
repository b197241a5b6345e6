"""Where a declaration names another scheme for a module than the one its weight is stored in, or none."""

from __future__ import annotations

from collections.abc import Iterable, Set

from ..finding import Finding, Subject, make_finding
from .declared_modules import DeclaredModules
from .member_sets import Tally, members
from .name_matching import fill
from .patterns import Group, Member
from .quantization_families import families, family
from .readable import plural, readable
from .record_quantization import QuantizationPart
from .seen import Seen


def module_contradictions(
    seen: Seen, left_out: Set[tuple[str, int | None]], source: str
) -> Iterable[Finding]:
    """One finding a pattern; a scheme that nothing declares at all is told for the release as a whole.

    Args:
        seen: everything.
        left_out: pattern and layer of what exclusions name; these have findings of their own.
        source: the declaration that holds.
    """
    if seen.declared.normal is None or not seen.declared.known:
        return
    modules = DeclaredModules(seen.declared.declarations)
    stated = families(seen.declared.normal)
    wrong: dict[tuple[str, str], Tally] = {}
    untold: dict[str, Tally] = {}
    weights = 0
    for item in seen.counted:
        found = seen.stored.format(item.group) if item.place.counts else None
        if found is None or family(found.scheme) not in stated:
            continue
        weights += item.group.count
        text = item.group.pattern.text
        for told, part, which in _by_member(item.group, modules):
            if not told and (text, item.group.layer) not in left_out:
                untold.setdefault(text, Tally()).add(item.group, which)
            elif part is not None and family(part.scheme) != family(found.scheme) and not found.doubt:
                said = f"{part.scheme} is declared for its module, the tensors show {found.scheme}"
                wrong.setdefault((text, said), Tally()).add(item.group, which)
    for (text, said), tally in wrong.items():
        yield _finding(text, said, tally, source)
    if untold and sum(tally.number for tally in untold.values()) == weights:
        message = f"{readable(source)} names schemes for modules, none of which has a quantised weight"
        subject = Subject(kind="config", name=f"{source} modules")
        yield make_finding("INV022", subject, message, evidence=[source, *list(untold)[:20]])
        return
    for text, tally in untold.items():
        yield _finding(text, f"quantised, yet {readable(source)} names no scheme for it", tally, source)


def _by_member(
    group: Group, modules: DeclaredModules
) -> Iterable[tuple[bool, QuantizationPart | None, Set[Member]]]:
    """Whether something is declared, what, and for which of a group's tensors."""
    if not (modules.by_name and len(group.others) > 1):
        yield (*modules.told(group.example), members(group))
        return
    for member in members(group):
        name = fill(group.pattern.text, group.layer, group.pattern.layer_slot, member)
        yield (*modules.told(name), {member})


def _finding(text: str, said: str, tally: Tally, source: str) -> Finding:
    lines = [line for line in tally.lines() if line]
    where = f" ({lines[0]})" if lines else ""
    message = f"{readable(text)}: {said}, in {plural(tally.number, 'tensor')}{where}"
    evidence = [source, tally.example, *lines]
    return make_finding("INV022", Subject(kind="tensor", name=text), message, evidence=evidence)

"""Every low-precision weight against the side tensors that it needs, and every scale against its weight.

Works on folded groups: a release of half a million tensors has some thousand of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from ..finding import Finding, Severity, Subject, make_finding
from .awaited import NOTHING, Awaited
from .counts import Counted
from .declaration import Declaration
from .member_sets import Tally, members, same_members
from .patterns import Group, Member
from .readable import plural, readable
from .roles import LOW_PRECISION
from .scale_shapes import Need, any_shape
from .stored_forms import WeightFormat
from .stored_weights import StoredWeights

_SEVERE: dict[str, Severity] = {"error": "error", "warning": "warning"}
# Scales that belong to one weight each, by the end of their name; those of activations and caches do not.
_SCALE = re.compile(
    r"(weight_scale|_scale_inv|weight_scale_2|_scales|(^|\.)scales|\.absmax|\.scale_weight|\.qscale_weight"
    r"|\.SCB|_proj_scale|\.scale)$"
)
_NOT_OF_WEIGHT = re.compile(r"(input|activation|output|kv|bias|act)_scales?(_inv)?$|zero_scale$")
_SUFFIXES = ("_scale_inv", "_scale_2", "_scales", "_scale")
_FORMS = ("", "_packed", "_blocks", "_qdata")
_IN_MODULE = ("weight", "qweight", "weight_packed", "W_q", "codes", "_data", "weight_qdata",
              "_weight_qdata")  # fmt: skip


@dataclass
class ScaleCheck:
    """What was found.

    Attributes:
        findings: one for each pattern and kind of fault.
        weights: low-precision weights.
        with_scale: of those, complete.
        without_scale: of those, without a scale.
        wrong_shape: of those, with a side tensor of a wrong shape.
        orphans: scales without their weight.
        awaited: weights of which a side tensor lies in a file that is absent or unread.
    """

    findings: list[Finding] = field(default_factory=list)
    weights: int = 0
    with_scale: int = 0
    without_scale: int = 0
    wrong_shape: int = 0
    orphans: int = 0
    awaited: int = 0


def check_scales(
    counted: Sequence[Counted], stored: StoredWeights, main: Declaration | None, awaited: Awaited = NOTHING
) -> ScaleCheck:
    """Holds all weights and scales against each other.

    Args:
        counted: all groups.
        stored: how each weight is stored.
        main: the declaration that holds; it says whether zero points and an order belong to each weight.
        awaited: what is in files that are not here; of these tensors nothing is said to be missing.
    """
    check = ScaleCheck()
    tallies: dict[tuple[str, Severity, str, str], Tally] = {}
    totals: dict[str, int] = {}
    for item in counted:
        if not item.place.counts:
            continue
        found = stored.format(item.group)
        if found is None:
            continue
        text = item.group.pattern.text
        totals[text] = totals.get(text, 0) + item.group.count
        check.weights += item.group.count
        _check_weight(item.group, found, stored, main, awaited, tallies, check)
    for item in counted:
        if item.place.role == "aux":
            _check_orphan(item.group, stored, awaited, tallies, totals, check)
    check.findings += _findings(tallies, totals)
    return check


def _check_weight(
    group: Group,
    found: WeightFormat,
    stored: StoredWeights,
    main: Declaration | None,
    awaited: Awaited,
    tallies: dict[tuple[str, Severity, str, str], Tally],
    check: ScaleCheck,
) -> None:
    faulty: set[Member] = set()
    late: set[Member] = set()
    for place, need in enumerate((*found.needs, *_declared_needs(group, found, main))):
        missing, wrong = _compare(group, need, stored)
        if missing and awaited.any:
            due = missing & awaited.beside(need.names, group)
            missing, late = missing - due, late | (due if need.wanted or place == 0 else set())
        text = group.pattern.text
        if missing and place == 0:
            check.without_scale += len(missing)
            said = f"has no {need.what}{_misnamed(group, need, stored)}"
            _tally(tallies, ("INV023", "error", text, said), group, missing)
        elif missing and need.wanted and not _spared(need, main):
            code = "INV059" if need.what == "activation scale" else "INV050"
            said = f"has no {need.what}"
            asked = main is not None and main.zero_points is True and need.what == "zero point"
            severe = "error" if asked else _SEVERE[need.wanted]
            _tally(tallies, (code, severe, text, said), group, missing)
        for side, expected, which in wrong:
            name, shape = readable(side.pattern.text), list(side.shape)
            said = f"{list(group.shape)} has a {need.what} {name} of {shape}, expected {expected}"
            _tally(tallies, ("INV051", "error", text, said), group, which)
            if place == 0:
                check.wrong_shape += len(which)
            faulty |= set(which)
        if missing and (place == 0 or need.wanted == "error"):
            faulty |= set(missing)
    check.awaited += len(late - faulty)
    check.with_scale += group.count - len(faulty | late)


def _misnamed(group: Group, need: Need, stored: StoredWeights) -> str:
    """The side tensor that stands under a name which no loader of the format looks for, in words."""
    found = stored.near.first(group, *need.unread)
    if found is None:
        return ""
    return (
        f" that a loader of {group.dtype} looks for ({readable(found.pattern.segments[-1])} stands beside it)"
    )


def _compare(
    group: Group, need: Need, stored: StoredWeights
) -> tuple[Set[Member], list[tuple[Group, str, Set[Member]]]]:
    """The members without that side tensor, and those with one of a wrong shape."""
    sides = [
        side
        for name in dict.fromkeys(need.names)
        for side in stored.near.near(name, group)
        if side is not group
    ]
    wrong: list[tuple[Group, str, Set[Member]]] = []
    if len(sides) == 1 and same_members(sides[0], group):
        expected = need.fits(tuple(sides[0].shape))
        return set(), [(sides[0], expected, members(group))] if expected else []
    left = set(members(group))
    for side in sides:
        own = members(group) & members(side)
        expected = need.fits(tuple(side.shape)) if own else ""
        if expected and own & left:
            wrong.append((side, expected, own & left))
        left -= own
    return left, wrong


def _spared(need: Need, main: Declaration | None) -> bool:
    """Whether a side tensor may be left out: symmetric weights need no zero point."""
    symmetric = main is not None and main.symmetric is True
    return symmetric and need.what == "zero point" and need.wanted == "warning"


def _declared_needs(group: Group, found: WeightFormat, main: Declaration | None) -> Iterable[Need]:
    """What the declaration asks for beside a packed weight: zero points, the order of its columns."""
    text = group.pattern.text
    module, _, name = text.rpartition(".")
    if main is None or name not in ("qweight", "weight_packed") or found.scheme in ("nvfp4", "mxfp4"):
        return
    if main.zero_points and name == "weight_packed":
        names = (f"{module}.weight_zero_point",)
        yield Need(names, "zero point", any_shape, wanted="error")
    if main.act_order:
        yield Need(
            (f"{module}.g_idx", f"{module}.weight_g_idx"), "order of columns", any_shape, wanted="error"
        )


def _check_orphan(
    side: Group,
    stored: StoredWeights,
    awaited: Awaited,
    tallies: dict[tuple[str, Severity, str, str], Tally],
    totals: dict[str, int],
    check: ScaleCheck,
) -> None:
    text = side.pattern.text
    if not (_SCALE.search(text) or side.dtype == "e8m0") or _NOT_OF_WEIGHT.search(text):
        return
    left, plain = set(members(side)), set[Member]()
    kind = ""
    if awaited.any:
        left -= awaited.beside(tuple(_weights_of(text)), side)
    for name in _weights_of(text):
        for weight in stored.near.near(name, side):
            if weight is side or not left:
                continue
            if weight.dtype in LOW_PRECISION or stored.format(weight) is not None:
                left -= members(weight)
            else:
                plain |= members(weight)
                kind = weight.dtype
    if not left:
        return
    totals[text] = totals.get(text, 0) + side.count
    check.orphans += len(left)
    beside, alone = left & plain, left - plain
    if beside:
        said = f"is the scale of a weight that is stored in plain precision ({kind})"
        _tally(tallies, ("INV023", "error", text, said), side, beside)
    if alone:
        _tally(tallies, ("INV023", "error", text, "has no weight"), side, alone)


def _weights_of(text: str) -> Iterable[str]:
    """The patterns under which the weight of a scale may stand."""
    module, _, name = text.rpartition(".")
    if name in ("scale", "scales", "scale_weight", "qscale_weight", "SCB", "weight_scale_2"):
        yield from (f"{module}.{own}" for own in _IN_MODULE)
    if name in ("absmax", "scale", "_scale"):
        yield module
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            base = name.removesuffix(suffix)
            yield from (f"{module}.{base}{form}" for form in _FORMS)
            break


def _tally(
    tallies: dict[tuple[str, Severity, str, str], Tally],
    key: tuple[str, Severity, str, str],
    group: Group,
    which: Iterable[Member],
) -> None:
    tallies.setdefault(key, Tally()).add(group, which)


def _findings(
    tallies: Mapping[tuple[str, Severity, str, str], Tally], totals: Mapping[str, int]
) -> Iterable[Finding]:
    """One for each pattern and fault; several faults of one code about one pattern become one finding."""
    joined: dict[tuple[str, str], list[tuple[Severity, str, Tally]]] = {}
    for (code, severity, text, said), tally in tallies.items():
        joined.setdefault((code, text), []).append((severity, said, tally))
    for (code, text), faults in joined.items():
        worst = next((severity for severity, _, _ in faults if severity == "error"), faults[0][0])
        parts, evidence = [], []
        for _, said, tally in faults:
            lines = tally.lines()
            where = f" ({lines[0]})" if lines and lines[0] else ""
            more = " and elsewhere" if len(lines) > 1 else ""
            parts.append(f"{said}, in {tally.number:,} of {plural(totals[text], 'tensor')}{where}{more}")
            evidence += [tally.example, *(line for line in lines if line)]
        message = f"{readable(text)} {'; '.join(parts)}"
        yield make_finding(
            code, Subject(kind="tensor", name=text), message, evidence=evidence[:20], severity=worst
        )

"""Routing: which tokens of a mixture of experts went elsewhere, and whether rounding explains it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from day0.tasks.numerics.record import NumericsFacts
from day0.tasks.numerics.record_parts import Routing

from ..words import exact_text, plural
from .ledger import Ledger
from .limits import pick
from .parts import Cell, Column, Group, Row, Table, settle
from .routing_figure import routing_figure

_FOLDED_FROM = 12
_MOST_EXPERTS = 3


def routing_group(ledger: Ledger, facts: NumericsFacts, slug: str, rest: str, limit: int) -> Group | None:
    """Figure and table of all routers; None for a dense model."""
    if not facts.routing:
        return None
    look, lead = judged(facts.routing)
    figure = routing_figure(facts.routing, f"numerics--{slug}--flips")
    return Group(
        id=f"numerics--{slug}--routing",
        title="Routing",
        lead=lead,
        look=look,
        figures=[figure] if figure else (),
        tables=[settle(_table(ledger, facts.routing, slug, rest, limit))],
    )


def look_of(router: Routing) -> str:
    """Verdict word of one router: unexplained flips fail, what was not counted is unverified."""
    if router.unexplained > 0:
        return "fail"
    return "unverified" if router.reason else "pass"


def judged(routers: Sequence[Routing]) -> tuple[str, str]:
    """Verdict word and a sentence over all routers of a model."""
    flips = sum(router.flips for router in routers)
    tokens = sum(router.tokens for router in routers)
    bad = [router for router in routers if router.unexplained > 0]
    unknown = [router for router in routers if router.reason]
    missing = (
        f" {plural(len(unknown), 'router')} could not be counted in full: {unknown[0].reason}."
        if unknown
        else ""
    )
    if bad:
        count = sum(router.unexplained for router in bad)
        verb = "is" if count == 1 else "are"
        return "fail", (
            f"{exact_text(count)} of {plural(flips, 'flip')} {verb} not explained by rounding, at "
            f"{plural(len(bad), 'router')}, first at {bad[0].name}: there the reference prefers its experts "
            f"by more than its scores' noise.{missing}"
        )
    look = "unverified" if unknown else "pass"
    whole = f"{exact_text(tokens)} routed tokens at {plural(len(routers), 'router')}"
    if not flips:
        return look, f"All {whole} went to the reference's experts.{missing}"
    near = sum(router.near_tie for router in routers)
    share = "all" if near == flips else f"{exact_text(near)}"
    told = f"{exact_text(flips)} of {whole} went to other experts, {share} of them near-ties"
    return look, f"{told}, which rounding decides.{missing}"


def _table(ledger: Ledger, routers: Sequence[Routing], slug: str, rest: str, limit: int) -> Table:
    places = pick(len(routers), limit, lambda place: _badness(routers[place]))
    return Table(
        id=f"numerics--{slug}--routers",
        caption="Routers: where tokens went, and what is left of the error without the router's part in it",
        columns=[
            Column("Router"),
            Column("Tokens", True),
            Column("Flips", True, "Tokens whose set of experts differs."),
            Column("Near-tie", True, "Flips that rounding explains."),
            Column("Unexplained", True, "Flips that it does not explain."),
            Column("Slot order", True, "The same experts in another order."),
            Column("Unflipped", True, "Error on the tokens that were not flipped, over the noise."),
            Column("Forced ids", True, "Relative L2 with the reference's experts, the target's weights."),
            Column("Forced both", True, "The same with the reference's weights: the experts' own part."),
            Column("Imbalance", True, "The busiest expert's tokens over the mean."),
            Column("Reference's", True, "The same of the reference."),
        ],
        rows=[_row(ledger, routers[place], place) for place in places],
        total=len(routers),
        rest=rest,
        folded=len(routers) > _FOLDED_FROM,
    )


def _badness(router: Routing) -> tuple[int, bool, int]:
    return (-router.unexplained, not router.reason, -router.flips)


def _row(ledger: Ledger, router: Routing, place: int) -> Row:
    base, look = f"/routing/{place}", look_of(router)
    counts = [
        ledger.cell(f"{base}/{name}", "exact")
        for name in ("tokens", "flips", "near_tie", "unexplained", "slots")
    ]
    errors = [_error(ledger, router, base, name) for name in ("unflipped_ratio", "forced_ids", "forced_both")]
    loads = [ledger.cell(f"{base}/{name}", "number") for name in ("imbalance", "reference_imbalance")]
    return Row(
        [Cell(router.name, code=True, status=look, below=_below(router)), *counts, *errors, *loads],
        status=look,
    )


def _error(ledger: Ledger, router: Routing, base: str, name: str) -> Cell:
    if not router.flips and math.isnan(float(getattr(router, name))):
        return Cell("\N{EN DASH}", numeric=True, title="no token is flipped")
    return ledger.cell(f"{base}/{name}", "number")


def _below(router: Routing) -> str:
    """Why something is missing; else the busiest experts."""
    if router.reason:
        return router.reason
    busiest = [
        f"{expert} ({exact_text(count)})" for expert, count in list(router.load.items())[:_MOST_EXPERTS]
    ]
    among = f" of {exact_text(router.experts)}" if router.experts else ""
    return f"busiest experts{among}: {', '.join(busiest)}" if busiest else ""

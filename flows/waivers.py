"""Waivers in the run store: who accepts which finding, why, and until when."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

from pydantic import TypeAdapter, ValidationError

from day0.adapters.base.errors import InputError
from day0.adapters.base.run_store import RunStore
from day0.tasks.finding import Waiver

_NAME = "waivers.json"
_LIST = TypeAdapter(list[Waiver])
_FINDING = re.compile(r"[0-9a-f]{12}")


def read_waivers(store: RunStore) -> Sequence[Waiver]:
    """All waivers, expired ones too, in the order in which they were given.

    Raises:
        InputError: E154, the file is not a list of waivers.
    """
    if not store.exists(_NAME):
        return ()
    try:
        return _LIST.validate_json(store.read(_NAME))
    except ValidationError as error:
        raise InputError(
            f"{store.path(_NAME)} is not a list of waivers: {error.errors()[0]['msg']}",
            code="E154",
            remedy="Correct or remove the file.",
        ) from error


def add_waiver(store: RunStore, waiver: Waiver, today: date) -> Sequence[Waiver]:
    """Keeps a waiver; an earlier one of the same finding gives way. Returns all.

    Raises:
        InputError: E155, the finding's id, owner, reason or last day cannot be used.
    """
    problem = _problem(waiver, today)
    if problem:
        raise InputError(
            problem,
            code="E155",
            remedy="Write it like: day0 waive 1f0c2d3e4b5a --owner NAME --reason WHY --expires 2027-01-31.",
        )
    kept = [other for other in read_waivers(store) if other.finding != waiver.finding]
    waivers = [*kept, waiver]
    store.write(_NAME, _LIST.dump_json(waivers, indent=2))
    return waivers


def _problem(waiver: Waiver, today: date) -> str:
    if not _FINDING.fullmatch(waiver.finding):
        return f"{waiver.finding!r} is not the id of a finding, which has 12 hexadecimal digits"
    if not waiver.owner.strip() or not waiver.reason.strip():
        return "a waiver needs an owner and a reason"
    if waiver.expires < today:
        return f"a waiver that expired on {waiver.expires} would accept nothing"
    return ""

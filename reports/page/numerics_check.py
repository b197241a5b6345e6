"""The first thing to know of a comparison: whether the reference itself was checked, how, and to what end."""

from __future__ import annotations

import math
from collections.abc import Sequence

from day0.tasks.numerics.record_parts import ReferenceCheck

from ..words import number_text, plural, sentence
from .parts import Notice

_MEASURED = {
    "from_pretrained": "largest relative difference of the logits from stock transformers",
    "likelihood": "nats per token on the text that ships with Day0",
}
_METHODS = {
    "from_pretrained": "stock from_pretrained",
    "likelihood": "its likelihood on known text",
    "samples": "published sample outputs",
}
_LOOKS = ("pass", "fail")


def check_notice(check: ReferenceCheck) -> Notice:
    """State, method, value and limit of the check in a sentence that stands above all numbers."""
    if check.state == "pass":
        told = f"The reference itself was checked by {_how(check)}{_value(check)}."
    elif check.state == "fail":
        told = (
            "Nothing below can be trusted: the reference itself is wrong"
            f" by {_how(check)}{_value(check)}. Target and reference read the checkpoint by the same code, so"
            " both may be wrong and equal."
        )
    else:
        told = (
            "Nothing below can be trusted yet: the reference itself is not verified"
            f"{'' if check.method == 'none' else f' by {_how(check)}'}{_value(check)}."
        )
    look = check.state if check.state in _LOOKS else "unverified"
    return Notice(look, f"{told} {sentence(check.detail)}".strip())


def reference_is_checked(check: ReferenceCheck) -> str:
    """A clause for other sentences: what the check came to."""
    told = {"pass": "which was itself checked", "fail": "which is itself wrong"}
    return told.get(check.state, "which is itself not verified")


def _how(check: ReferenceCheck) -> str:
    return " and ".join(_METHODS.get(method, method) for method in _methods(check))


def _methods(check: ReferenceCheck) -> Sequence[str]:
    """Those whose word the state is; a record from before they were told apart has all that spoke."""
    named = check.decided_by or check.method
    return [method.strip() for method in named.split(",") if method.strip()]


def _value(check: ReferenceCheck) -> str:
    """`: 3.1e-7 largest relative difference ..., limit 1e-4`; empty where nothing was measured."""
    if math.isnan(float(check.value)):
        return ""
    first = next(iter(_methods(check)), "")
    if first == "samples":
        return f": {plural(int(float(check.value)), 'published sample')} that it continues otherwise"
    limit = "" if math.isnan(float(check.limit)) else f", limit {number_text(check.limit)}"
    return f": {number_text(check.value)} {_MEASURED.get(first, 'measured')}{limit}"

"""Numbers and names as a person reads them; every page, table and sentence uses these."""

from __future__ import annotations

import math
from collections.abc import Sequence

from day0.adapters.base.values import Number

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_COUNT_UNITS = ("", "K", "M", "B", "T")


def number_text(value: Number | None, digits: int = 3) -> str:
    """A measured number with that many significant digits; NaN and infinities by name, a dash for None."""
    if value is None:
        return "\N{EN DASH}"
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if isinstance(value, int) or number == 0:
        return exact_text(int(number))
    if 1e-3 <= abs(number) < 1e5:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(number))))
        return f"{number:,.{decimals}f}"
    return f"{number:.{digits - 1}e}".replace("e-0", "e-").replace("e+0", "e+")


def exact_text(value: int) -> str:
    """A whole number with thousands separators."""
    return f"{value:,}"


def bytes_text(value: float) -> str:
    """Bytes in decimal units (1 GB = 10^9 bytes), three significant digits."""
    return _scaled(value, _BYTE_UNITS, " ")


def count_text(value: float) -> str:
    """A count in short form: `135M`, `671B`."""
    return _scaled(value, _COUNT_UNITS, "")


def percent_text(share: Number | None) -> str:
    """A share in [0, 1] as a percentage; never rounded up to 100 % or down to 0 %."""
    if share is None:
        return "\N{EN DASH}"
    number = float(share)
    if not math.isfinite(number):
        return number_text(share)
    if 0.999 <= number < 1:
        return ">99.9 %" if number > 0.999 else "99.9 %"
    if 0 < number < 0.001:
        return "<0.1 %"
    return f"{number * 100:.1f} %".replace(".0 %", " %")


def gap_text(cosine: Number | None) -> str:
    """How far a cosine is from one; near one its own digits say nothing."""
    if cosine is None or not math.isfinite(float(cosine)):
        return number_text(cosine)
    return number_text(max(0.0, 1.0 - float(cosine)))


def seconds_text(seconds: float) -> str:
    """A duration: `1.2 ms`, `3.4 s`, `2 min 5 s`."""
    if not math.isfinite(seconds):
        return number_text(seconds)
    if seconds < 1:
        return f"{number_text(seconds * 1000)} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def plural(count: int, noun: str, many: str = "") -> str:
    """`1 node`, `12 nodes`."""
    return f"{exact_text(count)} {noun if count == 1 else many or noun + 's'}"


def listed(items: Sequence[str], limit: int = 3) -> str:
    """The first items and how many more there are: `a, b and 7 more`."""
    if len(items) > limit:
        return f"{', '.join(items[:limit])} and {len(items) - limit} more"
    return ", ".join(items[:-1]) + (" and " if len(items) > 1 else "") + items[-1] if items else "none"


def sentence(text: str) -> str:
    """The text with a capital and one full stop at its end; a name like `model.layers.1` stays as it is."""
    stripped = text.strip()
    if not stripped:
        return ""
    ending = "" if stripped[-1] in ".!?…" else "."
    first = stripped.split()[0].rstrip(".,:;")
    is_name = any(mark in first for mark in "._@/")
    return (stripped[0] if is_name else stripped[0].upper()) + stripped[1:] + ending


def _scaled(value: float, units: Sequence[str], space: str) -> str:
    if not math.isfinite(value):
        return number_text(value)
    size, unit = abs(float(value)), 0
    while size >= 999.5 and unit < len(units) - 1:
        size, unit = size / 1000, unit + 1
    decimals = 0 if unit == 0 or size >= 99.95 else 1 if size >= 9.995 else 2
    sign = "-" if value < 0 else ""
    return f"{sign}{size:.{decimals}f}{space}{units[unit]}"

"""Text from outside made safe to read: nothing invisible, nothing that reorders, nothing endless."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from typing import Any

from markupsafe import Markup, escape

LIMIT = 1_200
"""Characters of any one text on the page; what is longer is cut and says so."""
CELL_LIMIT = 160
"""Characters of a table's cell."""
LINE_LIMIT = 400
"""Characters of one log line."""

# Control characters (but newline and tab), soft hyphen, zero-width and bidirectional controls, line
# separators, lone surrogates, tags. Joiners stay: real words need them.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_MARKS = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_STACKED = re.compile(f"({_MARKS}{{3}}){_MARKS}+")
_NAME = re.compile(
    r"(?<![\w.@/-])(?=[\w.@/:\[\]-]*(?:_|@|\.[\w-]+\.|::|[a-z]\.[a-z]))[A-Za-z_][\w@/:\[\]-]*(?:\.[\w@/:\[\]-]+)*(?<![:/-])"
)
_ABBREVIATIONS = frozenset({"e.g", "i.e"})
_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def clean(value: Any, limit: int = LIMIT) -> str:
    """The value as text in which every character can be seen, cut at `limit` characters."""
    text = str(value)
    length = len(text)
    if length <= limit and text.isascii() and text.isprintable():
        return text
    if length > limit:
        text = text[:limit]
    text = _STACKED.sub(r"\1", _INVISIBLE.sub(_visible, text))
    return f"{text}… ({length:,} characters)" if length > limit else text


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def finalize(value: Any) -> Any:
    """What the templates do to every value they print: markup of our own stays, all else is cleaned."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) else clean(value)


def prose(text: str, limit: int = LIMIT) -> Markup:
    """A sentence with the names in it (modules, operators, targets) set as code."""
    parts = str(escape(clean(text, limit))).split("`")
    # What stands between backticks is code as a whole; everything is escaped already.
    paired = len(parts) % 2 == 1
    told = [
        f"<code>{part}</code>" if paired and odd % 2 else _NAME.sub(_as_code, part)
        for odd, part in enumerate(parts)
    ]
    return Markup(("" if paired else "`").join(told))


def shell(command: str, width: int = 76) -> str:
    """A command line folded before its options where it is long; quoted text is never touched."""
    text = clean(command, 4_000)
    if len(text) <= width or any(mark in text for mark in "'\"\\\n`"):
        return text
    return text.replace(" --", " \\\n  --")


def day(moment: str) -> str:
    """`2026-11-29T17:22:44Z` as `29 Nov 2026, 17:22 UTC`; any other text as it is."""
    try:
        return datetime.strptime(moment, "%Y-%m-%dT%H:%M:%SZ").strftime("%-d %b %Y, %H:%M UTC")
    except ValueError:
        return moment


def _as_code(match: re.Match[str]) -> str:
    name = match[0]
    return name if name in _ABBREVIATIONS else f"<code>{name}</code>"


def element_id(*parts: str) -> str:
    """An id made from names: the same in every run, and distinct for distinct names."""
    return "--".join(_slug(part) for part in parts)


def _slug(part: str) -> str:
    if _PLAIN_ID.fullmatch(part):
        return part
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", part[:60]).strip("-.")
    mark = hashlib.sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{readable or 'x'}-{mark}"

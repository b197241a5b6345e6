"""The front matter of a model card: the few lines of YAML that say licence, lineage and use.

Only what cards use is understood: `key: value`, lists, quoted and block text. A YAML library would bring
anchors and tags along, which a stranger's file must not have at hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

MAX_BYTES = 100_000  # of the front matter; cards of models with many languages have some 10 kB
MAX_ITEMS = 1000  # of one list
_KEY = re.compile(r"""(?P<key>[A-Za-z_][\w.-]*|"[^"]*"|'[^']*'):(?:[ \t]+(?P<value>.*))?$""")

CardValue = str | Sequence[str]


def front_matter(data: bytes) -> Mapping[str, CardValue]:
    """Key -> text or list of texts, of the top level only; empty where the card has no front matter."""
    text = data[:MAX_BYTES].decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if not text.startswith("---\n"):
        return {}
    found: dict[str, str | list[str]] = {}
    key, block = "", False
    for line in text[4:].split("\n"):
        if line.rstrip() in ("---", "..."):
            break
        match = _KEY.match(line)
        if match:
            key = _plain(match["key"])
            value = _uncommented(match["value"] or "")
            block = value in ("|", ">", "|-", ">-", "|+", ">+")
            found[key] = "" if block else _value(value)
        elif key:
            _continue(found, key, line, block)
    return found


def texts_of(card: Mapping[str, CardValue], key: str) -> Sequence[str]:
    """What the card says of a key, as a list."""
    value = card.get(key, ())
    return tuple(filter(None, [value] if isinstance(value, str) else value))


def _continue(found: dict[str, str | list[str]], key: str, line: str, block: bool) -> None:
    """A further line of the last key's value."""
    held, bare = found[key], line.strip()
    if block and (line.startswith(" ") or not bare):
        assert isinstance(held, str)
        found[key] = f"{held}\n{bare}".strip("\n")
        return
    if not bare.startswith("- ") or line[: len(line) - len(line.lstrip())].count(" ") > 2:
        return  # a nested section, such as `model-index`
    item = _plain(_uncommented(bare[2:]))
    items = held if isinstance(held, list) else []
    if len(items) < MAX_ITEMS:
        items.append(item)
    found[key] = items


def _value(text: str) -> str | list[str]:
    if text.startswith("[") and text.endswith("]"):
        return [_plain(item) for item in text[1:-1].split(",") if item.strip()][:MAX_ITEMS]
    return "" if text in ("null", "~") else _plain(text)


def _plain(text: str) -> str:
    bare = text.strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'":
        bare = bare[1:-1]
    return bare


def _uncommented(text: str) -> str:
    if text.lstrip().startswith(('"', "'")):
        return text.strip()
    return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].strip()

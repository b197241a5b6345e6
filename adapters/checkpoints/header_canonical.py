"""Headers byte for byte as the safetensors library writes them, taken apart by whole-text operations.

Such a header is a strict sequence of three separators, so that replacing each by one mark and cutting at the
marks gives all names, kinds and offsets at once. Whatever deviates by a single byte is `None` here and goes
to the typed decoder: this is a way to be quick, never the one that decides what is legal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

from day0.adapters.base.checkpoint import TensorKind

_MARKS = b"\1\2\3"  # control characters: no JSON holds them as they are
_SEPARATORS = (b'":{"dtype":"', b'],"data_offsets":[', b']},"')
_OTHERS = bytes(byte for byte in range(256) if byte not in _MARKS)
_PRINTABLE = bytes(range(32, 256))
_TO_LINES = bytes.maketrans(_MARKS, b"\n\n\n")
_NUMBER = r"(?:0|[1-9][0-9]{0,18})"
_KIND = re.compile(rf'([A-Z0-9_]{{1,16}})","shape":\[((?:{_NUMBER}(?:,{_NUMBER})*)?)')

Learn = Callable[[str, str, tuple[int, ...]], TensorKind]
"""Makes the kind of a name, dtype and shape, checked by the rules of the format."""


def canonical_columns(
    piece: bytes, known: dict[str, TensorKind], learn: Learn, begin: int
) -> tuple[Sequence[str], Sequence[TensorKind], Sequence[int], int] | None:
    """Names, kinds and first bytes of the tensors in one piece, and where the next tensor has to begin.

    Args:
        piece: whole entries, without the braces around them all.
        known: kinds by their text, added to.
        learn: see `Learn`.
        begin: where the first tensor has to begin.

    Raises:
        HeaderError: a kind breaks a rule of the format.
    """
    fields = _fields(piece)
    if fields is None:
        return None
    names, texts, offsets = fields[0::3], fields[1::3], fields[2::3]
    if '"' in "".join(names):
        return None
    strange = set(texts) - known.keys()
    examples = dict(zip(texts, names, strict=True)) if strange else {}
    for text in strange:
        match = _KIND.fullmatch(text)
        if match is None:
            return None
        shape = tuple(map(int, match[2].split(","))) if match[2] else ()
        known[text] = learn(examples[text], match[1], shape)
    kinds = [known[text] for text in texts]
    places = list(accumulate([kind.bytes for kind in kinds], initial=begin))
    if offsets != [f"{start},{end}" for start, end in pairwise(places)]:  # not one behind the other
        return None
    return names, kinds, places[:-1], places[-1]


def _fields(piece: bytes) -> list[str] | None:
    """Name, kind and offsets of each entry, one after the other."""
    if not piece.startswith(b'"') or not piece.endswith(b"]}"):
        return None
    if b"\\" in piece or piece.translate(None, _PRINTABLE):
        return None
    marked = piece[1:-2]
    for separator, mark in zip(_SEPARATORS, (b"\1", b"\2", b"\3"), strict=True):
        marked = marked.replace(separator, mark)
    order = marked.translate(None, _OTHERS)
    if order != (_MARKS * (len(order) // 3 + 1))[:-1]:
        return None
    try:
        return marked.translate(_TO_LINES).decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return None

"""The entries of a safetensors header as typed rows, decoded in pieces: quick, and in bounded memory.

`None` is the answer to everything unusual (a broken rule, an escape, a key twice): the caller then parses the
header strictly, which takes three times as long and says what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

PIECE_BYTES = 48 * 2**10
"""Of header decoded at once. Larger ones make the allocator ask the system for fresh pages, twice as many as
the tensors need, and leave the cache of the processor."""

_KEYS = (b'"dtype"', b'"shape"', b'"data_offsets"')
QUOTES = 10  # of one entry without escapes: its name, three keys and the dtype
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_PAIR = _TEXT + rb"\s*+:\s*+" + _TEXT
_METADATA = re.compile(  # possessive throughout: a metadata of 100 MB must not be kept for going back
    rb'\{\s*+"__metadata__"\s*+:\s*+(\{\s*+(?:' + _PAIR + rb"\s*+,?\s*+)*+\})\s*+(?:,\s*+|(?=\}))",
    re.DOTALL,
)
_WORD = b'"__metadata__"'


class Entry(msgspec.Struct, gc=False):
    """One tensor as its header writes it.

    Attributes:
        dtype: as safetensors names it.
        shape: rows first.
        data_offsets: first byte and the one after the last, from the start of the data.
    """

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


_DECODER = msgspec.json.Decoder(dict[str, Entry])
_WORDS = msgspec.json.Decoder(dict[str, str])


def split_metadata(raw: bytes) -> tuple[bytes, int] | None:
    """The text of `__metadata__` (empty where there is none) and where the tensors' entries begin.

    None where it stands anywhere but first, or looks like anything but an object of strings.
    """
    found = _METADATA.match(raw)
    begin = found.end() if found else 1
    return None if raw.find(_WORD, begin) >= 0 else (found[1] if found else b"", begin)


def is_plain_metadata(text: bytes) -> bool:
    """Whether it is an object of strings in which no key comes twice; empty text stands for none."""
    if not text:
        return True
    try:
        words = _WORDS.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    # With escapes, as in a training log kept there, quotes tell nothing; a key that comes twice harms nobody.
    return b"\\" in text or text.count(b'"') == 4 * len(words)


def pieces_of(raw: bytes, begin: int) -> Iterator[bytes | None]:
    """Yields whole entries, `PIECE_BYTES` at a time, in their order; None where the header does not end so.

    Args:
        raw: the header.
        begin: where the first entry begins.
    """
    end = raw.rfind(b"}")
    if end < begin or raw[end + 1 :].strip():
        yield None
        return
    while begin < end:
        stop = _boundary(raw, begin, end)
        yield raw[begin:stop]
        begin = stop + 1  # the comma between two pieces


def decode_entries(piece: bytes) -> dict[str, Entry] | None:
    """The entries of one piece; None where they are unusual."""
    try:
        entries = _DECODER.decode(b"{" + piece + b"}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return entries if _all_there(piece, len(entries)) else None


def _all_there(piece: bytes, entries: int) -> bool:
    """Whether the decoder dropped no key that came twice."""
    if b"\\" not in piece:
        return piece.count(b'"') == QUOTES * entries
    return all(piece.count(key) == entries for key in _KEYS)  # inside a name these would have escapes


def _boundary(raw: bytes, begin: int, end: int) -> int:
    """Just behind an entry. A name that looks like the end of one spoils the decoding and nothing else."""
    if end - begin <= PIECE_BYTES:
        return end
    found = raw.find(b'},"', begin + PIECE_BYTES, end)
    return end if found < 0 else found + 1

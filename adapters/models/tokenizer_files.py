"""Vocabularies read from a tokenizer's files, without a tokenizer library and within bounds.

Formats: `tokenizer.json` (tokenizers), SentencePiece models, tiktoken ranks, Mistral's `tekken.json`,
`vocab.json` with merges, `vocab.txt`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

MAX_ENTRIES = 2_000_000  # the largest published vocabularies have some 300,000; more would cost gigabytes
_POINTER = b"version https://git-lfs"
_SPM_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_CONTROL = (2, 3)  # SentencePiece's piece types UNKNOWN and CONTROL
_PIECE, _PIECE_TYPE = 0x0A, 0x18  # keys of its fields `pieces` and `type`
_FIRST_PIECES = 512  # whose texts are kept; special ones stand there


class TokenizerFileError(ValueError):
    """A file is not what its name says; the message says why."""


@dataclass(frozen=True)
class Vocabulary:
    """What one file says.

    Attributes:
        kind: `bpe unigram wordpiece wordlevel sentencepiece tiktoken tekken`.
        base: entries of the vocabulary itself.
        highest: highest id of these; -1 for none.
        tokens: text -> id, of formats that give texts; may hold only the special ones.
        added: id -> text of tokens beside the vocabulary.
        special: ids of those with a meaning of their own.
        ids: how many distinct ids base and added have together.
    """

    kind: str
    base: int
    highest: int
    tokens: Mapping[str, int] = field(default_factory=dict)
    added: Mapping[int, str] = field(default_factory=dict)
    special: frozenset[int] = frozenset()
    ids: int = 0


class _Added(msgspec.Struct):
    id: int
    content: str
    special: bool = False


class _Model(msgspec.Struct):
    type: str = ""
    vocab: msgspec.Raw = msgspec.Raw(b"{}")
    merges: msgspec.Raw = msgspec.Raw(b"")


class _TokenizerJson(msgspec.Struct):
    model: _Model
    added_tokens: msgspec.Raw = msgspec.Raw(b"[]")


class _TekkenConfig(msgspec.Struct):
    default_vocab_size: int = 0
    default_num_special_tokens: int = 0


class _TekkenSpecial(msgspec.Struct):
    rank: int
    token_str: str = ""


class _Tekken(msgspec.Struct):
    config: _TekkenConfig
    vocab: msgspec.Raw = msgspec.Raw(b"[]")
    special_tokens: list[_TekkenSpecial] | None = None


def read_vocabulary(path: str, data: bytes) -> Vocabulary:
    """The vocabulary that a file holds, by its name.

    Raises:
        TokenizerFileError: it is damaged, too large to count, or something else altogether.
    """
    name = path.rpartition("/")[2]
    if data.startswith(_POINTER):
        raise TokenizerFileError("a git-lfs pointer, not the file")
    try:
        if name == "tokenizer.json":
            return _tokenizer_json(data)
        if name == "tekken.json":
            return _tekken(data)
        if name == "vocab.json":
            return _plain("bpe", _decode(data, dict[str, int]))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise TokenizerFileError(f"not the JSON that it should be: {error or 'nested too deeply'}") from None
    if name == "vocab.txt":
        lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
        if lines > MAX_ENTRIES:
            raise TokenizerFileError(f"{lines} lines, more than {MAX_ENTRIES}")
        texts = data.decode("utf-8", "replace").split("\n")[:lines]
        return _plain("wordpiece", {text.rstrip("\r"): place for place, text in enumerate(texts)})
    if name.endswith(".tiktoken") or name == "tiktoken.model":
        return _tiktoken(data)
    if name == "tokenizer.model" and _looks_like_ranks(data):  # some releases name their ranks so
        return _tiktoken(data)
    return _sentencepiece(data)


def _tokenizer_json(data: bytes) -> Vocabulary:
    held = msgspec.json.decode(data, type=_TokenizerJson)
    model = held.model
    raw = bytes(model.vocab).lstrip()
    kind = model.type.lower()
    if raw.startswith(b"["):
        pieces: list[tuple[str, float]] = _decode(raw, list[tuple[str, float]])
        base = _plain(kind or "unigram", {text: place for place, (text, _) in enumerate(pieces)}, len(pieces))
    else:
        default = "bpe" if bytes(model.merges) else "wordpiece"
        base = _plain(kind or default, _decode(raw, dict[str, int]))
    added: list[_Added] = _decode(bytes(held.added_tokens), list[_Added] | None) or []
    beside = {token.id: token.content for token in added}
    known = set(base.tokens.values())
    return Vocabulary(
        kind=base.kind,
        base=base.base,
        highest=base.highest,
        tokens=base.tokens,
        added=beside,
        special=frozenset(token.id for token in added if token.special),
        ids=len(known | beside.keys()),
    )


def _decode(data: bytes, type: Any) -> Any:
    if data.count(b",") > MAX_ENTRIES:
        raise TokenizerFileError(f"more than {MAX_ENTRIES} entries")
    return msgspec.json.decode(data, type=type)


def _plain(kind: str, tokens: Mapping[str, int], entries: int | None = None) -> Vocabulary:
    base = len(tokens) if entries is None else entries
    highest = max(tokens.values(), default=-1)
    if min(tokens.values(), default=0) < 0:
        raise TokenizerFileError("a token has a negative id")
    return Vocabulary(kind, base, highest, tokens, ids=base)


def _tekken(data: bytes) -> Vocabulary:
    held = msgspec.json.decode(data, type=_Tekken)
    special = held.special_tokens or []
    number = held.config.default_num_special_tokens
    size = held.config.default_vocab_size
    tokens = {token.token_str: token.rank for token in special}
    return Vocabulary(
        kind="tekken",
        base=max(size - number, 0),
        highest=size - 1,
        tokens=tokens,
        added={token.rank: token.token_str for token in special},
        special=frozenset(tokens.values()),
        ids=size,
    )


def _looks_like_ranks(data: bytes) -> bool:
    first = data[:400].split(b"\n", 1)[0].split()
    return len(first) == 2 and first[1].isdigit()


def _tiktoken(data: bytes) -> Vocabulary:
    """Lines of `base64 rank`."""
    if data.count(b"\n") > MAX_ENTRIES:
        raise TokenizerFileError(f"more than {MAX_ENTRIES} lines")
    words = data.split()
    ranks = words[1::2]
    if len(words) % 2 or not ranks or not all(rank.isdigit() and len(rank) < 10 for rank in ranks):
        raise TokenizerFileError("not lines of a token and its rank")
    return Vocabulary("tiktoken", len(ranks), max(map(int, ranks)), ids=len(ranks))


def _sentencepiece(data: bytes) -> Vocabulary:
    """SentencePiece's ModelProto by its wire format: pieces are field 1, the trainer's settings field 2."""
    tokens: dict[str, int] = {}
    kind, number, place, end = "", 0, 0, len(data)
    try:
        while place < end:
            if data[place] != _PIECE:
                tag, value, place = _field(data, place)
                if tag == 2 and isinstance(value, bytes):
                    kind = _SPM_KINDS.get(int(dict(_fields(value)).get(3, 1)), "")
                continue
            length, place = _varint(data, place + 1)
            stop = place + length
            if stop > end or length < 2:
                raise IndexError(place)
            # A piece of a type of its own ends with it; the 250,000 plain ones need not be taken apart.
            if number < _FIRST_PIECES or data[stop - 2] == _PIECE_TYPE:
                piece = dict(_fields(data[place:stop]))
                if number < _FIRST_PIECES or piece.get(3, 1) in _CONTROL:
                    tokens[_text(piece.get(1, b""))] = number
            number, place = number + 1, stop
            if number > MAX_ENTRIES:
                raise TokenizerFileError(f"more than {MAX_ENTRIES} pieces")
    except (IndexError, TypeError, UnicodeError):
        raise TokenizerFileError("not a SentencePiece model") from None
    if not number:
        raise TokenizerFileError("a SentencePiece model without pieces")
    kind = f"sentencepiece {kind}".strip()
    return Vocabulary(kind, base=number, highest=number - 1, tokens=tokens, ids=number)


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else ""


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Fields of a protobuf message: number and value, bytes for what has a length.

    Raises:
        IndexError: it ends within a field.
        TypeError: a wire type that is not in use.
    """
    place = 0
    while place < len(data):
        tag, value, place = _field(data, place)
        yield tag, value


def _field(data: bytes, place: int) -> tuple[int, Any, int]:
    """One field and where the next one is."""
    key, place = _varint(data, place)
    wire = key & 7
    if wire == 0:
        value, place = _varint(data, place)
        return key >> 3, value, place
    if wire == 2:
        length, place = _varint(data, place)
    elif wire in (1, 5):
        length = 8 if wire == 1 else 4
    else:
        raise TypeError(wire)
    if place + length > len(data):
        raise IndexError(place)
    return key >> 3, data[place : place + length], place + length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
        if shift > 63:
            raise IndexError(place)

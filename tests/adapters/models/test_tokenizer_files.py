"""Vocabularies from the files themselves, every format written byte by byte."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.adapters.models import tokenizer_files
from day0.adapters.models.tokenizer_files import TokenizerFileError, read_vocabulary


def tokenizer_json(vocab: Any, added: Any = (), **model: Any) -> bytes:
    return json.dumps(
        {"version": "1.0", "model": {"vocab": vocab} | model, "added_tokens": list(added)}
    ).encode()


def sentencepiece(pieces: list[tuple[str, int]], kind: int = 1) -> bytes:
    """A ModelProto: pieces with score and type, then the trainer's settings."""
    data = b""
    for text, type_ in pieces:
        raw = text.encode()
        inner = (
            b"\x0a"
            + bytes([len(raw)])
            + raw
            + b"\x15\0\0\0\0"
            + (bytes([0x18, type_]) if type_ != 1 else b"")
        )
        data += b"\x0a" + bytes([len(inner)]) + inner
    return data + b"\x12\x02\x18" + bytes([kind])


def ranks(number: int) -> bytes:
    return b"".join(base64.b64encode(b"%d" % i) + b" %d\n" % i for i in range(number))


def test_bpe_with_added_tokens() -> None:
    added = [
        {"id": 3, "content": "<eos>", "special": True},
        {"id": 1, "content": "b"},
        {"id": 7, "content": "<x>"},
    ]
    found = read_vocabulary(
        "tokenizer.json", tokenizer_json({"a": 0, "b": 1, "c": 2}, added, type="BPE", merges=[])
    )
    assert (found.kind, found.base, found.highest, found.ids) == ("bpe", 3, 2, 5)
    assert found.added == {3: "<eos>", 1: "b", 7: "<x>"}
    assert found.special == {3}


@pytest.mark.parametrize(
    ("vocab", "model", "kind"),
    [([["a", -1.0], ["b", -2.5]], {"type": "Unigram"}, "unigram"), ([["a", 0]], {}, "unigram"),
     ({"a": 0}, {"type": "WordPiece"}, "wordpiece"), ({"a": 0}, {"merges": ["a b"]}, "bpe"),
     ({"a": 0}, {"type": "WordLevel"}, "wordlevel")],
)  # fmt: skip
def test_kinds_of_tokenizer_json(vocab: Any, model: dict[str, Any], kind: str) -> None:
    found = read_vocabulary("tokenizer.json", tokenizer_json(vocab, **model))
    assert (found.kind, found.base, found.highest) == (kind, len(vocab), len(vocab) - 1)


def test_sentencepiece_by_its_wire_format() -> None:
    pieces = [
        ("<unk>", 2),
        ("<s>", 3),
        ("</s>", 3),
        *[(f"▁{i}", 1) for i in range(600)],
        ("<pad>", 3),
        ("z", 1),
    ]
    found = read_vocabulary("tokenizer.model", sentencepiece(pieces, kind=2))
    assert (found.kind, found.base, found.highest) == ("sentencepiece bpe", 605, 604)
    assert (found.tokens["<s>"], found.tokens["</s>"], found.tokens["<pad>"]) == (1, 2, 603)
    assert "z" not in found.tokens


@pytest.mark.parametrize("name", ["tiktoken.model", "qwen.tiktoken", "tokenizer.model"])
def test_ranks_of_tiktoken(name: str) -> None:
    found = read_vocabulary(name, ranks(50))
    assert (found.kind, found.base, found.highest) == ("tiktoken", 50, 49)


def test_tekken() -> None:
    special = [{"rank": 0, "token_str": "<unk>", "is_control": True}, {"rank": 2, "token_str": "</s>"}]
    config = {"default_vocab_size": 131072, "default_num_special_tokens": 1000}
    data = json.dumps({"config": config, "vocab": [{"rank": 0}], "special_tokens": special}).encode()
    found = read_vocabulary("tekken.json", data)
    assert (found.kind, found.base, found.highest, found.ids) == ("tekken", 130072, 131071, 131072)
    assert found.tokens == {"<unk>": 0, "</s>": 2}


def test_plain_vocabularies() -> None:
    assert read_vocabulary("vocab.json", b'{"a": 0, "b": 5}').highest == 5
    assert read_vocabulary("vocab.txt", b"[PAD]\n[UNK]\r\nthe").tokens == {"[PAD]": 0, "[UNK]": 1, "the": 2}


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        ("tokenizer.json", b"version https://git-lfs.github.com/spec/v1\n", "git-lfs pointer"),
        ("tokenizer.json", b"{", "not the JSON"),
        ("tokenizer.json", b'{"model": ' + b"[" * 100_000, "not the JSON"),
        ("tokenizer.json", tokenizer_json({"a": "b"}), "not the JSON"),
        ("tokenizer.json", tokenizer_json({"a": -1}), "negative id"),
        ("tokenizer.json", b'{"model": {"vocab": {"\\ud800": 1}}}', "not the JSON"),
        ("tokenizer.model", b"\x0a\x7fabc", "not a SentencePiece model"),
        ("tokenizer.model", b"\x12\x02\x18\x01", "without pieces"),
        ("tiktoken.model", b"YQ== 0\nYg==", "not lines"),
        ("tiktoken.model", b"YQ== x", "not lines"),
    ],
)
def test_damage_is_named(name: str, data: bytes, error: str) -> None:
    with pytest.raises(TokenizerFileError, match=error):
        read_vocabulary(name, data)


def test_too_many_entries_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_files, "MAX_ENTRIES", 10)
    for name, data in (
        ("tokenizer.json", tokenizer_json({str(i): i for i in range(20)})),
        ("tiktoken.model", ranks(20)),
        ("vocab.txt", b"x\n" * 20),
        ("tokenizer.model", sentencepiece([("a", 1)] * 20)),
    ):
        with pytest.raises(TokenizerFileError, match="more than"):
            read_vocabulary(name, data)


_NAMES = ["tokenizer.json", "tekken.json", "vocab.json", "vocab.txt", "tiktoken.model", "tokenizer.model"]
_KEYS = st.sampled_from(["model", "vocab", "type", "added_tokens", "id", "content", "config", "a"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=2000)
@given(st.sampled_from(_NAMES), st.binary(max_size=300) | _JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_end_in_a_vocabulary_or_a_reason(name: str, data: bytes) -> None:
    with contextlib.suppress(TokenizerFileError):
        assert read_vocabulary(name, data).base >= 0

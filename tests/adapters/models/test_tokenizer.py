"""A release's tokenizer file: whatever its rules do is a named error, and the process goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.base.errors import CheckpointError
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.tokenizer import load_tokenizer
from day0.adapters.models.tokenizer_trial import try_tokenizer

WORDS = {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 1}, "unk_token": "<unk>"}
PANICS = {  # its template names a second text, and there is none
    "type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "B", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {},
}
GROWS = {"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * 100}


def content(model: dict[str, Any] | None = None, **more: Any) -> str:
    parts = dict.fromkeys(
        ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    )
    return json.dumps({"version": "1.0", "added_tokens": [], **parts, "model": model or WORDS, **more})


def release(folder: Path, text: str) -> Any:
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text(text)
    return open_release(str(folder))


def encoded(opened: Any, text: str) -> Sequence[int]:
    tokenizer = load_tokenizer(opened)
    assert tokenizer is not None
    return tokenizer.encode(text, special=True)


def test_one_that_works_is_given(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(release(tmp_path, content()), ("a",))
    assert tokenizer is not None
    assert list(tokenizer.encode("a", special=True)) == [1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"model": ', "cannot be read: EOF"),
        (content({**WORDS, "unk_token": "none"}), "cannot be used on a text: WordLevel error: Missing [UNK]"),
        (content(post_processor=PANICS), "cannot be used on a text: index out of bounds"),
    ],
)
def test_one_that_fails_is_a_named_error_with_and_without_a_trial(
    tmp_path: Path, text: str, said: str
) -> None:
    opened = release(tmp_path, text)
    with pytest.raises(CheckpointError) as found:
        load_tokenizer(opened, ("b",))
    assert found.value.code == "E340"
    assert said in found.value.message
    with pytest.raises(CheckpointError) as again:
        encoded(opened, "b")
    assert again.value.message == found.value.message


def test_one_that_takes_all_memory_or_has_no_end_is_given_up() -> None:
    grows = content(normalizer={"type": "Sequence", "normalizers": [GROWS] * 4})
    failed, reason = try_tokenizer(grows, ("a word",), memory=2**27, seconds=20)
    assert failed == "used on a text"
    assert "trying it" in reason
    assert try_tokenizer(grows, ("a word",), seconds=0.01) == ("tried", "trying it took more than 0.01 s")

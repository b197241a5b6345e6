"""The release's tokenizer, from tokenizer.json alone: nothing of the release is executed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..base.errors import CheckpointError, SourceError
from ..base.release import Release
from .tokenizer_trial import try_tokenizer

FILE = "tokenizer.json"
_MAX_BYTES = 256 * 2**20
"""The largest published tokenizer.json have about 35 MB."""

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Tokenizer:
    """Text to token ids and back; E340 where its rules fail on a text or on ids."""

    _tokenizer: Any

    def encode(self, text: str, *, special: bool) -> Sequence[int]:
        """Token ids of a text; `special` adds what the tokenizer puts around a text, e.g. a first token."""
        made = _asked(lambda: self._tokenizer.encode(text, add_special_tokens=special), "used on a text")
        return tuple(int(token) for token in made.ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of token ids; special tokens left out."""
        ids = list(tokens)
        text = _asked(lambda: self._tokenizer.decode(ids, skip_special_tokens=True), "used on token ids")
        return str(text)


def load_tokenizer(release: Release, trial: Sequence[str] = ()) -> Tokenizer | None:
    """The tokenizer of a release; None where it has no tokenizer.json.

    Args:
        release: whose file is read.
        trial: texts that it has to encode in a process of its own first: its rules are the release's, and may
            take all memory, run without end or abort the process that they run in.

    Raises:
        CheckpointError: E340, tokenizer.json is there and cannot be read, or fails on a text of the trial.
    """
    listed = {file.path: file for file in release.source.files()} if release.source else {}
    if release.source is None or FILE not in listed:
        return None
    from tokenizers import Tokenizer as FastTokenizer

    if listed[FILE].size > _MAX_BYTES:
        raise _unusable(f"it has {listed[FILE].size} bytes, more than the {_MAX_BYTES} that one may have")
    try:
        text = release.source.read(FILE).decode()
    except (SourceError, UnicodeDecodeError) as error:
        raise _unusable(str(error)) from error
    failed, reason = try_tokenizer(text, trial) if trial else ("", "")
    if failed:
        raise _unusable(reason, failed)
    loaded = _asked(lambda: FastTokenizer.from_str(text), "read")
    loaded.no_truncation()
    loaded.no_padding()
    return Tokenizer(loaded)


def _asked(ask: Callable[[], _Made], doing: str) -> _Made:
    try:
        return ask()
    except BaseException as error:
        # The package raises bare Exception for whatever it cannot do; where its core panics, what it raises
        # is no Exception at all and has no importable name.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise _unusable(" ".join(str(error).split())[:300], doing) from error


def _unusable(reason: str, doing: str = "read") -> CheckpointError:
    return CheckpointError(
        f"{FILE} cannot be {doing}: {reason}", code="E340", remedy="Fetch the file again or correct it."
    )

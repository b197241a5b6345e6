"""The release's tokenizer, from tokenizer.json alone: nothing of the release is executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..base.errors import CheckpointError, SourceError
from ..base.release import Release

FILE = "tokenizer.json"
_MAX_BYTES = 256 * 2**20
"""The largest published tokenizer.json have about 35 MB."""


@dataclass(frozen=True)
class Tokenizer:
    """Text to token ids and back."""

    _tokenizer: Any

    def encode(self, text: str, *, special: bool) -> Sequence[int]:
        """Token ids of a text; `special` adds what the tokenizer puts around a text, e.g. a first token."""
        return tuple(int(token) for token in self._tokenizer.encode(text, add_special_tokens=special).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of token ids; special tokens left out."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))


def load_tokenizer(release: Release) -> Tokenizer | None:
    """The tokenizer of a release; None where it has no tokenizer.json.

    Raises:
        CheckpointError: E340, tokenizer.json is there and cannot be read.
    """
    listed = {file.path: file for file in release.source.files()} if release.source else {}
    if release.source is None or FILE not in listed:
        return None
    from tokenizers import Tokenizer as FastTokenizer

    if listed[FILE].size > _MAX_BYTES:
        raise _unreadable(f"it has {listed[FILE].size} bytes, more than the {_MAX_BYTES} that one may have")
    try:
        loaded = FastTokenizer.from_str(release.source.read(FILE).decode())
    except (SourceError, UnicodeDecodeError) as error:
        raise _unreadable(str(error)) from error
    except Exception as error:  # the tokenizers package raises bare Exception for whatever it cannot parse
        raise _unreadable(" ".join(str(error).split())[:300]) from error
    loaded.no_truncation()
    loaded.no_padding()
    return Tokenizer(loaded)


def _unreadable(reason: str) -> CheckpointError:
    return CheckpointError(
        f"{FILE} cannot be read: {reason}", code="E340", remedy="Fetch the file again or correct it."
    )

"""The process that tries a tokenizer: `python -m day0.adapters.models.tokenizer_worker`.

Standard input holds one JSON object: `content` (of tokenizer.json) and `texts`. Standard output gets lines of
JSON: what was tried (`read`, then `used on a text`), the reason where it failed, and `null` as the last.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from .tokenizer_trial import STEPS


def main() -> None:
    """Answers the one question on standard input."""
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints must not enter the answer
    question = json.load(sys.stdin)
    try:
        for doing in _steps(question["content"], question["texts"]):
            _line(answer, doing)
    except BaseException as error:  # the package raises bare Exception, and beyond it where its core panics
        _line(answer, " ".join(str(error).split())[:300] or type(error).__name__)
    _line(answer, None)
    answer.close()


def _steps(content: str, texts: Sequence[str]) -> Iterator[str]:
    """Says what comes next, and does it."""
    from tokenizers import Tokenizer

    yield STEPS[0]
    tokenizer = Tokenizer.from_str(content)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    yield STEPS[1]
    for text in texts:
        for special in (True, False):
            tokenizer.decode(tokenizer.encode(text, add_special_tokens=special).ids)


def _line(out: TextIO, value: str | None) -> None:
    out.write(f"{json.dumps(value)}\n")
    out.flush()  # the next step may be this process's last


if __name__ == "__main__":
    main()

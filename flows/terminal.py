"""What goes where: data to standard output and nothing else, words and progress to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

from pydantic import BaseModel


@contextmanager
def stdout_for_data() -> Iterator[TextIO]:
    """Yields the real standard output; whatever libraries or children print meanwhile goes to standard error.

    The descriptor is moved too, because native code and child processes do not know `sys.stdout`.
    """
    sys.stdout.flush()
    real = os.dup(1)
    os.dup2(2, 1)
    try:
        with (
            os.fdopen(os.dup(real), "w", encoding="utf-8", newline="\n") as data,
            redirect_stdout(sys.stderr),
        ):
            yield data
    finally:
        sys.stdout.flush()
        os.dup2(real, 1)
        os.close(real)


def write_json(stream: TextIO, value: Any) -> None:
    """Writes one strict JSON document.

    Raises:
        ValueError: a float is NaN or infinite (records name such values as strings).
    """
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    json.dump(plain, stream, indent=2, ensure_ascii=False, allow_nan=False)
    stream.write("\n")
    stream.flush()


def say(text: str) -> None:
    """One line for the person, on standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """The text without what could steer a terminal: names come from a release, messages from a stack."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )

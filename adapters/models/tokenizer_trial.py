"""Tries a release's tokenizer on texts in a process of its own: bounded in time and memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .bounded_process import Bounds, ask_process

SECONDS = 60.0
"""A file of 3.5 MB is read in 0.2 s, and the largest published ones are ten times as large."""
MEMORY = 2 * 2**30
"""Bytes; a file of 3.5 MB takes 0.1 GB."""
_MAX_ANSWER = 2**16
STEPS = ("read", "used on a text")
"""What the process says before it does it."""
MODULE = "day0.adapters.models.tokenizer_worker"


def try_tokenizer(
    content: str, texts: Sequence[str], *, seconds: float = SECONDS, memory: int = MEMORY
) -> tuple[str, str]:
    """What failed of reading the tokenizer and encoding the texts, and why; both empty where nothing did.

    Args:
        content: of tokenizer.json.
        texts: what it has to encode.
        seconds: after which it is given up.
        memory: bytes (PSS) at which it is given up.
    """
    bounds = Bounds(seconds, memory, _MAX_ANSWER, "trying it")
    question = {"content": content, "texts": list(texts)}
    lines, died = ask_process((sys.executable, "-m", MODULE), question, bounds)
    said = [str(line) for line in lines]
    if died:
        return (said[-1] if said else "tried"), died
    return (said[-2], said[-1]) if said[-1] not in STEPS else ("", "")

"""Published sample outputs of a model, as a person gives them: `[{"prompt": ..., "output": ...}, ...]`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from day0.adapters.base.errors import InputError

_MOST_BYTES = 4 * 2**20
_MOST = 64
_MOST_CHARACTERS = 20_000


@dataclass(frozen=True)
class Sample:
    """One published output.

    Attributes:
        prompt: given to the model as it stands.
        output: what it says greedily, or the beginning of that.
    """

    prompt: str
    output: str


def load_samples(path: Path) -> tuple[Sample, ...]:
    """The samples of a file.

    Raises:
        InputError: E186, it cannot be read or holds something else.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _unusable(path, f"has more than {_MOST_BYTES} bytes")
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _unusable(path, f"cannot be read: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(held, list) or not 0 < len(held) <= _MOST:
        raise _unusable(path, f"is no list of 1 to {_MOST} samples")
    return tuple(_sample(path, place, entry) for place, entry in enumerate(held))


def _sample(path: Path, place: int, entry: object) -> Sample:
    parts = {key: entry.get(key) for key in ("prompt", "output")} if isinstance(entry, dict) else {}
    for key in ("prompt", "output"):
        text = parts.get(key)
        if not isinstance(text, str) or not 0 < len(text) <= _MOST_CHARACTERS:
            raise _unusable(path, f"has no {key} of 1 to {_MOST_CHARACTERS} characters in entry {place}")
    return Sample(str(parts["prompt"]), str(parts["output"]))


def _unusable(path: Path, reason: str) -> InputError:
    return InputError(
        f"the file of samples {str(path)!r} {reason}",
        code="E186",
        remedy='Write a JSON list of {"prompt": ..., "output": ...}, the outputs as decoded greedily.',
    )

"""The chips to plan for, out of the TOML file beside this module."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from pydantic import TypeAdapter

from .record import Chip


class Profile(Chip):
    """A chip and what its vLLM loads as stored.

    Attributes:
        takes: words of the quantisation schemes.
        engines: that serve on it.
    """

    takes: Sequence[str]
    engines: Sequence[str]

    @property
    def chip(self) -> Chip:
        """The part that the record shows."""
        return Chip(**self.model_dump(exclude={"takes", "engines"}))


def load_profiles() -> tuple[Profile, ...]:
    """All profiles, in the order of the file.

    Raises:
        ValidationError: the file is not what it should be.
    """
    text = (files(__package__) / "chips.toml").read_text(encoding="utf-8")
    parsed: dict[str, Any] = tomllib.loads(text)
    return TypeAdapter(tuple[Profile, ...]).validate_python(parsed["chip"])

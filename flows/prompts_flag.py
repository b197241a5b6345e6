"""The flag `--prompts`, which several verbs have."""

from __future__ import annotations

from day0.adapters.base.errors import InputError

AUTO = "auto"


def check_prompts(text: str) -> None:
    """Refuses names of prompts that are not shipped, before anything runs.

    Args:
        text: `auto`, `all`, or names with commas.

    Raises:
        InputError: E187, there is no such prompt.
    """
    from day0.tasks.numerics.prompts.passes import PURPOSES, unknown_names

    unknown = unknown_names(text)
    if unknown:
        raise InputError(
            f"there is no prompt {unknown[0].strip()!r}",
            code="E187",
            remedy=f"There are {', '.join(PURPOSES)}; auto and all choose among them.",
        )


def switches_of(prompts: str) -> list[str]:
    """What of it stands in a command that does the same again: nothing where it is the default."""
    return [] if prompts == AUTO else ["--prompts", prompts]

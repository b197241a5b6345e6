"""What a server is asked, and whether it reads the same tokens."""

from __future__ import annotations

from dataclasses import dataclass

from day0.adapters.targets.endpoint import Prompt

from ...finding import Finding, Subject, make_finding


@dataclass(frozen=True)
class Ask:
    """One prompt of the set.

    Attributes:
        name: of it.
        prompt: as text and token ids.
        purpose: what it can show that the others cannot.
    """

    name: str
    prompt: Prompt
    purpose: str = ""


def other_tokens(ask: Ask, counted: int | None, subject: Subject, found: list[Finding]) -> bool:
    """Whether the server makes another number of tokens of the prompt; then nothing can be compared."""
    if counted is None or counted == len(ask.prompt.ids):
        return False
    found.append(tokenised(ask, f"makes {counted} tokens of it, {len(ask.prompt.ids)} are right", subject))
    return True


def tokenised(ask: Ask, what: str, subject: Subject) -> Finding:
    """The finding that the server reads another text than was sent."""
    place = Subject(kind="metric", name=f"tokens of {ask.name}")
    return make_finding("NUM024", place, f"{subject.name} tokenises {ask.name} otherwise: it {what}.")

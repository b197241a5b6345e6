"""What a server's JSON says of a completion and of a prompt's log-probabilities, if it can be so."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from day0.adapters.base.errors import WorkerError

_MAX_TOKENS = 2**20
_MAX_TOP = 4096
_ROUNDING = 1e-3
"""By which a log-probability may be above 0, or a probability too large: half precision, printed digits."""

Token = int | str
"""As the server names a token: by its id, or by its text."""


@dataclass(frozen=True)
class Completion:
    """A continuation.

    Attributes:
        text: of it.
        ids: its token ids; None where the server does not say.
        prompt_tokens: how many tokens it made of the prompt; None where it does not say.
        generated: how many tokens it says it made; None where it does not say.
        finish: `length`, `stop` or what else it says.
    """

    text: str
    ids: Sequence[int] | None
    prompt_tokens: int | None
    generated: int | None
    finish: str


@dataclass(frozen=True)
class Position:
    """What the server says of the token that stands at one position of the prompt.

    Attributes:
        given: the token that stands there.
        logprob: its log-probability in nats; NaN where the server does not say.
        top: likeliest tokens there -> log-probability; holds the given one where it is known.
    """

    given: Token
    logprob: float = math.nan
    top: Mapping[Token, float] = field(default_factory=dict)

    @property
    def best(self) -> Token | None:
        """The likeliest token; None where there is none."""
        return max(self.top, key=self.top.__getitem__) if self.top else None


def as_completion(body: Any, where: str) -> Completion:
    """The first choice of a `/completions` answer.

    Raises:
        WorkerError: E614, it is none.
    """
    choice = first_choice(body, where)
    text = choice.get("text")
    if not isinstance(text, str):
        raise wrong(where, "its first choice has no text")
    ids = choice.get("token_ids")
    return Completion(
        text=text,
        ids=_ids(ids) if isinstance(ids, list) and ids else None,
        prompt_tokens=_counted(body, "prompt_tokens"),
        generated=_counted(body, "completion_tokens"),
        finish=str(choice.get("finish_reason"))[:40],
    )


def as_chat(body: Any, where: str) -> Completion:
    """The same of a `/chat/completions` answer.

    Raises:
        WorkerError: E614, it is none.
    """
    message = first_choice(body, where).get("message")
    text = message.get("content") if isinstance(message, dict) else None
    if not isinstance(text, str):
        raise wrong(where, "its first choice has no message")
    return Completion(text, None, None, None, str(first_choice(body, where).get("finish_reason"))[:40])


def first_choice(body: Any, where: str) -> dict[str, Any]:
    """The first of the choices.

    Raises:
        WorkerError: E614, there is none.
    """
    choices = body.get("choices") if isinstance(body, dict) else None
    if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
        raise wrong(where, "it has no choices")
    return choices[0]


def as_prompt_logprobs(body: Any, where: str) -> list[Position]:
    """What `prompt_logprobs` gives: for each position a map of token id -> `{logprob, rank, ...}`.

    The given token of each position comes first in its map; of the first position nothing is said.

    Raises:
        WorkerError: E614, the answer is another.
    """
    choice = first_choice(body, where)
    rows = choice.get("prompt_logprobs", body.get("prompt_logprobs"))
    if not isinstance(rows, list) or not 0 < len(rows) <= _MAX_TOKENS:
        raise wrong(where, "it has no list of prompt_logprobs")
    ids = choice.get("prompt_token_ids")
    ids = _ids(ids) if isinstance(ids, list) and len(ids) == len(rows) else None
    found = []
    for place, row in enumerate(rows):
        if row is None and place == 0:
            found.append(Position(ids[0] if ids else -1))
            continue
        if not isinstance(row, dict) or not 0 < len(row) <= _MAX_TOP:
            raise wrong(where, f"position {place} has no map of tokens")
        top: dict[Token, float] = {_id(key, where): _logprob(value, where) for key, value in row.items()}
        given = ids[place] if ids else next(iter(top))
        found.append(_position(given, top.get(given, math.nan), top, where))
    return found


def as_echo(body: Any, prompt: str, where: str) -> list[Position]:
    """What `echo` with `logprobs` gives for the prompt: texts of tokens, in lists of equal length.

    Args:
        body: the answer; the completion's own tokens stand behind the prompt's.
        prompt: as text; what is listed beyond it is the completion's. Servers list all of that, or leave its
            last token out, and some leave out the prompt's first.
        where: for the error.

    Raises:
        WorkerError: E614, the answer is another.
    """
    held = first_choice(body, where).get("logprobs")
    held = held if isinstance(held, dict) else {}
    tokens, own, top = (held.get(key) for key in ("tokens", "token_logprobs", "top_logprobs"))
    if not (isinstance(tokens, list) and isinstance(own, list) and isinstance(top, list)):
        raise wrong(where, "it has no logprobs of tokens")
    if not len(tokens) == len(own) == len(top) or not 1 < len(tokens) <= _MAX_TOKENS:
        raise wrong(where, f"its lists have {len(tokens)}, {len(own)} and {len(top)} entries")
    found = []
    for place in range(_listed(held, tokens, prompt, body)):
        given = _spelt(tokens[place], where)
        row = top[place]
        if row is not None and (not isinstance(row, dict) or len(row) > _MAX_TOP):
            raise wrong(where, f"position {place} has no map of tokens")
        likely = {_spelt(key, where): _logprob(value, where) for key, value in (row or {}).items()}
        said = math.nan if own[place] is None else _logprob(own[place], where)
        found.append(_position(given, said, likely, where))
    return found


def _listed(held: Mapping[str, Any], tokens: Sequence[Any], prompt: str, body: Any) -> int:
    """How many of the listed tokens are the prompt's: by their offsets, their texts, or else their number."""
    offsets = held.get("text_offset")
    if prompt and isinstance(offsets, list) and len(offsets) == len(tokens) and offsets[0] == 0:
        inside = [type(offset) is int and offset < len(prompt) for offset in offsets]
        if inside == sorted(inside, reverse=True):
            return sum(inside)
    text = ""
    for count, token in enumerate(tokens, start=1):
        text += token if isinstance(token, str) else ""
        if text == prompt:
            return count
    generated = _counted(body, "completion_tokens")
    return max(1, len(tokens) - (1 if generated is None else generated))


def wrong(where: str, what: str) -> WorkerError:
    """The error for an answer that is not of the form that it must have."""
    return WorkerError(f"{where} answered something of the wrong form: {what}", code="E614")


def _counted(body: Any, key: str) -> int | None:
    usage = body.get("usage") if isinstance(body, dict) else None
    counted = usage.get(key) if isinstance(usage, dict) else None
    return counted if type(counted) is int and 0 <= counted < _MAX_TOKENS else None


def _position(given: Token, logprob: float, top: Mapping[Token, float], where: str) -> Position:
    together = sum(math.exp(value) for value in top.values())
    if together > 1 + _ROUNDING * max(1, len(top)):
        raise wrong(where, f"probabilities of one position add up to {together:.4g}")
    return Position(given, logprob, dict(top))


def _logprob(value: Any, where: str) -> float:
    if isinstance(value, dict):
        value = value.get("logprob")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or math.isnan(value) or value > _ROUNDING:
        raise wrong(where, f"{str(value)[:40]} is no log-probability")
    return min(float(value), 0.0)


def _id(key: Any, where: str) -> int:
    if not (isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 10):
        raise wrong(where, f"{str(key)[:40]!r} is no token id")
    return int(key)


def _ids(values: Sequence[Any]) -> Sequence[int] | None:
    right = len(values) <= _MAX_TOKENS and all(type(value) is int and 0 <= value < 2**31 for value in values)
    return tuple(values) if right else None


def _spelt(token: Any, where: str) -> Token:
    """A token by its text, or by its id where the server was asked to write `token_id:N`."""
    if not isinstance(token, str) or len(token) > 1000:
        raise wrong(where, "a token is no text")
    number = token.removeprefix("token_id:")
    return int(number) if number != token and number.isascii() and number.isdigit() else token

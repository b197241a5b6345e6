"""What an OpenAI-compatible server can do, found by trying: a dozen requests of a few tokens each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from day0.adapters.base.errors import WorkerError

from .endpoint_answers import Position, as_chat, as_completion, as_echo, as_prompt_logprobs, wrong
from .endpoint_client import EndpointClient, Reply

TEXT = "The sun rises in the east and sets in the"
IDS = (10, 20, 30, 40, 50, 60)
"""In every vocabulary, and special in hardly any."""
_TRIED = 8
_SURE = 0.75
_TOP = (20, 5, 1)
"""Likeliest tokens asked for, most first: vLLM and SGLang give 20, OpenAI's own server gave 5."""
_PLAIN: tuple[Mapping[str, Any], ...] = (
    {"repetition_penalty": 1.0, "top_p": 1.0, "return_token_ids": True, "seed": 0},
    {"top_p": 1.0, "seed": 0},
    {},
)
"""What is sent beside temperature 0 so that no default of the release's generation_config.json has a say;
servers that know only some of it refuse the rest."""


@dataclass(frozen=True)
class Offer:
    """What the server can do.

    Attributes:
        model: name under which it serves.
        extras: sent with each request for a completion.
        text: whether it continues a text as it stands.
        ids: whether it takes a prompt as token ids.
        chat: whether it answers messages.
        logprobs: how it gives a prompt's log-probabilities: `prompt_logprobs`, `echo` or empty.
        top: likeliest tokens that it gives of each position.
        shift: 1 where its lists stand one position too early, so that what is said of a token is the
            distribution after it; else 0.
        reasons: what it cannot do -> why.
        listed: what its list of models says of the model.
        headers: of its answers.
    """

    model: str
    extras: Mapping[str, Any] = field(default_factory=dict)
    text: bool = False
    ids: bool = False
    chat: bool = False
    logprobs: str = ""
    top: int = 0
    shift: int = 0
    reasons: Mapping[str, str] = field(default_factory=dict)
    listed: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def capabilities(self) -> Sequence[str]:
        """Out of the contract's words."""
        offered = ["generate"] if self.text or self.chat else []
        return [*offered, "prompt_logprobs"] if self.logprobs else offered


def probe(client: EndpointClient, model: str) -> Offer:
    """Tries what the server can do.

    Args:
        client: of the server.
        model: name of the model; empty: the one that it lists.

    Raises:
        WorkerError: it cannot be reached, or serves no such model.
    """
    model, listed, headers = _model(client, model)
    reasons: dict[str, str] = {}
    extras, text = _completes(client, model, reasons)
    chat = _chats(client, model, reasons)
    if not text:
        reasons.setdefault("prompt_logprobs", "it completes no plain text")
        return Offer(model, chat=chat, reasons=reasons, listed=listed, headers=headers)
    ids = _takes_ids(client, model, extras, reasons)
    how, top, shift = _logprobs(client, model, extras, ids, reasons)
    return Offer(model, extras, text, ids, chat, how, top, shift, reasons, listed, headers)


def _model(client: EndpointClient, wanted: str) -> tuple[str, Mapping[str, Any], Mapping[str, str]]:
    reply = client.get("/models")
    data = reply.body.get("data") if reply.ok and isinstance(reply.body, dict) else None
    entries = [entry for entry in data or [] if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    named = {str(entry["id"]): entry for entry in entries[:1000]}
    if wanted:
        # Not every server lists what it serves under each name: the first request shows.
        return wanted, named.get(wanted, {}), reply.headers
    if len(named) != 1:
        some = ", ".join(sorted(named)[:5]) or "none"
        raise WorkerError(
            f"the endpoint {client.url} lists {len(named)} models ({some}), so one has to be named",
            code="E616",
            remedy="Write &model=NAME into the target.",
        )
    name, entry = next(iter(named.items()))
    return name, entry, reply.headers


def request(
    model: str, prompt: str | Sequence[int], tokens: int, extras: Mapping[str, Any]
) -> dict[str, Any]:
    """The body of a request for so many tokens, chosen greedily."""
    sent = prompt if isinstance(prompt, str) else list(prompt)
    return {"model": model, "prompt": sent, "max_tokens": tokens, "temperature": 0, **extras}


def logprobs_request(
    how: str, top: int, model: str, prompt: str | Sequence[int], extras: Mapping[str, Any]
) -> dict[str, Any]:
    """The body of a request for a prompt's log-probabilities.

    One token is generated, since some servers take 0 for no limit.
    """
    wanted = {"prompt_logprobs": top} if how == "prompt_logprobs" else {"echo": True, "logprobs": top}
    return {**request(model, prompt, 1, extras), **wanted}


def read_logprobs(how: str, reply: Reply, prompt: str, url: str) -> list[Position]:
    """The positions of a prompt, given as text, out of the answer to `logprobs_request`.

    Raises:
        WorkerError: E612 or E614, there are none.
    """
    where = f"the endpoint {url}"
    if not reply.ok:
        raise WorkerError(f"{where} refuses prompt log-probabilities: {reply.words}", code="E612")
    if how == "prompt_logprobs":
        return as_prompt_logprobs(reply.body, where)
    return as_echo(reply.body, prompt, where)


def _completes(client: EndpointClient, model: str, reasons: dict[str, str]) -> tuple[Mapping[str, Any], bool]:
    said = ""
    for extras in _PLAIN:
        reply = _tried(client, "/completions", request(model, TEXT, 1, extras))
        if isinstance(reply, Reply) and reply.ok:
            as_completion(reply.body, f"the endpoint {client.url}")
            return extras, True
        said = reply.words or f"status {reply.status}" if isinstance(reply, Reply) else reply
    reasons["text"] = f"/completions: {said}"
    return {}, False


def _chats(client: EndpointClient, model: str, reasons: dict[str, str]) -> bool:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 1,
        "temperature": 0,
    }
    reply = _tried(client, "/chat/completions", body)
    if isinstance(reply, Reply) and reply.ok:
        try:
            as_chat(reply.body, client.url)
            return True
        except WorkerError as error:
            reply = error.message
    reasons["chat"] = reply if isinstance(reply, str) else reply.words or f"status {reply.status}"
    return False


def _takes_ids(
    client: EndpointClient, model: str, extras: Mapping[str, Any], reasons: dict[str, str]
) -> bool:
    """Whether a prompt of token ids is taken as such: as many tokens as were sent, where it counts them."""
    reply = _tried(client, "/completions", request(model, IDS, 1, extras))
    if isinstance(reply, str) or not reply.ok:
        reasons["ids"] = reply if isinstance(reply, str) else reply.words or f"status {reply.status}"
        return False
    counted = as_completion(reply.body, client.url).prompt_tokens
    if counted is not None and counted != len(IDS):
        reasons["ids"] = f"it makes {counted} tokens of {len(IDS)} ids"
        return False
    return True


def _logprobs(
    client: EndpointClient, model: str, extras: Mapping[str, Any], ids: bool, reasons: dict[str, str]
) -> tuple[str, int, int]:
    """How, how many and with which shift a prompt's log-probabilities come."""
    said = ""
    for how in ("prompt_logprobs", "echo"):
        for top in _TOP:
            reply = _tried(client, "/completions", logprobs_request(how, top, model, TEXT, extras))
            if isinstance(reply, str) or not reply.ok:
                said = reply if isinstance(reply, str) else reply.words or f"status {reply.status}"
                continue
            try:
                read_logprobs(how, reply, TEXT, client.url)
            except WorkerError as error:
                said = error.message
                break
            shift = _shift(client, how, model, extras)
            if shift is None:
                reasons["prompt_logprobs"] = "they contradict what it says greedily, at whichever position"
                return "", 0, 0
            if shift:
                reasons["alignment"] = "its lists stand one position too early; they are read so"
            return how, top, shift
    reasons["prompt_logprobs"] = said or "it gives none"
    return "", 0, 0


def _shift(client: EndpointClient, how: str, model: str, extras: Mapping[str, Any]) -> int | None:
    """By how many positions its lists stand too early, by its own words; None: neither 0 nor 1.

    What it says greedily must be the likeliest token of each position when it is a prompt.
    """
    where = client.url
    said = _must(client.post("/completions", request(model, TEXT, _TRIED, extras)), where)
    longer = TEXT + as_completion(said.body, where).text
    plain, positions = (
        read_logprobs(
            how, client.post("/completions", logprobs_request(how, 1, model, text, extras)), text, where
        )
        for text in (TEXT, longer)
    )
    first, last = len(plain), len(positions)
    shares = {}
    for shift in (0, 1):
        pairs = [
            (positions[place].given, positions[place - shift].best)
            for place in range(first, last)
            if place - shift > 0
        ]
        shares[shift] = sum(given == best for given, best in pairs) / len(pairs) if pairs else 0.0
    # Tokens of prompt and continuation may merge where they meet, and a near-tie may fall otherwise; a text
    # that repeats one token fits either way, and lists stand in their place unless something shows otherwise.
    best = max(shares, key=lambda shift: (shares[shift], -shift))
    return best if shares[best] >= _SURE else None


def _must(reply: Reply, where: str) -> Reply:
    if not reply.ok:
        raise wrong(where, reply.words)
    return reply


def _tried(client: EndpointClient, path: str, body: Mapping[str, Any]) -> Reply | str:
    """The reply; or what the server said where it fell over the request, as some do over what they lack."""
    try:
        return client.post(path, body)
    except WorkerError as error:
        if error.code in ("E612", "E613", "E614"):
            return error.message
        raise

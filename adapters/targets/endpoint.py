"""A model behind an OpenAI-compatible server: `endpoint?url=http://host:8000/v1&model=NAME`.

The one target without a worker: what executes is a process of somebody else's already, and the key for it
must not reach a worker's environment.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from day0.adapters.base.errors import InputError, UnsupportedError, WorkerError
from day0.adapters.base.target import TARGET_API, Device, Generation, TargetDescription
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Anomaly, Fingerprint

from .endpoint_answers import Completion, Position, as_chat, as_completion, wrong
from .endpoint_client import EndpointClient, Reply
from .endpoint_probe import Offer, logprobs_request, probe, read_logprobs, request
from .refusing import Refusing

if TYPE_CHECKING:
    import httpx

STACK = "endpoint"
KEY_VARIABLE = "DAY0_ENDPOINT_KEY"
_OPTIONS = ("url", "model", "key_env")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_LISTED = ("owned_by", "root", "parent", "max_model_len", "quantization", "dtype")
"""What servers say of a model beside its name; times and permissions change from start to start."""
_SAYS = 120
_VERSIONS = (("//version", "version"), ("//get_server_info", "version"), ("//props", "build_info"))
"""Of vLLM, SGLang and llama.cpp."""


@dataclass(frozen=True)
class Prompt:
    """What is continued or scored.

    Attributes:
        text: as it stands.
        ids: the same as token ids, with what the tokenizer puts before a text.
    """

    text: str
    ids: Sequence[int]


class EndpointTarget(Refusing):
    """A served model; what it can do is tried with the first call of `describe`.

    Args:
        spec: with the options `url`, `model` (may be missing where only one is served) and `key_env` (name of
            the variable that holds the key).
        timeout: seconds that one answer may take.
        transport: see `EndpointClient`.

    Attributes:
        spec: see above.
        timeout: see above.
        pid: None, as log, worker_peak_bytes and starts are empty: the server is not ours.

    Raises:
        InputError: E185, the options do not name an address; E145, the address holds credentials.
    """

    pid: int | None = None
    log: Sequence[str] = ()
    worker_peak_bytes = 0
    starts = 0

    def __init__(
        self, spec: TargetSpec, timeout: float, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.spec = spec
        self._client = EndpointClient(_address(spec), timeout=timeout, key=_key(spec), transport=transport)
        self._offer: Offer | None = None
        self._description: TargetDescription | None = None

    def __enter__(self) -> EndpointTarget:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def timeout(self) -> float:
        """See `Target`."""
        return self._client.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._client.timeout = seconds

    @property
    def offer(self) -> Offer:
        """What the server can do.

        Raises:
            WorkerError: it cannot be reached, or serves no such model.
        """
        if self._offer is None:
            self._offer = probe(self._client, self.spec.options.get("model", ""))
        return self._offer

    def describe(self) -> TargetDescription:
        """See `Target`."""
        if self._description is None:
            offer = self.offer
            self._description = TargetDescription(
                api=TARGET_API,
                capabilities=offer.capabilities,
                dtypes={},
                devices=[Device(name=f"{self._client.url} {offer.model}")],
                fingerprint=self._fingerprint(offer),
                anomalies=[
                    Anomaly(code="endpoint_lacks", subject=what, message=f"{self.spec}: {what}: {why}")
                    for what, why in sorted(offer.reasons.items())
                ],
            )
        return self._description

    def reset(self) -> None:
        """Forgets what the server can do: the next call learns it anew."""
        self._offer = self._description = None

    def complete(self, prompt: Prompt, new_tokens: int) -> Completion:
        """A greedy continuation of the prompt as it stands; of a server that only chats, of one message.

        Raises:
            UnsupportedError: E501, it does neither.
            WorkerError: it failed, or answered something else.
        """
        offer = self.offer
        where = f"the endpoint {self._client.url}"
        if not offer.text and offer.chat:
            body = {
                "model": offer.model,
                "messages": [{"role": "user", "content": prompt.text}],
                "max_tokens": new_tokens,
                "temperature": 0,
            }
            return as_chat(self._done(self._client.post("/chat/completions", body)), where)
        if not offer.text:
            self.refuse("generate")
        body = request(offer.model, self._sent(prompt), new_tokens, offer.extras)
        found = as_completion(self._done(self._client.post("/completions", body)), where)
        if found.ids is not None and len(found.ids) > new_tokens:
            raise wrong(where, f"{len(found.ids)} tokens where {new_tokens} were asked for")
        return found

    def prompt_logprobs(self, prompt: Prompt) -> Sequence[Position]:
        """What the server says of each token of the prompt, by position; nothing of the first.

        Distributions that a server lists one position too early are put in their place; the log-probability
        of the given token is then only known where it is among the likeliest.

        Raises:
            UnsupportedError: E501, it gives none.
            WorkerError: it failed, or answered something else.
        """
        offer = self.offer
        if not offer.logprobs:
            self.refuse("prompt_logprobs")
        body = logprobs_request(offer.logprobs, offer.top, offer.model, self._sent(prompt), offer.extras)
        reply = self._client.post("/completions", body)
        found = read_logprobs(offer.logprobs, reply, prompt.text, self._client.url)
        if offer.shift:
            found = _shifted(found)
        first = found[0].given if found else None
        if len(found) == len(prompt.ids) - 1 and isinstance(first, str) and prompt.text.startswith(first):
            found.insert(0, Position(prompt.ids[0]))  # the token before the text, which is not listed
        return found

    def generate(self, tokens: Sequence[Sequence[int]], *, new_tokens: int) -> Generation:
        """See `Target`; only of a server that takes and returns token ids."""
        if not self.offer.ids:
            self.refuse("generate from token ids")
        began, first, rows = time.perf_counter(), 0.0, []
        for row in tokens:
            found = self.complete(Prompt("", row), new_tokens)
            if found.ids is None:
                self.refuse("return token ids")
            first = first or time.perf_counter() - began
            rows.append(found.ids)
        return Generation(rows, first, time.perf_counter() - began, 0)

    def close(self) -> None:
        """Closes the connections; the server goes on."""
        self._client.close()

    def _sent(self, prompt: Prompt) -> str | Sequence[int]:
        return list(prompt.ids) if self.offer.ids else prompt.text

    def _done(self, reply: Reply) -> Any:
        if not reply.ok:
            raise WorkerError(
                f"the endpoint {self._client.url} refuses a request with status {reply.status}: "
                f"{reply.words}",
                code="E612",
            )
        return reply.body

    def refuse(self, capability: str) -> NoReturn:
        """See `Refusing`."""
        offered = ", ".join(self.describe().capabilities) or "nothing"
        why = self.offer.reasons.get(capability, "")
        raise UnsupportedError(
            f"{self.spec} does not claim to do {capability!r}, only {offered}{f' ({why})' if why else ''}",
            code="E501",
        )

    def _fingerprint(self, offer: Offer) -> Fingerprint:
        """Of what the server says of itself: name and version where it tells them, the model as listed."""
        exact = {"url": self._client.url, "model": offer.model}
        exact |= {
            f"model {key}": str(offer.listed[key])[:_SAYS]
            for key in _LISTED
            if offer.listed.get(key) not in (None, "")
        }
        if offer.headers.get("server"):
            exact["server"] = offer.headers["server"][:_SAYS]
        version = self._version()
        if version:
            exact["version"] = version
        name = exact.get("model owned_by", "") or exact.get("server", "unknown")
        parts = [f"endpoint {name}", ".".join(version.split(".")[:2])]
        return Fingerprint(family=" ".join(part for part in parts if part), exact=exact)

    def _version(self) -> str:
        """What servers answer at addresses of their own; empty where nothing is said."""
        for path, key in _VERSIONS:
            try:
                reply = self._client.get(path)
            except WorkerError:
                continue
            said = reply.body.get(key) if reply.ok and isinstance(reply.body, dict) else None
            if isinstance(said, str) and said:
                return said[:_SAYS]
        return ""


def _shifted(found: Sequence[Position]) -> list[Position]:
    """Positions whose distributions stand with the token before, put in their place."""
    moved = [Position(found[0].given)] if found else []
    for before, here in pairwise(found):
        # The list of a position also holds the token that stands there, whatever its rank.
        moved.append(Position(here.given, before.top.get(here.given, float("nan")), before.top))
    return moved


def _address(spec: TargetSpec) -> str:
    unknown = sorted(set(spec.options) - set(_OPTIONS))
    if unknown:
        raise _unusable(spec, f"has the option {unknown[0]!r}, which is none of {', '.join(_OPTIONS)}")
    url = spec.options.get("url", "")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or re.search(r"[\s\x00-\x1f\x7f]", url):
        raise _unusable(spec, f"names no address: url={url[:200]!r}" if url else "names no address")
    if parts.username is not None or parts.password is not None:
        raise InputError(
            f"the address of the endpoint {parts.hostname} holds credentials",
            code="E145",
            remedy=f"Leave them out and set {KEY_VARIABLE}.",
        )
    return url


def _key(spec: TargetSpec) -> str:
    """The key out of the environment; it stands in no option, record or log."""
    variable = spec.options.get("key_env", KEY_VARIABLE)
    if not _VARIABLE.fullmatch(variable):
        raise _unusable(spec, "names with key_env something that cannot be a variable")
    key = os.environ.get(variable, "").strip()
    if "key_env" in spec.options and not key:
        raise _unusable(spec, f"names the variable {variable}, which is not set")
    if not (key.isascii() and (key.isprintable() or not key)):
        raise _unusable(spec, f"takes its key from {variable}, whose value cannot be one")
    return key


def _unusable(spec: TargetSpec, reason: str) -> InputError:
    return InputError(
        f"the target {spec.stack} {reason}",
        code="E185",
        remedy="Write endpoint?url=http://host:8000/v1&model=NAME; see docs/endpoint.md.",
    )

"""An OpenAI-compatible server over a function of tokens, in this process.

It answers as vLLM does, or llama.cpp's Python server, or one that chats only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import torch
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers

from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.models.tokenizer import Tokenizer
from day0.adapters.targets.endpoint import EndpointTarget

URL = "http://127.0.0.1:9/v1"
Logits = Callable[[Sequence[int]], torch.Tensor]

_KNOWN = """the sun rises in east and sets west moon river old stone house tall tree small bird sings at dawn
over green hills while wind blows cold rain falls on quiet roads near town where people sleep"""
WORDS = _KNOWN.split()


def tokenizer() -> Tokenizer:
    """Each word with the space before it is a token, as are single letters."""
    known = {letter: place for place, letter in enumerate("?ĠabcdefghijklmnopqrstuvwxyzTS.")}
    for word in ("The", *WORDS):
        known.setdefault(f"Ġ{word}", len(known))
    known.setdefault("The", len(known))
    made = FastTokenizer(models.WordLevel(known, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    made.decoder = decoders.ByteLevel()
    return Tokenizer(made)


VOCABULARY = 31 + len(WORDS) + 2


def bigram(seed: int = 1, spread: float = 3.0, words_only: bool = True) -> Logits:
    """A language model that looks at one token back; deterministic."""
    drawn = torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * spread
    if words_only:
        drawn[:, [*range(31), VOCABULARY - 1]] -= 30  # what would merge with the word before it
    return lambda ids: drawn[torch.tensor(list(ids))]


@dataclass
class Served:
    """Answers requests; see the fields for what it can and cannot."""

    logits: Logits
    takes_ids: bool = True
    returns_ids: bool = True
    style: str = "prompt_logprobs"  # or `echo`, `shifted`, ``
    chat: bool = True
    text: bool = True
    strict: bool = False
    first: Sequence[int] = ()
    hidden: int = 0  # tokens at the start that `echo` does not list
    names: Sequence[str] = ("served",)
    seen: list[httpx.Request] = field(default_factory=list)
    words: Tokenizer = field(default_factory=tokenizer)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        path = request.url.path
        if path == "/v1/models":
            listed = [{"id": name, "owned_by": "tests", "created": 7} for name in self.names]
            return httpx.Response(200, json={"data": listed}, headers={"server": "stand-in"})
        if path == "/version":
            return httpx.Response(200, json={"version": "1.2.3"})
        body = json.loads(request.content) if request.content else {}
        if path == "/v1/completions" and self.text:
            return self._complete(body)
        if path == "/v1/chat/completions" and self.chat:
            return httpx.Response(200, json={"choices": [{"message": {"content": "Hi"}}]})
        return httpx.Response(404, json={"detail": "Not Found"})

    def target(self, options: str = "&model=served") -> EndpointTarget:
        spec = TargetSpec.parse(f"endpoint?url={URL}{options}")
        return EndpointTarget(spec, 30.0, transport=httpx.MockTransport(self))

    def _complete(self, body: dict[str, Any]) -> httpx.Response:
        known = {"model", "prompt", "max_tokens", "temperature", "top_p", "seed", "echo", "logprobs"}
        if self.strict and set(body) - known:
            return httpx.Response(422, json={"detail": f"unknown fields {sorted(set(body) - known)}"})
        prompt = body["prompt"]
        if isinstance(prompt, list) and not self.takes_ids:
            return httpx.Response(400, json={"error": {"message": "prompt must be a string"}})
        ids = list(prompt) if isinstance(prompt, list) else list(self.words.encode(prompt, special=False))
        ids = [*self.first, *ids] if isinstance(prompt, str) else ids
        said: list[int] = []
        for _ in range(body["max_tokens"]):
            said.append(int(self.logits([*ids, *said])[-1].argmax()))
        choice: dict[str, Any] = {"index": 0, "text": self._text(ids, said), "finish_reason": "length"}
        if self.returns_ids and body.get("return_token_ids"):
            choice |= {"token_ids": said, "prompt_token_ids": ids}
        if "prompt_logprobs" in body and self.style == "prompt_logprobs":
            choice["prompt_logprobs"] = self._by_ids(ids, body["prompt_logprobs"])
        if body.get("echo"):
            if self.style not in ("echo", "shifted"):
                return httpx.Response(400, json={"message": "echo is not supported"})
            choice["logprobs"] = self._by_texts(ids, said, body["logprobs"])
        usage = {"prompt_tokens": len(ids), "completion_tokens": len(said)}
        return httpx.Response(200, json={"choices": [choice], "usage": usage})

    def _by_ids(self, ids: Sequence[int], top: int) -> list[Any]:
        rows: list[Any] = [None]
        for place, row in enumerate(self.logits(ids).log_softmax(1)[:-1]):
            best = row.topk(top).indices.tolist()
            wanted = dict.fromkeys([ids[place + 1], *best])
            rows.append({str(token): {"logprob": float(row[token]), "rank": 1} for token in wanted})
        return rows

    def _by_texts(self, ids: Sequence[int], said: Sequence[int], top: int) -> dict[str, Any]:
        tokens = [*ids, *said]
        log = self.logits(tokens).log_softmax(1)
        texts = [self._text(tokens[:place], [token]) for place, token in enumerate(tokens)]
        own: list[Any] = [None]
        lists: list[Any] = [None]
        for place in range(1, len(tokens)):
            row = log[place if self.style == "shifted" else place - 1]
            own.append(float(row[tokens[place]]))
            best = [*row.topk(top).indices.tolist(), tokens[place]]
            lists.append({self._text([tokens[0]], [token]): float(row[token]) for token in best})
        parts = {"tokens": texts, "token_logprobs": own, "top_logprobs": lists}
        return {key: value[self.hidden :] for key, value in parts.items()}

    def _text(self, before: Sequence[int], said: Sequence[int]) -> str:
        return self.words.decode([*before, *said])[len(self.words.decode(before)) :]

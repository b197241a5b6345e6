from __future__ import annotations

import math
from typing import Any

import pytest

from day0.adapters.base.errors import WorkerError
from day0.adapters.targets.endpoint_answers import as_chat, as_completion, as_echo, as_prompt_logprobs


def choice(**parts: Any) -> dict[str, Any]:
    return {"choices": [{"text": "x", **parts}]}


def test_a_completion() -> None:
    body = choice(token_ids=[3, 4], finish_reason="stop") | {
        "usage": {"prompt_tokens": 5, "completion_tokens": 2}
    }
    found = as_completion(body, "server")
    assert (found.text, found.ids, found.prompt_tokens, found.generated, found.finish) == (
        "x",
        (3, 4),
        5,
        2,
        "stop",
    )
    bare = as_completion(choice(token_ids=[]), "server")
    assert (bare.ids, bare.prompt_tokens, bare.generated) == (None, None, None)
    odd = choice(token_ids=[1, -1]) | {"usage": {"prompt_tokens": True}}
    assert as_completion(odd, "server").ids is None
    assert as_completion(odd, "server").prompt_tokens is None


@pytest.mark.parametrize("body", [None, 3, [], {}, {"choices": []}, {"choices": {}}, {"choices": [[]]},
                                  {"choices": [{"text": 3}]}])  # fmt: skip
def test_what_is_no_completion(body: Any) -> None:
    with pytest.raises(WorkerError, match="E614"):
        as_completion(body, "server")
    with pytest.raises(WorkerError, match="E614"):
        as_chat(body, "server")


def test_prompt_logprobs_by_id() -> None:
    rows = [None, {"7": {"logprob": -2.0, "rank": 4}, "3": {"logprob": -0.5}}, {"4": -1.0}]
    first, second, third = as_prompt_logprobs(
        choice(prompt_logprobs=rows, prompt_token_ids=[1, 7, 4]), "server"
    )
    assert (first.given, first.top) == (1, {})
    assert (second.given, second.logprob, second.best) == (7, -2.0, 3)
    assert (third.given, third.logprob) == (4, -1.0)
    # Without ids the given token is the first of each map, as vLLM writes it.
    assert as_prompt_logprobs(choice(prompt_logprobs=rows), "server")[1].given == 7
    rare = as_prompt_logprobs(choice(prompt_logprobs=[None, {"5": float("-inf")}]), "server")
    assert rare[1].logprob == -math.inf


@pytest.mark.parametrize(
    "rows",
    [
        None,
        [],
        {},
        [None, None],
        [None, {}],
        [None, {"a": {"logprob": -1}}],
        [None, {"-1": {"logprob": -1}}],
        [None, {"9" * 12: {"logprob": -1}}],
        [None, {"1": {"logprob": float("nan")}}],
        [None, {"1": {"logprob": "-1"}}],
        [None, {"1": {"logprob": 0.5}}],
        [None, {"1": {"logprob": True}}],
        [None, {"1": {}}],
        [None, {"1": -0.1, "2": -0.1}],
        [None, {str(token): -20.0 for token in range(5000)}],
    ],
    ids=range(15),
)
def test_hostile_prompt_logprobs(rows: Any) -> None:
    with pytest.raises(WorkerError, match="E614"):
        as_prompt_logprobs(choice(prompt_logprobs=rows), "server")


def test_echo_by_text() -> None:
    held = {
        "tokens": ["a", " b", "token_id:9", " d"],
        "token_logprobs": [None, -1.0, -2.0, -0.1],
        "top_logprobs": [None, {" b": -1.0, " c": -0.6}, {"token_id:9": -2.0}, {" d": -0.1}],
    }
    found = as_echo(choice(logprobs=held), "a b?", "server")
    assert [position.given for position in found] == ["a", " b", 9]
    assert math.isnan(found[0].logprob)
    assert found[1].best == " c"


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": None},
        {"tokens": ["a"]},
        {"tokens": ["a", 3]},
        {"tokens": ["a", "b" * 2000]},
        {"token_logprobs": [None]},
        {"token_logprobs": [None, float("nan")]},
        {"token_logprobs": [None, 3.0]},
        {"top_logprobs": [None, [1]]},
        {"top_logprobs": [None, {"a": "b"}]},
        {"top_logprobs": [None, {"a": -0.01, "c": -0.01}]},
    ],
    ids=range(10),
)
def test_hostile_echo(change: dict[str, Any]) -> None:
    held: dict[str, Any] = {
        "text_offset": [0, 1],
        "tokens": ["a", "b"],
        "token_logprobs": [None, -1.0],
        "top_logprobs": [None, {"b": -1.0}],
    }
    assert len(as_echo(choice(logprobs=held), "ab", "server")) == 2
    with pytest.raises(WorkerError, match="E614"):
        as_echo(choice(logprobs=held | change), "ab", "server")


@pytest.mark.parametrize(
    ("prompt", "parts", "count"),
    [
        ("a b", {"text_offset": [0, 1, 3]}, 2),
        ("a b c", {"text_offset": [0, 1, 3]}, 3),  # the completion's token is left out
        ("a b", {"text_offset": [0, 3, 1]}, 2),  # offsets that cannot be: by the texts
        ("a b", {"text_offset": ["x", 1, 3]}, 2),
        ("a b", {}, 2),
        ("", {}, 2),
        ("something else", {}, 2),
    ],
)
def test_where_the_prompt_ends_in_what_is_listed(prompt: str, parts: dict[str, Any], count: int) -> None:
    held = {
        "tokens": ["a", " b", " c"],
        "token_logprobs": [None, -1.0, -1.0],
        "top_logprobs": [None, None, None],
    }
    assert len(as_echo(choice(logprobs=held | parts), prompt, "server")) == count

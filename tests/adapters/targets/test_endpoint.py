from __future__ import annotations

import json
from typing import Any

import pytest

from day0.adapters.base.errors import InputError, UnsupportedError, WorkerError
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.endpoint import EndpointTarget, Prompt
from day0.adapters.targets.kept_description import environment_of
from day0.adapters.targets.open import open_target
from support.served import URL, Served, bigram, tokenizer

TEXT = "The sun rises in the east and sets in the west"
IDS = tokenizer().encode(TEXT, special=False)


@pytest.mark.parametrize(
    ("served", "how", "shift", "ids", "top"),
    [
        (Served(bigram()), "prompt_logprobs", 0, True, 20),
        (Served(bigram(), style="echo", takes_ids=False, returns_ids=False), "echo", 0, False, 20),
        (Served(bigram(), style="shifted", strict=True), "echo", 1, True, 20),
        (Served(bigram(), style=""), "", 0, True, 0),
    ],
    ids=["as vLLM", "texts alone", "one position too early, strict", "none"],
)
def test_what_a_server_can_do_is_found_by_trying(
    served: Served, how: str, shift: int, ids: bool, top: int
) -> None:
    offer = served.target().offer
    assert (offer.logprobs, offer.shift, offer.ids, offer.top, offer.text, offer.chat) == (
        how, shift, ids, top, True, True,
    )  # fmt: skip
    assert len(served.seen) < 15
    assert all(json.loads(request.content)["temperature"] == 0 for request in served.seen if request.content)


def test_the_description_names_what_the_server_says_of_itself() -> None:
    with Served(bigram(), style="").target("") as target:
        description = target.describe()
    assert description.capabilities == ["generate"]
    assert description.fingerprint.family == "endpoint tests 1.2"
    assert description.fingerprint.exact == {
        "url": URL, "model": "served", "model owned_by": "tests", "server": "stand-in", "version": "1.2.3",
    }  # fmt: skip
    (anomaly,) = description.anomalies
    assert (anomaly.subject, "echo is not supported" in anomaly.message) == ("prompt_logprobs", True)


def test_a_model_has_to_be_named_where_there_are_several() -> None:
    with pytest.raises(WorkerError, match=r"lists 2 models \(a, b\).*E616"):
        _ = Served(bigram(), names=("b", "a")).target("").offer


def test_a_server_that_contradicts_itself_is_not_believed() -> None:
    served = Served(bigram())
    other = bigram(seed=5)

    def answers(request: Any) -> Any:
        body = json.loads(request.content or b"{}")
        served.logits = other if "prompt_logprobs" in body or "echo" in body else bigram()
        return Served.__call__(served, request)

    import httpx

    spec = TargetSpec.parse(f"endpoint?url={URL}&model=served")
    offer = EndpointTarget(spec, 5.0, transport=httpx.MockTransport(answers)).offer
    assert (offer.logprobs, offer.capabilities) == ("", ["generate"])
    assert "contradict" in offer.reasons["prompt_logprobs"]


@pytest.mark.parametrize("style", ["prompt_logprobs", "echo", "shifted"])
def test_log_probabilities_are_those_of_the_model_whatever_the_form(style: str) -> None:
    model = bigram()
    positions = Served(model, style=style).target().prompt_logprobs(Prompt(TEXT, IDS))
    log = model(IDS).log_softmax(1)
    assert len(positions) == len(IDS)
    spelt = {tokenizer().decode([IDS[0], token])[3:]: token for token in range(70)}
    for place, position in enumerate(positions[1:], start=1):
        row = log[place - 1]
        if style == "shifted" and place == 1:  # such a server says nothing of the first token, where this is
            assert position.top == {}
            continue
        named = [key if isinstance(key, int) else spelt[key] for key in position.top]
        assert row.topk(20).indices[0] in named
        if style != "shifted" or IDS[place] in row.topk(20).indices:
            assert position.logprob == pytest.approx(float(row[IDS[place]]), abs=1e-5)


def test_greedy_tokens_by_ids_and_by_text() -> None:
    model = bigram()
    found = Served(model).target().complete(Prompt(TEXT, IDS), 4)
    expected: list[int] = []
    for _ in range(4):
        expected.append(int(model([*IDS, *expected])[-1].argmax()))
    assert list(found.ids or ()) == expected
    assert Served(model).target().generate([IDS], new_tokens=4).tokens == [tuple(expected)]
    plain = (
        Served(model, takes_ids=False, returns_ids=False, strict=True).target().complete(Prompt(TEXT, IDS), 4)
    )
    assert (plain.ids, plain.text, plain.prompt_tokens) == (None, found.text, len(IDS))


def test_a_server_that_chats_only() -> None:
    target = Served(bigram(), text=False).target()
    assert target.describe().capabilities == ["generate"]
    assert target.complete(Prompt("Hi", (1,)), 3).text == "Hi"
    with pytest.raises(UnsupportedError, match="completes no plain text"):
        target.prompt_logprobs(Prompt("Hi", (1,)))


def test_what_a_server_does_not_do_is_refused() -> None:
    target = Served(bigram()).target()
    with pytest.raises(UnsupportedError, match=r"'model'.*E501"):
        target.score([[1]])
    with pytest.raises(UnsupportedError, match=r"'collectives'.*E501"):
        target.launch(2, {})


def test_more_tokens_than_asked_for_are_refused() -> None:
    served = Served(bigram())
    target = served.target()
    _ = target.offer

    class Chatty(dict[str, Any]):
        """Asks for twelve tokens whatever the request says."""

        def __getitem__(self, key: str) -> Any:
            return 12 if key == "max_tokens" else super().__getitem__(key)

    complete = served._complete
    served._complete = lambda body: complete(Chatty(body))  # type: ignore[method-assign]  # a server at fault
    with pytest.raises(WorkerError, match="12 tokens where 2 were asked for"):
        target.complete(Prompt(TEXT, IDS), 2)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("", "E185"),
        ("?model=a", "E185"),
        ("?url=", "E185"),
        ("?url=ftp://host/v1", "E185"),
        ("?url=http://", "E185"),
        ("?url=http://host:99999/v1", "E185"),
        ("?url=http://host:x/v1", "E185"),
        ("?url=http://[::1/v1", "E185"),
        ("?url=http://host/v1%3Fa=b", "E185"),
        ("?url=http://ho%0Ast/v1", "E185"),
        ("?url=http://host/v1&timeout=3", "E185"),
        ("?url=http://host/v1&key_env=a-b", "E185"),
        ("?url=http://host/v1&key_env=DAY0_NOT_SET", "E185"),
        ("?url=http://user:secret@host/v1", "E145"),
        ("?url=http://token@host/v1", "E145"),
    ],
)
def test_options_that_cannot_be_used(options: str, code: str) -> None:
    with pytest.raises(InputError) as caught:
        open_target(TargetSpec.parse(f"endpoint{options}"))
    assert caught.value.code == code
    assert "secret" not in str(caught.value)


def test_the_key_comes_from_the_environment_and_stands_in_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAY0_ENDPOINT_KEY", "s3cret")
    served = Served(bigram())
    target = served.target()
    assert "s3cret" not in f"{target.describe()} {target.spec} {target.offer}"
    assert {request.headers["authorization"] for request in served.seen} == {"Bearer s3cret"}
    monkeypatch.setenv("MINE", "other")
    served = Served(bigram())
    _ = served.target("&model=served&key_env=MINE").offer
    assert served.seen[0].headers["authorization"] == "Bearer other"
    for bad in ("a\nb", "schlüssel", "a\x00b"):
        monkeypatch.setattr("os.environ", {"MINE": bad})
        with pytest.raises(InputError, match="whose value cannot be one"):
            served.target("&key_env=MINE")


def test_the_grammar_names_no_device_and_its_description_is_never_kept() -> None:
    spec = TargetSpec.parse(f"endpoint/bf16?url={URL}&model=org/name")
    assert str(spec) == f"endpoint/bf16?model=org/name&url={URL}"
    assert TargetSpec.parse(str(spec)) == spec
    assert environment_of(spec) == ""


def test_a_first_token_that_is_not_listed_keeps_its_place() -> None:
    served = Served(bigram(), style="echo", takes_ids=False, returns_ids=False, first=[69], hidden=1)
    positions = served.target().prompt_logprobs(Prompt(TEXT, (69, *IDS)))
    assert len(positions) == 1 + len(IDS)
    log = bigram()([69, *IDS]).log_softmax(1)
    assert positions[0].given == 69
    assert positions[1].given == "The"
    assert positions[4].logprob == pytest.approx(float(log[3, IDS[3]]), abs=1e-5)

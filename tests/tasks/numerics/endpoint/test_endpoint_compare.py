from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from day0.adapters.targets.endpoint import Prompt
from day0.adapters.targets.endpoint_answers import Position
from day0.tasks.numerics.endpoint.endpoint_ask import Ask
from day0.tasks.numerics.endpoint.endpoint_compare import compare_endpoint
from day0.tasks.numerics.endpoint.endpoint_scores import compare_positions, spellings
from day0.tasks.numerics.trust.following import Arms
from support.served import VOCABULARY, Logits, Served, bigram, tokenizer

WORDS = tokenizer()
TEXTS = (
    "The sun rises in the east and sets in the",
    "The old stone house",
    "The wind blows cold over green hills",
)
ASKS = [Ask(text.split()[1], Prompt(text, WORDS.encode(text, special=False))) for text in TEXTS]
MODEL = bigram()
FORMS: dict[str, dict[str, Any]] = {
    "ids": {},
    "echo": {"style": "echo", "takes_ids": False, "returns_ids": False},
    "shifted": {"style": "shifted", "takes_ids": False, "returns_ids": False, "strict": True},
}


def lowered(ids: Sequence[int]) -> torch.Tensor:
    return MODEL(ids).bfloat16().float()


ARMS = Arms(MODEL, lowered)


def codes(served: Served) -> list[str]:
    return [finding.code for finding in compare_endpoint(served.target(), ASKS, WORDS, ARMS, 6).findings]


@pytest.mark.parametrize("form", FORMS)
def test_the_same_model_agrees_whatever_the_form(form: str) -> None:
    found = compare_endpoint(Served(lowered, **FORMS[form]).target(), ASKS, WORDS, ARMS, 6)
    assert [finding.code for finding in found.findings] == (["NUM025"] if form == "shifted" else [])
    assert found.logits is not None
    assert found.decode is not None
    assert found.says is not None
    assert found.says.agree
    assert (found.decode.top1, found.decode.decisive, found.decode.positions) == (1.0, 0, 18)
    positions = sum(len(ask.prompt.ids) - 1 for ask in ASKS)
    assert found.logits.positions == positions - (
        3 if form == "shifted" else 0
    )  # nothing of the second token
    assert (found.logits.top1, found.logits.decisive) == (1.0, 0)
    assert 0 <= float(found.logits.kl) < 1e-3
    assert float(found.logits.top5) > 0.95
    assert [prompt.name for prompt in found.logits.prompts] == ["sun", "old", "wind"]
    if form != "shifted":
        assert found.nats == pytest.approx(found.reference_nats, rel=1e-2)


@pytest.mark.parametrize("form", FORMS)
def test_another_model_is_told_by_its_words_and_by_its_probabilities(form: str) -> None:
    found = compare_endpoint(Served(bigram(seed=2), **FORMS[form]).target(), ASKS, WORDS, ARMS, 6)
    told = [finding for finding in found.findings if finding.code == "NUM022"]
    assert [finding.subject.name.split("?")[0] for finding in told] == ["endpoint", "prompt_logprobs"]
    assert found.decode is not None
    assert found.decode.decisive == 3
    assert found.logits is not None
    assert found.logits.decisive > 10
    assert float(found.logits.kl) > 0.5
    assert found.says is not None
    assert not found.says.agree
    assert "margin" in told[0].message


def test_a_near_tie_is_no_finding() -> None:
    """Two tokens that only rounding tells apart."""
    tied = MODEL([*range(VOCABULARY)]).clone()
    best = tied.topk(2, dim=1).indices
    rows = torch.arange(VOCABULARY)
    tied[rows, best[:, 1]] = tied[rows, best[:, 0]] - 1e-3
    other = tied.clone()
    other[rows, best[:, 1]] += 2e-3

    def arm(table: torch.Tensor) -> Logits:
        return lambda ids: table[torch.tensor(list(ids))]

    arms = Arms(arm(tied), arm(tied.bfloat16().float()))
    found = compare_endpoint(Served(arm(other)).target(), ASKS, WORDS, arms, 6)
    assert found.findings == ()
    assert found.decode is not None
    assert (found.decode.top1, found.decode.decisive) == (0.0, 0)
    assert found.logits is not None
    assert (found.logits.top1, found.logits.decisive) == (0.0, 0)


def test_a_first_token_too_many_is_told_and_nothing_is_compared() -> None:
    served = Served(MODEL, takes_ids=False, returns_ids=False, style="echo", first=[69])
    found = compare_endpoint(served.target(), ASKS, WORDS, ARMS, 6)
    assert {finding.code for finding in found.findings} == {"NUM024"}
    assert "makes 11 tokens of it, 10 are right" in found.findings[0].message
    assert found.logits is None
    assert found.decode is None


def test_what_a_server_lacks_is_unverified() -> None:
    assert codes(Served(MODEL, style="")) == ["NUM023"]
    assert codes(Served(MODEL, text=False)) == ["NUM023", "NUM023"]


def test_one_walk_can_serve_all_prompts() -> None:
    asked: list[int] = []

    def many(sequences: Sequence[Sequence[int]]) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        asked.append(len(sequences))
        return [(MODEL(ids), lowered(ids)) for ids in sequences]

    def never(ids: Sequence[int]) -> torch.Tensor:
        raise AssertionError("one sequence alone")

    found = compare_endpoint(Served(lowered).target(), ASKS, WORDS, Arms(never, never, many), 6)
    assert asked == [3, 3]
    assert found.findings == ()


def test_kl_over_the_listed_and_the_rest_is_that_of_the_coarser_distributions() -> None:
    torch.manual_seed(4)
    ours, theirs = torch.randn(2, 30), torch.randn(30)
    log = theirs.double().log_softmax(0)
    top: dict[int | str, float] = {int(token): float(log[token]) for token in log.topk(4).indices}
    sums = compare_positions([Position(5), Position(9, float(log[9]), top)], [5, 9], ours, None, {})
    assert sums is not None
    p, q = ours[0].double().softmax(0), log.exp()
    listed = [int(token) for token in top]
    coarse_p = [*(float(p[token]) for token in listed), 1 - float(p[listed].sum())]
    coarse_q = [*(float(q[token]) for token in listed), 1 - float(q[listed].sum())]
    expected = sum(a * math.log(a / b) for a, b in zip(coarse_p, coarse_q, strict=True))
    assert sums.divergence == pytest.approx(expected, rel=1e-9)
    assert sums.divergence < float((p * (p.log() - log)).sum())
    ((served, own),) = sums.nats
    assert served == pytest.approx(-float(log[9]))
    assert own == pytest.approx(-float(p[9].log()))


def test_tokens_that_are_others_are_seen() -> None:
    logits = torch.zeros(2, 30)
    assert compare_positions([Position(5), Position(8, -1.0, {8: -1.0})], [5, 9], logits, None, {}) is None


def test_only_texts_of_one_token_name_it() -> None:
    names = spellings(WORDS, VOCABULARY)
    assert names[" sun"] == WORDS.encode("The sun", special=False)[1]
    assert names["The"] == VOCABULARY - 1
    assert "" not in names

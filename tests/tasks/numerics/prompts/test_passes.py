from __future__ import annotations

from typing import Any

import pytest

from day0.tasks import thresholds
from day0.tasks.numerics.prompts.passes import Model, Plan, plan_passes, unknown_names
from day0.tasks.numerics.prompts.tokens import Tokens

TEXT = tuple(range(100, 400))


def planned(config: dict[str, Any], wanted: str = "auto", **more: Any) -> Plan:
    given: dict[str, Any] = {"weights": 1000, "window": 0, "positions": True} | more
    return plan_passes(Model(config, **given), Tokens(tuple(range(128))), TEXT, wanted)


def test_a_small_model_with_a_long_context_runs_all_but_a_window() -> None:
    plan = planned({"max_position_embeddings": 8192})
    names = list(dict.fromkeys(step.group for step in plan.passes))
    assert names == ["texts", "decode", "padded", "shifted", "long"]
    assert list(plan.left_out) == ["window"]
    long = next(step for step in plan.passes if step.name == "long")
    assert long.tokens == 2048 >= thresholds.NUMERICS_LONG_TOKENS
    assert long.ids[0][:300] == TEXT
    assert long.ids[0][300] == TEXT[0]


def test_decoding_goes_on_where_the_main_prompt_ended() -> None:
    steps = [step for step in planned({}).passes if step.group == "decode"]
    assert [step.cached for step in steps] == list(range(128, 136))
    assert [step.ids for step in steps] == [((token,),) for token in TEXT[:8]]
    assert {step.mode for step in steps} == {"decode"}


def test_padding_is_on_the_left_on_the_right_and_on_both_sides_and_moves_no_position() -> None:
    step = next(step for step in planned({"pad_token_id": 7}).passes if step.name == "padded")
    assert step.mask is not None
    assert step.positions is not None
    left, right, both = step.mask
    assert (left[0], left[-1]) == (0, 1)
    assert (right[0], right[-1]) == (1, 0)
    assert (both[0], both[-1]) == (0, 0)
    for ids, mask, positions in zip(step.ids, step.mask, step.positions, strict=True):
        assert {token for token, kept in zip(ids, mask, strict=True) if not kept} == {7}
        kept = [position for position, token in zip(positions, mask, strict=True) if token]
        assert kept == list(range(sum(mask)))
    assert step.tokens == sum(map(sum, step.mask))


@pytest.mark.parametrize(("weights", "length"), [(800_000_000, 32), (2_000_000_000, 8)])
def test_short_prompts_are_shorter_where_a_token_meets_more_than_a_billion_weights(
    weights: int, length: int
) -> None:
    found = planned({"max_position_embeddings": 4096}, weights=weights).passes
    tokens = {step.name: step.tokens for step in found if step.name in ("padded", "shifted")}
    assert tokens == {"padded": 3 * length, "shifted": 3 * length}
    starts = next(step.positions for step in found if step.name == "shifted")
    assert starts is not None
    assert starts[-1][-1] == 4095


def test_shifted_positions_reach_the_last_one() -> None:
    step = next(step for step in planned({"max_position_embeddings": 4096}).passes if step.name == "shifted")
    assert step.positions is not None
    assert [row[0] for row in step.positions] == [1024, 2048, 4096 - 32]
    assert step.positions[-1][-1] == 4095


@pytest.mark.parametrize(
    ("config", "more", "name", "said"),
    [
        ({"max_position_embeddings": 512}, {}, "long", "longest context is 512"),
        ({"max_position_embeddings": 64}, {}, "shifted", "longest context is 64"),
        ({}, {}, "shifted", "not stated"),
        ({"max_position_embeddings": 8192}, {"positions": False}, "shifted", "no position ids"),
        ({"max_position_embeddings": 8192}, {"weights": 10**9}, "long", "--prompts all"),
        ({"max_position_embeddings": 4096}, {"window": 4096}, "window", "not shorter"),
    ],
)
def test_what_does_not_run_says_why(
    config: dict[str, Any], more: dict[str, Any], name: str, said: str
) -> None:
    plan = planned(config, **more)
    assert said in plan.left_out[name]
    assert name not in [step.group for step in plan.passes]


def test_a_window_is_passed_by_a_chunk() -> None:
    step = next(step for step in planned({}, window=256).passes if step.name == "window")
    assert step.tokens == 256 + thresholds.NUMERICS_CHUNK_TOKENS


def test_names_choose_and_unknown_ones_are_told() -> None:
    plan = planned({"max_position_embeddings": 8192}, "padded, long", weights=10**12)
    assert [step.group for step in plan.passes] == ["texts", "padded", "long"]
    assert plan.left_out["decode"] == "not asked for"
    assert unknown_names("padded,longer") == ("longer",)
    assert unknown_names("all") == ()

"""The numerics record on a terminal."""

from __future__ import annotations

from day0.flows.stage_text import stage_lines
from day0.tasks.numerics.record import Block, FirstFault
from day0.tasks.numerics.record_parts import Manifest, ReferenceCheck, TaskMetric, Training
from support.sample_numerics import optional_parts, sample_numerics, sample_routing, sample_self_test
from support.sample_records import ORT


def test_every_part_is_told() -> None:
    parts = {
        **optional_parts(),
        "routing": sample_routing(5, unexplained=7),
        "self_test": sample_self_test(missed=True),
    }
    text = "\n".join(stage_lines(sample_numerics(ORT, layers=6, bad=3, **parts)))
    for part in (
        "The reference itself was checked by stock from_pretrained: 1.40e-6",
        "first fault: model.layers.3 > model.layers.3.mlp.act_fn > aten.silu.default, gain_score 61.4",
        "--json | jq -r .first_fault.repro",
        f"{'model.layers.3':<28} 16 flips of 128 tokens: 9 near-ties, 7 unexplained",
        "window       did not run: the model has no window",
        "decode: top-1 agreement 98.1 %, mean overlap of the top five 96.8 %, KL",
        "reference 71 %, target 70.5 %, difference -0.500 points (95 % interval -2.10 to 1.10)",
        "Missed: wrong_head_grouping.",
        "precision policy: attention int8",
        "training: 4 of 4 nodes within tolerance",
    ):
        assert part in text, part


def test_a_deep_model_shows_what_does_not_pass() -> None:
    record = sample_numerics(ORT, layers=100, bad=60)
    lines = list(stage_lines(record))
    rows = [line for line in lines if "by itself" in line and "rel. L2" in line]
    assert len(rows) == 20
    assert not any(line.startswith("  pass ") for line in rows)
    assert any("and 20 more that do not pass" in line for line in lines)
    assert any("103 nodes: 63 pass, 1 fail, 39 inherited" in line for line in lines)


def test_the_command_that_a_remedy_names_is_there() -> None:
    record = sample_numerics(ORT, layers=2, bad=1)
    (command,) = [line for line in record.findings[0].evidence if line.startswith("$ day0 compare ")]
    assert command in [line.strip() for line in stage_lines(record)]


def unreached(name: str, reason: str) -> Block:
    return Block(
        name=name,
        role="layer",
        local=None,
        propagated=None,
        growth="NaN",
        verdict="unverified",
        reason=reason,
    )


def test_nodes_that_one_reason_kept_from_being_compared_are_one_line() -> None:
    why = "not reached: model.embed_tokens cannot run: the checkpoint lacks weight"
    blocks = [unreached(f"model.layers.{index}", why) for index in range(60)]
    lines = list(stage_lines(sample_numerics(ORT, layers=2, blocks=blocks)))
    assert [line.strip() for line in lines if "not reached" in line] == [f"unverified all 60 nodes: {why}"]
    other = [*blocks[:3], unreached("model.norm", "another"), *blocks[3:]]
    text = "\n".join(stage_lines(sample_numerics(ORT, layers=2, blocks=other)))
    assert f"unverified 3 nodes from model.layers.0 to model.layers.2: {why}" in text
    assert f"unverified 57 nodes from model.layers.3 to model.layers.59: {why}" in text


def test_a_failure_is_told_by_its_class_since_nothing_was_measured() -> None:
    fault = FirstFault(block="model.layers.1", metric="crash", value="NaN", tolerance="NaN")
    lines = list(stage_lines(sample_numerics(ORT, layers=2, first_fault=fault)))
    assert "  first fault: model.layers.1, crash" in lines


def test_what_is_missing_is_told() -> None:
    record = sample_numerics(
        ORT,
        layers=2,
        reference_check=ReferenceCheck(state="fail", method="likelihood", value=16.0, limit=7.0),
        manifest=Manifest(expected=9, seen=7, missing=["lm_head/long"]),
        task=TaskMetric(reason="random weights"),
        training=Training(reason="too large"),
    )
    text = "\n".join(stage_lines(record))
    assert "fail       Nothing below can be trusted: the reference itself is wrong" in text
    assert "7 of 9 calls of nodes captured: lm_head/long" in text
    assert "task : random weights" not in text
    assert "unverified task: random weights" in text
    assert "unverified training: No step was taken: too large." in text


def test_a_record_without_nodes_says_little() -> None:
    bare = sample_numerics(ORT, layers=0, blocks=(), logits=None, says=None, reference="", noise="", tokens=0)
    assert list(stage_lines(bare))[1:] == ["  reference none, noise none, 0 tokens"]

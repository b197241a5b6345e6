"""A config alone: counted by what it implies, whatever wraps the text model; no zeros for unknowns."""

from __future__ import annotations

from typing import Any

import pytest

from day0.flows.inventory_text import inventory_text
from day0.reports.assemble import assemble
from day0.reports.page.requirements import requirements
from day0.tasks.inventory.distribution_csv import distribution_csv
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.structural_diff import structural_diff
from day0.tasks.inventory.take import take_inventory
from day0.tasks.plan.make import make_plan
from day0.tasks.verdict import Verdict
from support.layouts import make_release
from support.small_releases import SMOLLM2, smollm2_tensors

TEXT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 128}  # fmt: skip
VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
          "image_size": 32, "patch_size": 8}  # fmt: skip
WRAPPERS: dict[str, dict[str, Any]] = {
    "llava": {
        "text_config": {**TEXT, "model_type": "llama"},
        "vision_config": {**VISION, "model_type": "clip_vision_model", "projection_dim": 32},
    },
    "qwen2_vl": {
        "text_config": {**TEXT, "model_type": "qwen2_vl_text",
                        "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}},
        "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "mlp_ratio": 2},
    },
    "gemma3": {
        "text_config": {**TEXT, "model_type": "gemma3_text"},
        "vision_config": {**VISION, "model_type": "siglip_vision_model"},
        "mm_tokens_per_image": 4,
    },
}  # fmt: skip


def bare(config: dict[str, Any], *layouts: str) -> InventoryRecord:
    return take_inventory(make_release(config, {}), layouts=layouts)


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_layers_of_a_wrapped_text_model_are_one_row_each(wrapper: str) -> None:
    record = bare({"model_type": wrapper, **WRAPPERS[wrapper]}, "pp=4", "tp=1")
    facts, held = record.facts, record.facts.distribution
    assert held is not None
    assert (facts.basis, len(facts.layers), facts.readiness.state) == ("implied", 4, "config_only")
    assert facts.totals == facts.implied.totals
    assert facts.active_params == facts.implied.active_params
    for layer in facts.layers:
        rows = [row for row in held.rows if row.part == "text" and row.index == layer.index]
        assert {row.name for row in rows} == {layer.name}
        assert sum(row.params for row in rows) == layer.params > 0
        assert sum(row.kv_bytes_per_token for row in rows) == layer.kv_bytes_per_token == 2 * 2 * 8 * 2
    assert sum(row.bytes for row in held.rows) == facts.totals.data_bytes
    assert not [row.name for row in held.rows if "{" in row.name or row.name.endswith((".weight", ".bias"))]
    stages, one = held.memory
    middle = [stage.weights_bytes_max for stage in stages.stages][1:3]
    assert middle == [facts.layers[1].bytes, facts.layers[2].bytes]
    assert one.weights_bytes_max == facts.totals.data_bytes


@pytest.mark.parametrize("config", [{}, {"colour": "blue"}])
def test_a_config_that_says_nothing_is_undecided(config: dict[str, Any]) -> None:
    record = bare(config)
    assert record.verdict is Verdict.UNVERIFIED
    assert "INV095" in {finding.code for finding in record.findings}
    text = "\n".join(inventory_text(record))
    assert "parameters  unknown" in text
    assert "hidden size 0" not in text
    assert " 0 " not in text


def test_an_unknown_type_has_no_zeros_for_sizes() -> None:
    record = bare({"model_type": "foo_moe", "num_hidden_layers": 4, "hidden_size": 64})
    assert record.facts.basis == "none"
    text = "\n".join(inventory_text(record))
    assert "0 B" not in text
    assert "unknown" in text
    assert record.facts.distribution is not None
    for line in distribution_csv(record.facts.distribution).splitlines()[1:]:
        assert line.split(",")[6:10] == [""] * 4


def test_a_bare_config_is_not_called_complete() -> None:
    record = bare(SMOLLM2)
    first = requirements(assemble("r", "org/model", record, {}))[0]
    assert [state.words for state in first.states] == ["open"]


def test_a_plan_from_what_a_config_implies_says_so() -> None:
    stored = make_plan(take_inventory(make_release(SMOLLM2, smollm2_tensors())))
    planned = make_plan(bare(SMOLLM2))
    assert "PLN008" in {finding.code for finding in planned.findings}
    assert [one.weight_bytes for one in planned.facts.recommended] == [
        one.weight_bytes for one in stored.facts.recommended
    ]
    assert {one.command for one in planned.facts.recommended} == {""}


@pytest.mark.parametrize("order", [1, -1])
def test_announced_against_released_says_nothing_where_nothing_differs(order: int) -> None:
    pair = [bare(SMOLLM2), take_inventory(make_release(SMOLLM2, smollm2_tensors()))][::order]
    diff = structural_diff(pair[0], pair[1])
    assert (diff.same, diff.headline, list(diff.changed)) == (
        True,
        "Nothing changed of what a config tells.",
        [],
    )


def test_announced_against_released_says_what_differs() -> None:
    fewer = {name: kind for name, kind in smollm2_tensors().items() if ".layers.29." not in name}
    released = take_inventory(make_release({**SMOLLM2, "num_hidden_layers": 29}, fewer))
    diff = structural_diff(bare(SMOLLM2), released)
    assert not diff.same
    assert diff.headline.startswith("Layers 30 to 29")
    totals = {
        change.name: (change.before, change.after) for change in diff.changed if change.topic == "totals"
    }
    assert totals["logical_params"] == (134_515_008, 134_515_008 - 3_540_096)

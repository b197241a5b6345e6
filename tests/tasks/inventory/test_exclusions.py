"""Exclusion lists of every dialect, read as their engine reads them, over the modules of a release."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from day0.tasks.inventory.declaration import NamePattern
from day0.tasks.inventory.name_matching import NameMatcher, fill
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.layouts import make_release
from support.small_releases import Tensors

NAMES = (
    "model.layers.1.mlp.gate",
    "model.layers.11.mlp.gate_proj",
    "model.layers.1.mlp.experts.3.up_proj",
    "model.layers.1.self_attn.q_proj",
    "lm_head",
    "language_model.lm_head",
)


@pytest.mark.parametrize(
    ("kind", "pattern", "matched"),
    [
        ("exact", "lm_head", [4]),
        ("exact", "model.layers.1", []),
        ("glob", "model.layers.*.mlp.gate*", [0, 1]),
        ("glob", "*.mlp.gate", [0]),
        ("glob", "model.layers.1", [0, 2, 3]),  # a plain name of modelopt leaves out what lies below it
        ("glob", "*lm_head*", [4, 5]),
        ("glob", "model.layers.1.self_attn?q*", [3]),
        ("glob", "model.layers.[01].mlp*", [0, 2]),
        ("regex", r".*mlp\.gate$", [0]),
        ("regex", "mlp", []),  # from the start, as `re.match`
        ("regex", r".*\.experts\.\d+\..*", [2]),
        ("regex", r"^(?!.*experts).*proj$", [1, 3]),
        ("transformers", "lm_head", [4, 5]),  # the end counts
        ("transformers", "model.layers.1", [0, 2, 3]),  # up to a dot: not layer 11
        ("transformers", "mlp.gate", [0]),
        ("transformers", "model.layers.*.self_attn", [3]),
        ("substring", "gate", [0, 1]),
        ("class", "Linear", []),
    ],
)
def test_each_kind(kind: str, pattern: str, matched: list[int]) -> None:
    matcher = NameMatcher([NamePattern(pattern, kind, pattern)])
    assert [number for number, name in enumerate(NAMES) if matcher.matched(name)] == matched
    assert matcher.refused == {}


def test_hostile_patterns_are_set_aside_with_a_reason() -> None:
    texts = ["(a+)+$", r"(a)\1", "(", *(f"(.*{number}.*)+z" for number in range(300))]
    matcher = NameMatcher([NamePattern(text, "regex", f"re:{text}") for text in texts])
    began = time.process_time()
    for layer in range(400):
        matcher.matched(f"model.layers.{layer}.mlp.experts.{'a' * 60}")
    assert time.process_time() - began < 20
    assert set(matcher.refused) >= {1, 2}


def test_thousands_of_names_cost_no_more_than_ten() -> None:
    patterns = [NamePattern(f"model.layers.{n}.mlp", "transformers", "") for n in range(20_000)]
    matcher = NameMatcher(patterns)
    began = time.process_time()
    found = [matcher.matched(f"model.layers.{n}.mlp.up_proj") for n in range(2_000)]
    assert time.process_time() - began < 3
    assert found == [{n} for n in range(2_000)]


def test_names_are_filled_in() -> None:
    text = "model.layers.{l}.mlp.experts.{e}.up_proj"
    assert fill(text, 3, 0, ("17",)) == "model.layers.3.mlp.experts.17.up_proj"
    assert fill("model.norm", None, -1, ()) == "model.norm"


def expert_tensors() -> Tensors:
    found: Tensors = {"lm_head.weight": ("bf16", (64, 64))}
    for layer in range(2):
        found[f"model.layers.{layer}.self_attn.q_proj.weight"] = ("bf16", (64, 64))
        for expert in range(4):
            module = f"model.layers.{layer}.mlp.experts.{expert}.up_proj"
            found[f"{module}.weight"] = ("fp8_e4m3", (64, 64))
            found[f"{module}.weight_scale"] = ("fp32", ())
    return found


def taken(section: Mapping[str, Any], tensors: Tensors) -> InventoryRecord:
    return take_inventory(make_release({"num_hidden_layers": 2, "quantization_config": section}, tensors))


def test_one_expert_by_name() -> None:
    excluded = ["lm_head", "model.layers.*.self_attn*", "model.layers.1.mlp.experts.2.up_proj"]
    record = taken({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": excluded}, expert_tensors())
    (finding,) = [finding for finding in record.findings if finding.code == "INV054"]
    assert "yet 1 are stored in fp8_tensor (layer 1: 2)" in finding.message
    assert [item.modules for item in record.facts.quantization.exclusions] == [1, 2, 1]


def test_plain_matrices_that_nothing_leaves_out() -> None:
    section = {"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN", "ignore": ["lm_head"]}
    record = taken(section, expert_tensors())
    (finding,) = [finding for finding in record.findings if finding.code == "INV055"]
    assert finding.severity == "info"
    assert finding.message.startswith("2 weights that no exclusion names are stored plain")
    assert record.facts.quantization.checks.targeted_plain == 2


def test_a_pattern_that_cannot_be_evaluated_leaves_the_verdict_open() -> None:
    section = {
        "quant_method": "compressed-tensors",
        "ignore": [r"re:(a)\1"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"},
            }
        },
    }
    record = taken(section, expert_tensors())
    (finding,) = [finding for finding in record.findings if finding.code == "INV057"]
    assert finding.verdict == "unverified"
    assert [(item.kind, item.modules) for item in record.facts.quantization.exclusions] == [("refused", -1)]

"""Shapes by the config's numbers: each wrong one told, none of a sound model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from day0.tasks.finding import Finding
from day0.tasks.inventory.arithmetic import MODEL_TYPES
from day0.tasks.inventory.take import take_inventory
from support.layouts import layout_release, make_release
from support.small_releases import MIXTRAL, SMOLLM2, mixtral_tensors, smollm2_tensors


def told(config: dict[str, Any], tensors: Any) -> list[Finding]:
    record = take_inventory(make_release(config, tensors))
    return [finding for finding in record.findings if finding.code == "INV027"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_key_value_heads": 4}, "k_proj.weight has [16, 32] in layers 0-1, the config gives [32, 32]"),
        ({"head_dim": 16}, "q_proj.weight has [32, 32] in layers 0-1, the config gives [64, 32]"),
        ({"intermediate_size": 96}, "w1.weight has [64, 32] in layers 0-1, the config gives [96, 32]"),
        ({"num_local_experts": 8}, "gate.weight has [4, 32] in layers 0-1, the config gives [8, 32]"),
        ({"vocab_size": 128}, "vocab_size 128, lm_head.weight has [100, 32]"),
        ({"vocab_size": 99}, "vocab_size 99, lm_head.weight has [100, 32]"),
        ({"hidden_size": 64, "head_dim": 8}, "input_layernorm.weight has [32] in layers 0-1"),
    ],
)
def test_each_number_of_the_config(change: dict[str, int], said: str) -> None:
    messages = [finding.message for finding in told({**MIXTRAL, **change}, mixtral_tensors())]
    assert any(said in message for message in messages), messages


def test_one_layer_that_differs_is_named() -> None:
    tensors = smollm2_tensors()
    tensors["model.layers.7.mlp.up_proj.weight"] = ("bf16", (1024, 576))
    (finding,) = told(SMOLLM2, tensors)
    assert "in layer 7" in finding.message
    assert finding.severity == "warning"


@pytest.mark.parametrize("change", [{"model_type": "strange"}, {"intermediate_size": [96, 96]}])
def test_no_formula_no_opinion(change: dict[str, Any]) -> None:
    assert told({**MIXTRAL, **change}, mixtral_tensors()) == []


def test_latent_attention_and_blocks_of_fp8() -> None:
    release = layout_release("openai--gpt-oss-20b")
    record = take_inventory(release)
    assert "shapes of" in record.facts.reconciliation.config.by
    assert not [finding for finding in record.findings if finding.code == "INV027"]


@pytest.mark.slow
@pytest.mark.parametrize("model_type", sorted(MODEL_TYPES - {"kimi_k2"}))
def test_no_false_alarm_for_what_the_class_builds(model_type: str) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from day0.adapters.models.architecture import build_meta_model
    from day0.adapters.models.expected_tensors import expected_tensors

    plain = CONFIG_MAPPING[model_type]().to_dict() | {"model_type": model_type}
    few = {"n_routed_experts", "num_experts", "num_local_experts"}
    plain = {key: 16 if key in few and value else value for key, value in plain.items()}
    plain = {key: value for key, value in plain.items() if key not in ("layer_types", "mlp_layer_types")}
    plain["num_hidden_layers"] = 4
    config = json.loads(json.dumps(CONFIG_MAPPING[model_type](**plain).to_dict(), default=str))
    found = expected_tensors(build_meta_model(config).model)
    tensors = {tensor.published: (tensor.dtype, tensor.shape) for tensor in found.tensors}
    record = take_inventory(make_release(config, tensors))
    assert "shapes of" in record.facts.reconciliation.config.by
    assert not {finding.code for finding in record.findings} & {
        "INV020",
        "INV021",
        "INV027",
        "INV028",
        "INV103",
        "INV104",
    }

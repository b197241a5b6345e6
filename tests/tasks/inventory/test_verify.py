from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from day0.adapters.base.run_store import RunStore
from day0.adapters.checkpoints.release import open_release
from day0.flows.cli import main
from day0.flows.verification_text import verification_lines
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.record_verification import ContentPattern, Verification
from day0.tasks.inventory.take import take_inventory
from day0.tasks.inventory.verification import with_verification
from day0.tasks.inventory.verify import Contents, verify_weights
from support.local_hub import LocalHub
from support.raw_checkpoints import header_of, write_raw, write_sharded, write_sparse
from support.small_releases import MIXTRAL, mixtral_tensors

MODEL = "org/verified"
CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "architectures": ["LlamaForCausalLM"],
}
Q = "model.layers.0.self_attn.q_proj.weight"
# Name of the format in the file, numpy word, codes of 1.0, NaN and infinity (None: has none).
FLOATS: list[tuple[str, str, int, int, int | None]] = [
    ("BF16", "u2", 0x3F80, 0x7FC0, 0xFF80),
    ("F16", "u2", 0x3C00, 0x7E00, 0x7C00),
    ("F32", "u4", 0x3F800000, 0x7FC00000, 0x7F800000),
    ("F64", "u8", 0x3FF << 52, 0x7FF8 << 48, 0xFFF << 52),
    ("F8_E4M3", "u1", 0x38, 0xFF, None),
    ("F8_E5M2", "u1", 0x3C, 0x7E, 0x7C),
]


def release(folder: Path, tensors: Mapping[str, tuple[str, Sequence[int], bytes]], **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    header, _ = header_of({name: (dtype, shape) for name, (dtype, shape, _) in tensors.items()})
    write_raw(folder / "model.safetensors", header, b"".join(data for _, _, data in tensors.values()))
    return folder


def mixtral(tmp_path: Path) -> tuple[Path, list[Path]]:
    """Three shards; integers, because those cannot be NaN by chance."""
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MIXTRAL))
    layout = {name: ("I32", shape) for name, (_, shape) in mixtral_tensors().items()}
    return folder, write_sharded(folder, layout, 3)


def words(kind: str, codes: Sequence[int]) -> bytes:
    return np.array(codes, dtype=np.dtype(f"<{kind}")).tobytes()


def verified(folder: Path | str, store: Path) -> tuple[InventoryRecord, Contents]:
    opened = open_release(str(folder))
    contents = verify_weights(opened, RunStore(store))
    return with_verification(take_inventory(opened), contents), contents


def outcome(record: InventoryRecord) -> Verification:
    assert record.facts.verification is not None
    return record.facts.verification


def codes(record: InventoryRecord) -> list[str]:
    return sorted(found.code for found in record.findings if "INV080" <= found.code <= "INV089")


def row(record: InventoryRecord, pattern: str) -> ContentPattern:
    return next(row for row in outcome(record).patterns if row.pattern == pattern)


@pytest.mark.parametrize("form", FLOATS, ids=lambda form: str(form[0]))
def test_planted_numbers_are_found(tmp_path: Path, form: tuple[str, str, int, int, int | None]) -> None:
    dtype, kind, one, nan, inf = form
    bad = [one] * 64
    bad[3] = nan
    bad[40] = inf if inf is not None else nan
    tensors = {
        Q: (dtype, [8, 8], words(kind, bad)),
        Q.replace("q_proj", "k_proj"): (dtype, [8, 8], words(kind, [one] * 64)),
        Q.replace("q_proj", "v_proj"): (dtype, [8, 8], bytes(64 * int(kind[1]))),
        "model.layers.0.self_attn.q_proj.bias": (dtype, [8], bytes(8 * int(kind[1]))),
    }
    record, _ = verified(release(tmp_path / "m", tensors), tmp_path / "store")
    found = outcome(record)
    assert (found.nan, found.inf, found.zero_tensors) == (
        1 if inf is not None else 2,
        int(inf is not None),
        2,
    )
    assert found.tensors == 4
    assert codes(record) == ["INV082", "INV083", "INV087"]
    broken = next(finding for finding in record.findings if finding.code == "INV082")
    assert broken.subject.name == Q
    assert broken.severity == "error"
    empty = next(finding for finding in record.findings if finding.code == "INV083")
    assert empty.subject.name == Q.replace("q_proj", "v_proj")
    assert row(record, "model.layers.{l}.self_attn.k_proj.weight").max_abs == 1.0
    assert found.patterns[0].pattern == "model.layers.{l}.self_attn.q_proj.weight", "the worst first"
    assert record.verdict == "fail"


def test_every_byte_is_hashed_and_the_facts_are_the_same_again(tmp_path: Path) -> None:
    folder, shards = mixtral(tmp_path)
    record, contents = verified(folder, tmp_path / "store")
    found = outcome(record)
    assert [shard.sha256 for shard in found.shards] == [
        hashlib.sha256(shard.read_bytes()).hexdigest() for shard in shards
    ]
    assert found.bytes == contents.bytes == sum(shard.stat().st_size for shard in shards)
    assert {shard.state for shard in found.shards} == {"recorded"}
    assert {shard.expected for shard in found.shards} == {""}
    again, once_more = verified(folder, tmp_path / "store")
    assert once_more.bytes == contents.bytes, "asked for anew, read anew"
    assert {shard.state for shard in outcome(again).shards} == {"as_before"}
    assert [shard.expected for shard in outcome(again).shards] == [shard.sha256 for shard in found.shards]
    assert "INV087" not in codes(again), "each was held against what is remembered"
    assert verified(folder, tmp_path / "store")[0].facts_digest == again.facts_digest
    assert record.sources["/verification"] == "measured"
    assert record.observations.verified_bytes == found.bytes


def test_integers_packed_codes_and_scales(tmp_path: Path) -> None:
    tensors = {
        "model.layers.0.mlp.up_proj.weight_packed": ("I32", [4, 4], words("i4", [-(2**31), *[1] * 15])),
        "model.layers.0.mlp.up_proj.weight_scale": ("F8_E8M0", [4, 1], bytes([127, 255, 120, 0])),
        "model.layers.0.mlp.down_proj.weight": ("BOOL", [4], bytes(4)),
    }
    record, _ = verified(release(tmp_path / "m", tensors), tmp_path / "store")
    assert row(record, "model.layers.{l}.mlp.up_proj.weight_packed").max_abs == 2.0**31
    assert row(record, "model.layers.{l}.mlp.up_proj.weight_scale").nan == 1
    assert row(record, "model.layers.{l}.mlp.down_proj.weight").zero_tensors == 1


def test_scales_of_zero_are_told_and_zero_points_are_not(tmp_path: Path) -> None:
    root = "model.layers.0.mlp.up_proj"
    tensors = {
        f"{root}.weight": ("F8_E4M3", [8, 8], words("u1", [0x38] * 64)),
        f"{root}.weight_scale_inv": ("F32", [1, 1], bytes(4)),
        f"{root}.weight_zero_point": ("I8", [8], bytes(8)),
    }
    record, _ = verified(release(tmp_path / "m", tensors), tmp_path / "store")
    told = [found.subject.name for found in record.findings if found.code == "INV083"]
    assert told == [f"{root}.weight_scale_inv"]


def test_gguf_is_hashed_and_its_plain_tensors_are_looked_at(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("output_norm.weight", np.array([1, np.inf, 2, 3], np.float32))
    blocks = gguf.quants.quantize(np.ones((32, 32), np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.0.attn_q.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    record, _ = verified(folder, tmp_path / "store")
    found = outcome(record)
    assert found.shards[0].sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (found.inf, found.tensors, found.unchecked) == (1, 1, 1)
    assert {"INV082", "INV085"} <= set(codes(record))


def test_a_very_large_weight_and_an_infinite_mask(tmp_path: Path) -> None:
    tensors = {
        Q: ("F32", [2, 2], np.array([1, 2, -3e7, 4], "<f4").tobytes()),
        "model.rotary_emb.inv_freq": ("F32", [2], np.array([np.inf, 1], "<f4").tobytes()),
    }
    record, _ = verified(release(tmp_path / "m", tensors), tmp_path / "store")
    assert codes(record) == ["INV082", "INV084", "INV087"]
    assert {f.code: f.severity for f in record.findings if f.code in ("INV082", "INV084")} == {
        "INV082": "warning",
        "INV084": "warning",
    }


@pytest.mark.parametrize(("family", "expected"), [("llama", ["INV083", "INV087"]), ("gemma2", ["INV087"])])
def test_a_norm_of_zeros_is_right_where_one_is_added(
    tmp_path: Path, family: str, expected: list[str]
) -> None:
    tensors = {"model.norm.weight": ("F32", [8], bytes(32))}
    record, _ = verified(release(tmp_path / "m", tensors, model_type=family), tmp_path / "store")
    assert codes(record) == expected


def test_a_flipped_bit_is_told_from_a_replaced_file(tmp_path: Path) -> None:
    folder = release(tmp_path / "m", {Q: ("F32", [2, 2], np.ones(4, "<f4").tobytes())})
    path = folder / "model.safetensors"
    first, _ = verified(folder, tmp_path / "store")
    times = path.stat()
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    for _ in range(2):  # damage remains damage
        damaged, _ = verified(folder, tmp_path / "store")
        assert outcome(damaged).shards[0].state == "damaged"
        assert outcome(damaged).shards[0].expected == outcome(first).shards[0].sha256
        assert codes(damaged) == ["INV081"]
        assert [found.severity for found in damaged.findings if found.code == "INV081"] == ["error"]
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 10**9))
    changed, _ = verified(folder, tmp_path / "store")
    assert outcome(changed).shards[0].state == "changed"
    assert [found.severity for found in changed.findings if found.code == "INV081"] == ["warning"]
    settled, _ = verified(folder, tmp_path / "store")
    assert outcome(settled).shards[0].state == "as_before"


def test_what_was_compared_is_told_from_what_was_not(tmp_path: Path) -> None:
    folder, shards = mixtral(tmp_path)
    verified(folder, tmp_path / "store")
    with shards[1].open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\x01\x02\x03\x04")
    record, _ = verified(folder, tmp_path / "store")
    assert [shard.state for shard in outcome(record).shards] == ["as_before", "changed", "as_before"]
    told = [text for _, text in verification_lines(outcome(record))]
    assert told[0].endswith("2 as last verified, 1 changed since last verified")
    assert "INV087" not in codes(record)


def test_files_that_cannot_be_read_to_the_end(tmp_path: Path) -> None:
    folder, shards = mixtral(tmp_path)
    os.truncate(shards[1], shards[1].stat().st_size - 100)  # its header promises more
    opened = open_release(str(folder))
    os.truncate(shards[2], shards[2].stat().st_size - 8)  # after it was listed
    contents = verify_weights(opened, RunStore(tmp_path / "store"))
    record = with_verification(take_inventory(opened), contents)
    found = outcome(record)
    assert [shard.state for shard in found.shards] == ["recorded", "recorded", "unreadable"]
    assert "by the listing" in found.shards[2].problem
    assert codes(record) == ["INV085", "INV086", "INV087"]
    held = sum(info.file != shards[2].name for info in opened.checkpoint.tensors.values())
    assert found.tensors == held - 1, "one tensor reaches beyond the end of its file"
    assert found.unchecked == record.facts.totals.tensors - found.tensors


def test_a_shard_whose_header_is_broken_is_hashed_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    path = write_raw(folder / "model.safetensors", b"{nonsense}", b"x" * 10)
    record, _ = verified(folder, tmp_path / "store")
    assert outcome(record).shards[0].sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert outcome(record).patterns == ()


def test_pickles_are_hashed_and_never_opened(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    record, _ = verified(folder, tmp_path / "store")
    assert [shard.state for shard in outcome(record).shards] == ["recorded"]


def test_a_bare_config_has_nothing_to_read(tmp_path: Path) -> None:
    place = tmp_path / "config.json"
    place.write_text(json.dumps(CONFIG))
    contents = verify_weights(open_release(str(place)), RunStore(tmp_path / "store"))
    assert (contents.shards, contents.bytes) == ((), 0)


def test_a_remote_release_crosses_the_wire_once(local_hub: LocalHub, tmp_path: Path) -> None:
    folder, shards = mixtral(tmp_path)
    local_hub.add(MODEL, folder)
    opened = open_release(MODEL)
    local_hub.forget()
    record = with_verification(take_inventory(opened), verify_weights(opened, RunStore(tmp_path / "store")))
    assert {shard.state for shard in outcome(record).shards} == {"matches"}
    assert codes(record) == []
    assert local_hub.bytes_of("*.safetensors") == sum(shard.stat().st_size for shard in shards)


def test_a_remote_shard_that_comes_wrong_is_an_error(local_hub: LocalHub, tmp_path: Path) -> None:
    folder, _ = mixtral(tmp_path)
    local_hub.add(MODEL, folder)
    opened = open_release(MODEL)
    local_hub.fail("*/resolve/*00002-of-00003.safetensors", spoil=True, times=100)
    record = with_verification(take_inventory(opened), verify_weights(opened, RunStore(tmp_path / "store")))
    assert [shard.state for shard in outcome(record).shards] == ["matches", "differs", "matches"]
    assert codes(record) == ["INV080", "INV085"]
    assert record.verdict == "fail"


def test_a_blob_that_rots_in_the_cache_is_found(
    local_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = release(tmp_path / "m", {Q: ("F32", [2, 2], np.ones(4, "<f4").tobytes())})
    local_hub.add(MODEL, folder)
    opened = open_release(MODEL)
    assert opened.source is not None
    blob = opened.source.local_path("model.safetensors").resolve()
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(data)
    record, _ = verified(MODEL, tmp_path / "store")
    assert outcome(record).shards[0].state == "differs"
    assert codes(record) == ["INV080"]


_VERIFY = """
import sys
from day0.adapters.base.run_store import RunStore
from day0.adapters.checkpoints.release import open_release
from day0.tasks.inventory.verify import verify_weights
opened = open_release(sys.argv[1])
before = int(open("/proc/self/io").read().split()[1])
contents = verify_weights(opened, RunStore(sys.argv[2]))
read = int(open("/proc/self/io").read().split()[1]) - before
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(contents.bytes, read, int(peak.split()[1]) * 1024, contents.digest)
"""


def verify_process(folder: Path, store: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _VERIFY, str(folder), str(store)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_killed_verification_reads_only_the_rest(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    layout = {f"model.layers.{layer}.mlp.up_proj.weight": ("BF16", [2048, 8192]) for layer in range(8)}
    shards = write_sharded(folder, layout, 8, sparse=True)  # 32 MiB each
    total = sum(shard.stat().st_size for shard in shards)
    first = verify_process(folder, tmp_path / "store")
    pending = tmp_path / "store" / "verify"
    while len(list(pending.rglob("pending/*.json"))) < 3:
        assert first.poll() is None
        time.sleep(0.002)
    first.kill()
    first.communicate()
    done = len(list(pending.rglob("pending/*.json")))
    assert 3 <= done < 8
    second = verify_process(folder, tmp_path / "store")
    output, _ = second.communicate()
    read, system, _, found = output.split()
    assert abs(int(read) - total * (8 - done) // 8) < 100  # headers differ by a digit
    assert int(system) < int(read) + 2**20
    assert not list(pending.rglob("pending/*.json"))
    plain = verify_weights(open_release(str(folder)), RunStore(tmp_path / "other"))
    assert found == plain.digest


@pytest.mark.slow
def test_memory_stays_bounded(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write_sparse(
        folder / "model.safetensors", {"model.embed_tokens.weight": ("BF16", [32768, 32768])}
    )  # 2 GiB
    output, _ = verify_process(folder, tmp_path / "store").communicate()
    read, _, peak, _ = output.split()
    assert int(read) > 2**31
    assert int(peak) < 256 * 2**20


def test_the_command_line_reads_every_byte_only_when_asked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = release(tmp_path / "m", {Q: ("F32", [2, 2], np.array([1, np.nan, 1, 1], "<f4").tobytes())})
    store = ["--store", str(tmp_path / "store"), "--json"]
    main(["inventory", str(folder), *store])
    plain = json.loads(capfd.readouterr().out)
    assert plain["verification"] is None
    assert "INV082" not in [finding["code"] for finding in plain["findings"]]
    assert main(["inventory", str(folder), "--verify", *store]) == 1
    asked = json.loads(capfd.readouterr().out)
    assert asked["verification"]["nan"] == 1
    assert asked["verification"]["shards"][0]["sha256"]

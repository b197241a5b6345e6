"""Every rule of the safetensors header: what keeps it is read, what breaks it is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from day0.adapters.checkpoints import header_entries, safetensors_header
from day0.adapters.checkpoints.header_columns import Columns, HeaderError
from day0.adapters.checkpoints.safetensors_header import (
    MAX_HEADER_BYTES,
    describe_pointer,
    header_length,
    parse_header,
)
from support.raw_checkpoints import header_of, write_raw

GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def header(**tensors: Any) -> bytes:
    return json.dumps(tensors).encode()


BROKEN: dict[str, tuple[str, bytes]] = {
    "not an object": ("header_start", b"[]"),
    "leading space": ("header_start", b' {"a": 1}'),
    "not JSON": ("header_json", b'{"a": '),
    "not UTF-8": ("header_json", b'{"a\xff": 1}'),
    "NaN": ("header_json", b'{"a": NaN}'),
    "deep": ("header_json", b'{"a":' * 100_000),
    "digits": ("header_json", b'{"a":' + b"1" * 5_000 + b"}"),
    "duplicate": (
        "header_duplicate",
        b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
        b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
    ),
    "duplicate beside others": (
        "header_duplicate",
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],'
        b'"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
    ),
    "key twice in an entry": (
        "header_duplicate",
        b'{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}',
    ),
    "metadata twice": (
        "header_duplicate",
        b'{"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
        b'"__metadata__":{"format":"pt"}}',
    ),
    "metadata key twice": ("header_duplicate", b'{"__metadata__":{"x":"1","x":"2"}}'),
    "text behind": ("header_json", b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}} x'),
    "comma at the end": ("header_json", b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},}'),
    "huge offset": ("header_size", header(a=GOOD | {"data_offsets": [0, 2**70]})),
    "metadata list": ("header_metadata", header(__metadata__=["x"])),
    "metadata number": ("header_metadata", header(__metadata__={"x": 1})),
    "entry is a number": ("header_entry", header(a=1)),
    "no dtype": ("header_entry", header(a={"shape": [2], "data_offsets": [0, 8]})),
    "three offsets": ("header_entry", header(a=GOOD | {"data_offsets": [0, 4, 8]})),
    "shape of lists": ("header_shape", header(a=GOOD | {"shape": [[2]]})),
    "unknown dtype": ("header_dtype", header(a=GOOD | {"dtype": "U3"})),
    "dtype is a number": ("header_dtype", header(a=GOOD | {"dtype": 7})),
    "negative dim": ("header_shape", header(a=GOOD | {"shape": [-2]})),
    "fractional dim": ("header_shape", header(a=GOOD | {"shape": [2.5]})),
    "boolean dim": ("header_shape", header(a=GOOD | {"shape": [True, 2]})),
    "absurd dims": ("header_shape", header(a=GOOD | {"shape": [2**62, 2**62]})),
    "absurd rank": ("header_shape", header(a=GOOD | {"shape": [1] * 65})),
    "negative offset": ("header_offsets", header(a=GOOD | {"data_offsets": [-8, 0]})),
    "swapped offsets": ("header_offsets", header(a=GOOD | {"data_offsets": [8, 0]})),
    "fractional offset": ("header_offsets", header(a=GOOD | {"data_offsets": [0.0, 8]})),
    "wrong size": ("header_size", header(a=GOOD | {"data_offsets": [0, 4]})),
    "odd fp4": ("header_bits", header(a={"dtype": "F4", "shape": [3], "data_offsets": [0, 2]})),
    "hole at the start": ("header_gap", header(a=GOOD | {"data_offsets": [4, 12]})),
    "hole between": ("header_gap", header(a=GOOD, b=GOOD | {"data_offsets": [12, 20]})),
    "overlap": ("header_gap", header(a=GOOD, b=GOOD | {"data_offsets": [4, 12]})),
    "long name": ("header_name", header(**{"n" * 2000: GOOD})),
}


@pytest.mark.parametrize("case", BROKEN)
def test_each_broken_rule_has_its_code(case: str) -> None:
    code, raw = BROKEN[case]
    with pytest.raises(HeaderError) as caught:
        parse_header(raw)
    assert caught.value.code == code
    assert caught.value.reason
    assert caught.value.reason.isprintable()


# The library has no limit on rank and name length; everything else it refuses too.
LENIENT = {"absurd rank", "long name"}


@pytest.mark.parametrize("case", sorted(BROKEN.keys() - LENIENT))
def test_the_safetensors_library_refuses_the_same(case: str, tmp_path: Path) -> None:
    path = write_raw(tmp_path / "model.safetensors", BROKEN[case][1], bytes(32))
    with pytest.raises((SafetensorError, ValueError, OSError)):
        safe_open(path, framework="numpy")


def test_a_good_header_gives_absolute_places_in_the_order_of_the_data() -> None:
    raw = header(
        late={"dtype": "BF16", "shape": [2, 3], "data_offsets": [8, 20]},
        early=GOOD,
        empty={"dtype": "F32", "shape": [0, 4], "data_offsets": [8, 8]},
        __metadata__={"format": "pt"},
    )
    read = parse_header(raw)
    base = 8 + len(raw)
    assert read.names == ["early", "empty", "late"]
    assert read.kinds[2] == ("bf16", (2, 3), 12)
    assert list(read.starts) == [base, base + 8, base + 8]
    assert read.end == base + 20


def test_metadata_may_be_null_and_the_header_padded_and_empty() -> None:
    assert parse_header(b'{"__metadata__":null}   ').names == []
    assert parse_header(b"{}").end == 10


def test_names_that_look_like_json_are_read_as_names() -> None:
    layout = {name: ("U8", [1]) for name in ("a},", "},", '"', "\\", "dtype", "data_offsets", "\u00e9", "\n")}
    raw, data = header_of(layout)
    assert parse_header(raw).names == list(layout)
    assert parse_header(raw).end == 8 + len(raw) + data


def test_a_header_of_many_pieces_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_entries, "PIECE_BYTES", 100)
    layout = {f"layer.{number}.weight": ("BF16", [number, 2]) for number in range(200)}
    raw, data = header_of(layout, {"format": "pt", "note": 'a "quoted" \\ word'})
    read = parse_header(raw)
    assert read.names == list(layout)
    assert read.end == 8 + len(raw) + data == read.starts[-1] + 199 * 2 * 2
    twice = raw[:-1] + b',"layer.0.weight":{"dtype":"BF16","shape":[0,2],"data_offsets":[0,0]}}'
    with pytest.raises(HeaderError) as caught:
        parse_header(twice)
    assert caught.value.code == "header_duplicate"


def test_what_the_library_writes_is_taken_the_quick_way() -> None:
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "model.embed.weight": np.zeros((3, 4), np.float32),
        "\u00e9.empty": np.zeros((0, 2), np.float16),
        "scalar": np.array(1, np.int64),
    }
    whole = save(arrays, {"format": "pt"})
    raw = whole[8 : 8 + int.from_bytes(whole[:8], "little")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safetensors_header, "decode_entries", None)
        read = parse_header(raw)
    assert {name: (kind.dtype, kind.shape) for name, kind in zip(read.names, read.kinds, strict=True)} == {
        "model.embed.weight": ("fp32", (3, 4)), "\u00e9.empty": ("fp16", (0, 2)), "scalar": ("int64", ()),
    }  # fmt: skip
    assert read.end == len(whole)
    places = dict(zip(read.names, read.starts, strict=True))
    assert whole[places["scalar"] : places["scalar"] + 8] == (1).to_bytes(8, "little")


def test_length_is_checked_against_format_and_file() -> None:
    assert header_length((10).to_bytes(8, "little"), 18) == 10
    assert header_length(MAX_HEADER_BYTES.to_bytes(8, "little"), 2**40) == MAX_HEADER_BYTES
    for first, size, code in (
        (b"", 0, "too_small"),
        ((11).to_bytes(8, "little"), 18, "header_truncated"),
        ((MAX_HEADER_BYTES + 1).to_bytes(8, "little"), 2**40, "header_too_large"),
        (b"version https://git-lfs.github.com/spec/v1", 130, "lfs_pointer"),
    ):
        with pytest.raises(HeaderError) as caught:
            header_length(first, size)
        assert caught.value.code == code


def test_a_pointer_is_described_by_what_it_points_to() -> None:
    text = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 4302350824\n"
    assert describe_pointer(text) == f"oid sha256:{'a' * 64}, size 4302350824"
    assert describe_pointer(b"version ") == "oid sha256:unknown, size unknown"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
entries = st.fixed_dictionaries(
    {"dtype": st.sampled_from(["F32", "F4", "U8", "X"]) | json_values,
     "shape": st.lists(st.integers(-1, 5) | json_values, max_size=3),
     "data_offsets": st.lists(st.integers(-1, 64), min_size=1, max_size=3) | json_values},
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(raw=st.binary(max_size=200) | st.dictionaries(st.text(max_size=8), entries | json_values).map(
    lambda value: json.dumps(value).encode()
))  # fmt: skip
def test_no_header_ends_in_anything_but_a_reason(raw: bytes) -> None:
    try:
        read = parse_header(raw)
    except HeaderError:
        return
    assert read.end >= 8 + len(raw)


def outcome(raw: bytes) -> Any:
    try:
        read = parse_header(raw)
    except HeaderError as error:
        return error.code
    return read.names, read.kinds, list(read.starts), read.end


small = st.fixed_dictionaries(
    {"dtype": st.sampled_from(["U8", "BF16"]), "shape": st.lists(st.integers(0, 2), max_size=2),
     "data_offsets": st.tuples(st.integers(0, 4), st.integers(0, 4))},
) | st.sampled_from([
    {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
    {"dtype": "U8", "shape": [1], "data_offsets": [2, 3]},
    {"dtype": "BF16", "shape": [], "data_offsets": [3, 5]},
    {"dtype": "F32", "shape": [0, 3], "data_offsets": [5, 5]},
])  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    parts=st.lists(
        st.tuples(st.sampled_from(["a", "b", "__metadata__", 'q"', "},"]), small | st.just({"format": "pt"})),
        max_size=4,
    ),
    spaces=st.sampled_from(["", " ", "\n"]),
)
def test_the_quick_way_and_the_strict_one_agree(parts: list[tuple[str, Any]], spaces: str) -> None:
    tight = (",", ":") if not spaces else None  # as the library writes it
    items = (f"{json.dumps(name)}{spaces}:{json.dumps(value, separators=tight)}" for name, value in parts)
    raw = f"{{{spaces.join(['', ','.join(items)])}}}{spaces}".encode()
    quick = outcome(raw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Columns, "extend_canonical", lambda columns, piece: False)
        assert quick == outcome(raw)
        patch.setattr(safetensors_header, "_quick", lambda raw, known: None)
        assert quick == outcome(raw)


@settings(max_examples=50, deadline=None)
@given(
    layout=st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(
            lambda name: name != "__metadata__"
        ),
        st.tuples(st.sampled_from(["F32", "BF16", "U8"]), st.lists(st.integers(0, 5), max_size=3)),
        max_size=6,
    )
)
def test_every_whole_header_is_read(layout: dict[str, tuple[str, list[int]]]) -> None:
    raw, data = header_of(layout)
    read = parse_header(raw)
    assert read.end == 8 + len(raw) + data
    assert {name: kind.shape for name, kind in zip(read.names, read.kinds, strict=True)} == {
        name: tuple(shape) for name, (_, shape) in layout.items()
    }

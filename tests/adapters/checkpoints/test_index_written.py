"""The quick way to read an index says nothing that parsing it would not."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from day0.adapters.base.checkpoint import TensorBlock, TensorKind
from day0.adapters.checkpoints.index import index_of
from day0.adapters.checkpoints.index_written import as_written
from day0.adapters.checkpoints.reconcile import agree

PATH = "model.safetensors.index.json"
NAMES = st.text(st.sampled_from('ab.\\"\n\té 0\x01:,{}'), min_size=1, max_size=6)
STYLES: tuple[dict[str, Any], ...] = (
    {}, {"indent": 2}, {"indent": 2, "sort_keys": True}, {"separators": (",", ":")}, {"ensure_ascii": False},
    {"indent": "\t", "sort_keys": True, "ensure_ascii": False},
)  # fmt: skip


def block(file: str, names: list[str]) -> TensorBlock:
    return TensorBlock(file, names, [TensorKind("bf16", (1,), 2)] * len(names), list(range(len(names))))


def text_of(claims: dict[str, str], style: dict[str, Any], total: object = 7) -> bytes:
    return json.dumps({"metadata": {"total_size": total}, "weight_map": claims}, **style).encode()


@pytest.mark.parametrize("style", STYLES[:4])
@pytest.mark.parametrize("end", ["", "\n"])
def test_every_usual_writer_is_known(style: dict[str, Any], end: str) -> None:
    blocks = [block("b.safetensors", ["z", "a.0", "a"]), block("a.safetensors", ["c", "b"])]
    claims = {name: held.file for held in blocks for name in held.names}
    found = as_written(PATH, text_of(claims, style) + end.encode(), blocks)
    assert found == (PATH, 5, ["b.safetensors", "a.safetensors"], 7, "'7'")


def test_a_total_that_is_no_number_is_told_as_it_stands() -> None:
    blocks = [block("a", ["x", "y"])]
    found = as_written(PATH, text_of({"x": "a", "y": "a"}, {}, "many"), blocks)
    assert found is not None
    assert (found.total_size, found.total_stated) == (None, "'\"many\"'")


@pytest.mark.parametrize(
    "text",
    [
        b'{"weight_map": {"x": "a", "y": "a"}, "weight_map": {}}',
        b'{"weight_map": {}, "weight_map": {"x": "a", "y": "a"}}',
        b'{"m": {"weight_map": {"x": "a", "y": "a"}}}',
        b'{"weight_map": {"x": "a", "y": "a"}} {}',
        b'{"weight_map": {"x": "a", "y": "a"}',
        b'{"weight_map": {"x": "a", "y": "a", "y": "a"}}',
        b'{"weight_map": {"x": "a",  "y": "b"}}',
        b'"weight_map": {"x": "a", "y": "a"}}',
    ],
)
def test_other_texts_are_left_to_the_parser(text: bytes) -> None:
    assert as_written(PATH, text, [block("a", ["x", "y"])]) is None


def test_a_tensor_in_two_files_is_left_to_the_parser() -> None:
    blocks = [block("a", ["x", "y"]), block("b", ["x"])]
    assert as_written(PATH, b'{"weight_map": {"x": "a", "y": "a", "x": "b"}}', blocks) is None


@given(st.lists(NAMES, unique=True, min_size=1, max_size=8), st.integers(0, 2**32), st.sampled_from(STYLES))
def test_what_it_says_is_what_parsing_says(names: list[str], seed: int, style: dict[str, Any]) -> None:
    chance = random.Random(seed)
    files = ["m-1", "m-2", 'm"3']
    owner = {name: chance.choice(files) for name in names}
    blocks = [block(file, [name for name in names if owner[name] == file]) for file in files]
    claims = {name: held.file for held in blocks for name in held.names}
    data = bytearray(text_of(claims, style))
    if chance.random() < 0.5:
        data[chance.randrange(len(data))] = chance.choice(b'"\\ab{},: \n')
    found = as_written(PATH, bytes(data), blocks)
    if found is not None:
        index, anomalies = index_of(PATH, bytes(data))
        assert index is not None
        assert agree(index, blocks)
        assert not anomalies
        assert found._replace(files=sorted(found.files)) == index.summary()._replace(
            files=sorted(index.summary().files)
        )


@given(st.lists(NAMES, unique=True, min_size=2, max_size=8))
def test_names_that_imitate_an_entry_fool_nobody(names: list[str]) -> None:
    raw = b'{"weight_map": {' + b", ".join(f'"{name}": "a"'.encode() for name in names) + b"}}"
    if as_written(PATH, raw, [block("a", names)]) is not None:
        index, _ = index_of(PATH, raw)
        assert index is not None
        assert agree(index, [block("a", names)])

"""Opening releases: folders and bare configs, and what cannot be used at all."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.adapters.base.errors import InputError
from day0.adapters.checkpoints.release import open_release
from day0.adapters.checkpoints.release_config import parse_config
from support.raw_checkpoints import write_filled


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 8}))
    write_filled(tmp_path / "model.safetensors", {"a": ("F32", (2,))})
    return tmp_path


def test_a_folder_is_opened_with_config_and_tensors(folder: Path) -> None:
    release = open_release(str(folder))
    assert release.config == {"model_type": "llama", "hidden_size": 8}
    assert list(release.checkpoint.tensors) == ["a"]
    assert release.source is not None
    assert release.revision == release.source.revision


def test_a_bare_config_has_no_source_and_no_weights(folder: Path) -> None:
    release = open_release(str(folder / "config.json"))
    assert release.source is None
    assert release.checkpoint.format == "none"
    assert release.revision == release.config_digest == open_release(str(folder)).config_digest


@pytest.mark.parametrize(("end", "revision"), [("@main", None), ("", "main")])
def test_a_bare_config_has_no_revisions(folder: Path, end: str, revision: str | None) -> None:
    with pytest.raises(InputError, match="E135"):
        open_release(f"{folder / 'config.json'}{end}", revision)


def test_structure_and_weights_have_digests_of_their_own(folder: Path) -> None:
    before = open_release(str(folder))
    write_filled(folder / "model.safetensors", {"a": ("F32", (2,))}, seed="other")
    after = open_release(str(folder))
    assert after.structure_digest == before.structure_digest
    assert after.weights_digest != before.weights_digest
    write_filled(folder / "model.safetensors", {"a": ("F32", (1, 2))})
    assert open_release(str(folder)).structure_digest != before.structure_digest


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        '"text"',
        "null",
        '{"a": }',
        '{"a": ' * 100_000,
        '{"a": ' * 100 + "1" + "}" * 100,
        '{"a": ' + "[" * 50_000 + "]" * 50_000 + "}",
        '{"a": ' + "9" * 5000 + "}",
        '{"a": "\\ud800<script>"}',
        '{"a": "' + "x" * 10_000_001 + '"}',
        '{"a": [' + "1," * 500_000 + "1]}",
    ],
)
def test_a_config_that_cannot_be_used_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    for model in (folder, folder / "config.json"):
        with pytest.raises(InputError, match="E103") as caught:
            open_release(str(model))
        assert len(str(caught.value)) < 400


def test_a_config_that_is_not_text_is_refused(folder: Path) -> None:
    (folder / "config.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(InputError, match="E103"):
        open_release(str(folder))


def test_non_finite_numbers_take_the_form_that_transformers_gives_them() -> None:
    parsed = parse_config(b'{"limit": [0.0, Infinity], "low": -Infinity, "none": NaN, "huge": 1e999}', "x")
    assert parsed == {
        "limit": [0.0, {"__float__": "Infinity"}],
        "low": {"__float__": "-Infinity"},
        "none": {"__float__": "NaN"},
        "huge": {"__float__": "Infinity"},
    }
    from transformers import PretrainedConfig

    decoded = PretrainedConfig._decode_special_floats(parsed)
    assert decoded["limit"][1] == math.inf


def test_a_folder_without_config(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("nothing else")
    with pytest.raises(InputError, match="E102"):
        open_release(str(tmp_path))
    write_filled(tmp_path / "model.safetensors", {"a": ("F32", (2,))})
    release = open_release(str(tmp_path))
    assert (dict(release.config), list(release.checkpoint.tensors)) == ({}, ["a"])
    assert "no_config" in [anomaly.code for anomaly in release.checkpoint.anomalies]


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="E101"):
        open_release(str(tmp_path / "missing"))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_config_ends_in_anything_but_a_sentence(data: bytes) -> None:
    with contextlib.suppress(InputError):
        assert isinstance(parse_config(data, "config.json"), dict)

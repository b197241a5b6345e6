"""A gap that nobody told of: found, got around, and the later stages run with the way around."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from day0.flows import cli
from support.tiny_models import save_tiny

TARGET = "openvino@cpu/fp32"


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_grouped_heads_on_openvino(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("openvino")
    monkeypatch.chdir(tmp_path)
    model = str(save_tiny("llama", tmp_path / "model", dtype="float32"))
    words = [model, "--target", TARGET, "--probe-budget", "900", "--json"]

    def asked(verb: str, code: int = 0) -> dict[str, Any]:
        assert cli.main([verb, *words]) == code
        record: dict[str, Any] = json.loads(capfd.readouterr().out)
        return record

    covered = asked("coverage")
    gap = next(gap for gap in covered["gaps"] if "scaled_dot_product_attention" in gap["op"])
    assert "enable_gqa" in gap["variant"]
    assert gap["workaround"] == "attn=eager"
    assert "kinds ran on the target" in gap["checked"]
    assert "openvino.convert_model" in gap["repro"]
    assert "github.com/openvinotoolkit/openvino" in gap["letter"]
    assert [one["options"] for one in covered["chosen"]] == [{"attn": "eager"}]
    assert {kind["outcome"] for kind in covered["kinds"]} == {"ran"}
    assert covered["verdict"] == "warn"

    ran = asked("minimal", 3)  # the stack has no loader of its own, which stays unverified
    assert {node["outcome"] for node in ran["nodes"]} == {"ran"}
    assert [one["id"] for one in ran["chosen"]] == ["attn=eager"]
    compared = asked("compare")
    assert compared["verdict"] == "pass"
    assert [one["id"] for one in compared["chosen"]] == ["attn=eager"]

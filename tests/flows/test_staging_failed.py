"""`--stage` that fails leaves a record whose findings and verdict say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from day0.adapters.base.errors import SourceError
from day0.flows.cli import main
from support.local_hub import LocalHub
from support.raw_checkpoints import write_filled

MODEL = "org/staged"


@pytest.mark.parametrize(
    ("code", "finding", "verdict", "status"),
    [("E211", "INV080", "fail", 1), ("E206", "INV080", "fail", 1), ("E210", "INV088", "unverified", 3)],
)
def test_a_failure_is_a_finding(
    local_hub: LocalHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    code: str,
    finding: str,
    verdict: str,
    status: int,
) -> None:
    folder = tmp_path / "release"
    folder.mkdir()
    config = {
        "model_type": "llama",
        "architectures": ["LlamaModel"],
        "num_hidden_layers": 1,
        "hidden_size": 8,
    }
    (folder / "config.json").write_text(json.dumps({**config, "num_attention_heads": 1}))
    write_filled(folder / "model.safetensors", {"layers.0.self_attn.q_proj.weight": ("BF16", (8, 8))})
    local_hub.add(MODEL, folder)

    def fails(*_: object) -> None:
        raise SourceError("it went wrong", code=code, remedy="Mend it.")

    monkeypatch.setattr("day0.flows.staging_run.stage_files", fails)
    assert main(["inventory", MODEL, "--stage", "--json", "--store", str(tmp_path / "store")]) in (1, status)
    shown = json.loads(capfd.readouterr().out)
    assert shown["staging"] == {"state": "failed", "code": code, "problem": "it went wrong"}
    told = [item for item in shown["findings"] if item["subject"]["name"] == "staging"]
    assert [(item["code"], item["remedy"]) for item in told] == [(finding, "Mend it.")]
    assert shown["verdict"] in ("fail", verdict)

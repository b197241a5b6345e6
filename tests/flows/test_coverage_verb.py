"""`day0 coverage`: what a person and a program read, and what a config that builds nothing still says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from day0.adapters import registries
from day0.flows import cli
from support.tiny_models import TINY

_TARGET = "eager@cpu/bf16"
_SHIPPED = Path(str(registries.__file__)).with_name("eager-cpu.json")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bare config; the store and everything else lies in the test's folder."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "model"
    folder.mkdir()
    values = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(values | TINY["llama"]))
    return folder


def _asked(model: Path, *more: str) -> list[str]:
    return ["coverage", str(model), "--target", _TARGET, "--probe-budget", "0", "--json", *more]


def test_names_that_programs_rely_on(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = cli.main(_asked(config))
    record: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert code == {"pass": 0, "warn": 0, "fail": 1}.get(record["verdict"], 3)
    assert {"ops", "gaps", "new_since_registry", "alternatives", "verdict", "chosen", "kernels"} <= set(
        record
    )
    for entry in record["ops"]:
        assert {"op", "dtypes", "status", "grade", "evidence", "workaround", "impact"} <= set(entry)
    assert sum(entry["impact"] for entry in record["ops"]) == pytest.approx(1.0, abs=1e-3)
    impacts = [gap["impact"] for gap in record["gaps"]]
    assert impacts == sorted(impacts, reverse=True)
    assert {entry["grade"] for entry in record["ops"]} <= {"measured", "inherited", ""}
    # The shipped registry knows a llama on processors of its families.
    shipped = json.loads(_SHIPPED.read_text())["fingerprints"].values()
    is_of_them = record["fingerprint"]["family"] in {one["family"] for one in shipped}
    assert any(entry["grade"] for entry in record["ops"]) == is_of_them


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": "nobody_knows"}, "E401"),
        pytest.param(
            {"model_type": "nobody_knows", "auto_map": {"AutoModelForCausalLM": "modeling_x.X"}},
            "E402",
            marks=pytest.mark.slow,
        ),
        pytest.param({"num_attention_heads": "many"}, "E403", marks=pytest.mark.slow),
    ],
)
def test_a_config_that_builds_nothing_still_leaves_a_record(
    changes: dict[str, Any], says: str, config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = config / "config.json"
    values = json.loads(file.read_text()) | changes
    quantised = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    file.write_text(json.dumps(values | quantised))
    assert cli.main(_asked(config)) == 3
    record: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert record["verdict"] == "blocked"
    (finding,) = [finding for finding in record["findings"] if finding["code"] == "COV013"]
    assert says in finding["message"]
    assert any("fp8" in kernel["name"] for kernel in record["kernels"])
    assert record["ops"] == []


@pytest.mark.slow
def test_a_run_whose_time_was_up_is_gone_on_with(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No shipped registry knows half precision, and a second is too short for all of it."""
    command = ["coverage", str(config), "--target", "eager@cpu/fp16", "--json", "--probe-budget"]
    unknown: list[int] = []
    known: list[set[str]] = []
    for budget in ("1", "20", "300", "300"):
        cli.main([*command, budget])
        said = capfd.readouterr()
        record: dict[str, Any] = json.loads(said.out)
        unknown.append(record["statuses"].get("unknown", 0))
        tried = [entry for entry in record["ops"] if entry["status"] != "unknown"]
        known.append({f"{entry['op']} {entry['dtypes']} {entry['status']}" for entry in tried})
        assert said.err.splitlines()[-1].endswith("reused") is (len(unknown) == 4)
    assert known[0] <= known[1] <= known[2] == known[3]
    assert unknown[0] > unknown[1] >= unknown[2] == unknown[3] == 0

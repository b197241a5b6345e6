"""`day0 ops` as a person and as a tool calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from day0.flows import cli
from support.tiny_models import TINY


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def config(**values: Any) -> str:
    """A bare config.json."""
    Path("config.json").write_text(json.dumps(values))
    return "./config.json"


def test_json_has_the_names_that_tools_rely_on(capfd: pytest.CaptureFixture[str]) -> None:
    path = config(model_type="qwen3_moe", dtype="bfloat16", **TINY["qwen3_moe"])
    assert cli.main(["ops", path, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["overloads"] == len({op["op"] for op in found["ops"]})
    assert found["signatures"] <= len(found["ops"])
    assert found["unresolved"] == []
    names = {"op", "dtypes", "shapes", "attributes", "phase", "module", "count", "flops", "bytes"}
    assert all(names <= set(op) for op in found["ops"])
    assert all({"name", "kind", "required_by", "architectures"} <= set(item) for item in found["kernels"])
    (down,) = [
        op
        for op in found["ops"]
        if op["op"] == "aten.mm.default" and op["phase"] == "prefill" and op["module"].endswith("down_proj")
    ]
    # the dense layer's 64 x 48 times 48 x 32, in two bytes: what is read and what is written
    assert (down["shapes"], down["count"]) == ([[64, 48], [48, 32]], 1)
    assert down["flops"] == 2 * 64 * 48 * 32
    softmax = next(op for op in found["ops"] if op["op"] == "aten._softmax.default")
    assert softmax["attributes"] == {"dim": -1, "half_to_float": False}
    norm = next(op for op in found["ops"] if op["op"] == "aten.rsqrt.default" and op["phase"] == "decode")
    assert norm["per_token"] == norm["count"]


def test_text_leads_with_counts_and_kernels(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ops", config(model_type="llama", **TINY["llama"]), "--device", "npu"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert "as on npu in bf16" in lines[0]
    assert any(
        line.startswith("kernel hub:kernels-community/liger-kernels on cuda, rocm, npu") for line in lines
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model_type": "never_heard_of"}, "is not known"),
        ({"model_type": "own", "auto_map": {"AutoModel": "modeling.Own"}}, "repository's code"),
        ({"model_type": "llama", "hidden_size": "wide"}, "hidden_size"),
    ],
)
def test_what_cannot_be_built_still_has_its_kernels_and_exits_with_3(
    values: dict[str, Any], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = config(**values, quantization_config={"quant_method": "fp8"})
    assert cli.main(["ops", path, "--json"]) == 3
    found = json.loads(capfd.readouterr().out)
    assert found["ops"] == []
    (why,) = found["unresolved"]
    assert said in why["message"]
    assert {"hub:kernels-community/finegrained-fp8", "hub:kernels-community/deep-gemm"} <= {
        kernel["name"] for kernel in found["kernels"]
    }
    assert found["verdict"] == "unverified"

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from day0.adapters.base.errors import UnsupportedError, WorkerUnusable
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Call, Fragment
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.adapters.targets.target import WorkerTarget

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another environment's Python: torch, safetensors and numpy, nothing of Day0, no transformers."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    version = torch.__version__.partition("+")[0]
    there = folder / "bin" / "python"
    pip = [str(there), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"torch=={version}", "safetensors", "numpy"], check=True, timeout=900)
    return there


@pytest.fixture(scope="module")
def target(python: Path) -> Iterator[WorkerTarget]:
    with open_target(TargetSpec.parse("eager@cpu/fp32"), command=[str(python)], timeout=300) as opened:
        yield opened


def test_day0_is_not_importable_there(python: Path) -> None:
    said = subprocess.run(
        [str(python), "-c", "import day0"], capture_output=True, text=True, cwd=python.parent, check=False
    )
    assert "No module named 'day0'" in said.stderr


def test_it_says_what_it_lacks(target: WorkerTarget) -> None:
    said = target.describe()
    assert set(said.capabilities) == {"op", "collectives"}
    assert [anomaly.code for anomaly in said.anomalies] == ["no_transformers"]
    assert said.fingerprint.exact["transformers"] == "absent"


def test_operators_and_collectives_run_there(target: WorkerTarget) -> None:
    tensor = {"tensor": {"dtype": "fp32", "shape": [3], "stride": [1], "alias": 0}}
    call = OperatorCall(op="aten.neg.default", args=[tensor], dtypes=["fp32"], shapes=[[3]])
    answer = target.run_op(call, [torch.tensor([1.0, 2.0, 3.0])])
    assert answer.outputs.tensors["t0"].tolist() == [-1, -2, -3]
    ranks = target.launch(2, {"job": "collectives", "elements": [1000], "samples": 1})
    assert [rank["outcome"] for rank in ranks] == ["finished", "finished"]
    assert [check for rank in ranks for check in rank["checks"] if not check["passed"]] == []


def test_nodes_are_unsupported_there(target: WorkerTarget) -> None:
    fragment = Fragment(node="lm_head", kind="k", architecture="X", config={}, dtype="fp32", options={})
    with pytest.raises(UnsupportedError, match="'fragment'"):
        target.prepare(fragment, Call({"args": [], "kwargs": {}}, {}), mode="prefill")


def test_a_stack_whose_package_is_not_there_is_unusable(python: Path) -> None:
    with (
        open_target(TargetSpec.parse("openvino@cpu"), command=[str(python)]) as openvino,
        pytest.raises(WorkerUnusable, match="No module named 'openvino'"),
    ):
        openvino.describe()

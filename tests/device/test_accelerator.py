"""What only a machine with an accelerator can show, on whatever `torch.accelerator` finds there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.flows.cli import main
from day0.testing.conformance import main as conformance
from support.tiny_releases import TinyRelease

pytestmark = [
    pytest.mark.device,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.accelerator.is_available(), reason="torch finds no accelerator here"),
]


@pytest.fixture
def device() -> str:
    found = torch.accelerator.current_accelerator()
    assert found is not None
    return found.type


def test_the_worker_sees_the_device_and_its_memory(device: str) -> None:
    with open_target(TargetSpec.parse(f"eager@{device}/bf16")) as target:
        described = target.describe()
    assert described.devices[0].memory_bytes > 2**30
    assert {"op", "fragment", "collectives"} <= set(described.capabilities)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_eager_on_the_device_conforms(device: str, dtype: str) -> None:
    assert conformance([f"eager@{device}/{dtype}"]) == 0


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_every_node_of_a_tiny_model_holds_on_the_device(
    device: str, dtype: str, tiny: Callable[[str], TinyRelease], tmp_path: Path
) -> None:
    model, store = tiny("llama").folder, tmp_path / "store"
    command = ["compare", str(model), "--target", f"eager@{device}/{dtype}", "--store", str(store)]
    assert main(command) == 0
    assert RunStore(store).list("records/numerics")

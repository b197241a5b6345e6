"""Ways around of installed packages, found by their entry points, named by a target, run in a worker."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from day0.adapters.base.errors import InputError
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.adapters.workarounds.registry import load, named_in, plugins, references
from support.captured import call_of, meta

EXAMPLE = Path(__file__).parents[2] / "example_vendor"


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The example package as an installation leaves it: its sources and its entry points."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "acme_npu").symlink_to(EXAMPLE / "src" / "acme_npu")
    info = folder / "acme_npu_day0-1.2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-npu-day0\nVersion: 1.2.0\n")
    (info / "entry_points.txt").write_text("[day0.workarounds]\nacme_silu = acme_npu.workarounds:AcmeSilu\n")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    yield
    sys.path.remove(str(folder))
    importlib.invalidate_caches()


def test_the_built_in_ones_are_there() -> None:
    assert {"cast", "decompose", "loop_experts", "real_rotary"} <= set(references())
    assert load("cast:aten.mm.default:fp32").id == "cast:aten.mm.default:fp32"


def test_an_unknown_one_is_refused_before_a_worker_starts() -> None:
    spec = TargetSpec.parse("eager@cpu/fp32?with=decompos:aten.silu.default")
    with pytest.raises(InputError, match="decompos") as raised:
        open_target(spec)
    assert (raised.value.code, "Did you mean decompose?" in raised.value.remedy) == ("E177", True)
    assert named_in(TargetSpec.parse("eager@cpu")) == {}


@pytest.mark.usefixtures("acme")
def test_a_package_registers_an_activation_without_editing_the_model() -> None:
    assert "acme_silu" in [way.id for way in plugins(without=("cast", "decompose"))]
    call = call_of(torch.ops.aten.silu.default, meta(4, 8))
    assert load("acme_silu").applies(call.model_dump(mode="json"), {})
    values = torch.randn(4, 8)
    with open_target(TargetSpec.parse("eager@cpu/fp32?with=acme_silu")) as target:
        (output,) = target.run_op(call, [values]).outputs.tensors.values()
    torch.testing.assert_close(output, torch.nn.functional.silu(values))


def test_bugs_are_there_for_every_target_and_no_model_is_offered_one() -> None:
    spec = TargetSpec.parse("eager@cpu/fp32?with=bug:norm_eps@model.norm,bug:mask_off_by_one@model.layers.1")
    assert named_in(spec) == {"bug": "day0_worker.bugs:Bug"}
    assert load("bug:norm_eps@model.norm").id == "bug:norm_eps@model.norm"
    assert "bug" not in references()

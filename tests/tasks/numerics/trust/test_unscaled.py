"""Weights whose scale is missing are told by name; no comparison could show them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from day0.adapters.base.run_store import RunStore
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.skeleton import build_skeleton
from day0.tasks.finding import Finding
from day0.tasks.job import NumericsOptions
from day0.tasks.numerics.measure import measure_numerics
from day0.tasks.numerics.question import Question
from day0.tasks.numerics.trust.unscaled import unscaled_findings
from support.fp8_blocks import save_fp8_blocks
from support.in_process_target import InProcessTarget
from support.tiny_releases import TinyRelease

LACKING = "model.layers.1.mlp.down_proj.weight"


def without(model: TinyRelease, folder: Path, gone: Callable[[str], bool], *, stated: bool = True) -> Path:
    """The model in fp8 with block scales, some of them taken out."""
    save_fp8_blocks(model.folder, folder, block=16)
    file = folder / "model.safetensors"
    kept = {name: tensor for name, tensor in load_file(file).items() if not gone(name)}
    save_file(kept, file, metadata={"format": "pt"})
    if not stated:
        config = json.loads((folder / "config.json").read_text())
        config.pop("quantization_config")
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def found(folder: Path) -> list[Finding]:
    release = open_release(str(folder))
    return unscaled_findings(release, build_skeleton(release))


def test_the_comparison_names_the_weight_and_goes_on(
    tiny: Callable[[str], TinyRelease], tmp_path: Path
) -> None:
    folder = without(tiny("llama"), tmp_path / "m", lambda name: name == f"{LACKING}_scale_inv")
    release = open_release(str(folder))
    asked = NumericsOptions(prompts="texts")
    question = Question(release, build_skeleton(release), RunStore(tmp_path / "store"), "x", asked=asked)
    target = InProcessTarget("eager@cpu/bf16")
    record = measure_numerics(question, target, target.describe())
    told = [finding for finding in record.findings if finding.code == "NUM035"]
    assert [(finding.subject.name, list(finding.evidence)) for finding in told] == [
        ("model.layers.1", [LACKING])
    ]
    assert record.verdict == "fail"
    assert {block.verdict for block in record.facts.blocks} == {"pass"}


@pytest.mark.parametrize(("stated", "nodes"), [(True, 3), (False, 0)])
def test_without_any_scale_the_config_decides(
    tiny: Callable[[str], TinyRelease], tmp_path: Path, stated: bool, nodes: int
) -> None:
    folder = without(tiny("llama"), tmp_path / "m", lambda name: name.endswith("_inv"), stated=stated)
    assert len(found(folder)) == nodes


def test_one_that_has_all_of_them_is_right(tiny: Callable[[str], TinyRelease], tmp_path: Path) -> None:
    assert found(without(tiny("llama"), tmp_path / "m", lambda name: False)) == []

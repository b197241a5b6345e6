"""The acceptance of the comparison on a real model of 135M parameters; real workers where it says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.base.release import Release
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.skeleton_store import load_or_build_skeleton
from day0.adapters.targets.open import open_target
from day0.flows.demo_model import ensure_demo_model
from day0.tasks.job import NumericsOptions
from day0.tasks.numerics.measure import measure_numerics
from day0.tasks.numerics.question import Question
from day0.tasks.numerics.record import NumericsRecord
from support.in_process_target import InProcessTarget, scaled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

Demo = tuple[Release, Skeleton, RunStore]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo")
    store = RunStore(folder / "store")
    release = open_release(str(ensure_demo_model(folder)))
    return release, load_or_build_skeleton(release, store), store


def measured(demo: Demo, target: Any, prompts: str = "texts") -> NumericsRecord:
    release, skeleton, store = demo
    asked = NumericsOptions(prompts=prompts)
    question = Question(release, skeleton, store, "The capital of France is", asked=asked)
    return measure_numerics(question, target, target.describe())


def failing(record: NumericsRecord) -> Sequence[str]:
    return [block.name for block in record.facts.blocks if block.verdict == "fail"]


@pytest.mark.parametrize("text", ["eager@cpu/bf16", "eager@cpu/fp32", "onnxruntime@cpu/fp32"])
def test_a_correct_target_passes_on_all_nodes_in_a_worker(demo: Demo, text: str) -> None:
    with open_target(TargetSpec.parse(text)) as target:
        record = measured(demo, target, "decode,padded,shifted")
    assert [(block.name, block.reason) for block in record.facts.blocks if block.verdict != "pass"] == []
    assert len(record.facts.blocks) == 34
    assert record.verdict == "pass"
    assert record.facts.says is not None
    assert record.facts.says.reference.startswith(" Paris")
    assert record.facts.says.agree
    assert record.facts.logits is not None
    assert record.facts.logits.decisive == 0
    assert record.facts.bytes_read < 1.25 * 269_000_000  # the tied head is read twice


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_one_percent_is_seen_at_every_node(demo: Demo, dtype: str) -> None:
    """All at once: each node is judged on the reference's input, so no fault hides or causes another."""
    names = [node.name for node in demo[1].nodes]
    record = measured(demo, InProcessTarget(f"eager@cpu/{dtype}", dict.fromkeys(names, scaled(1.01))))
    assert failing(record) == names
    assert record.facts.first_fault is not None
    assert record.facts.first_fault.block == names[0]


@pytest.mark.parametrize(
    ("dtype", "layer"),
    [("bf16", "model.layers.0"), ("bf16", "model.layers.28"), ("fp32", "model.layers.11")],
)
def test_a_plugin_that_scales_one_layer_gets_exactly_that_node(
    demo: Demo, faulty_stack: Path, dtype: str, layer: str
) -> None:
    text = f"faulty@cpu/{dtype}?fault=scale&factor=1.01&layer={layer}"
    with open_target(TargetSpec.parse(text)) as target:
        record = measured(demo, target)
    assert failing(record) == [layer]
    assert record.facts.first_fault is not None
    assert record.facts.first_fault.block == layer
    assert record.verdict == "fail"


def test_a_plugin_that_hangs_at_one_layer_is_found_there_and_the_rest_is_compared(
    demo: Demo, faulty_stack: Path
) -> None:
    text = "faulty@cpu/fp32?fault=hang&layer=model.layers.17"
    with open_target(TargetSpec.parse(text)) as target:
        target.describe()
        target.timeout = 30.0
        record = measured(demo, target)
    assert failing(record) == ["model.layers.17"]
    found = next(finding for finding in record.findings if finding.code == "NUM002")
    assert "hang" in found.message
    assert all(block.local is not None for block in record.facts.blocks if block.name != "model.layers.17")

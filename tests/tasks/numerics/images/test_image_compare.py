"""Towers of several kinds on images: clean targets pass at every node, a fault is named at its node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch

from day0.adapters.base.release import Release
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.skeleton import build_skeleton
from day0.tasks.job import NumericsOptions
from day0.tasks.numerics.images.image_compare import Images, with_images
from day0.tasks.numerics.images.image_findings import image_findings
from day0.tasks.numerics.measure import measure_numerics
from day0.tasks.numerics.question import Question
from day0.tasks.numerics.walk.case import Case
from day0.tasks.numerics.walk.lockstep import NO_TEXT, Comparison
from day0.tasks.numerics.walk.node import not_compared
from support.in_process_target import InProcessTarget, dies, scaled
from support.vision_models import save_vision

SLOW = pytest.mark.slow
KINDS = (
    "qwen2_5_vl",
    "gemma3",
    *(pytest.param(name, marks=SLOW) for name in ("qwen3_vl", "llava", "smolvlm", "mistral3", "mllama")),
)


@dataclass(frozen=True)
class Model:
    folder: Path

    @cached_property
    def release(self) -> Release:
        return open_release(str(self.folder))

    @cached_property
    def skeleton(self) -> Skeleton:
        return build_skeleton(self.release)


Get = Callable[[str], Model]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Get:
    made: dict[str, Model] = {}

    def get(name: str) -> Model:
        if name not in made:
            made[name] = Model(save_vision(name, tmp_path_factory.mktemp("vision") / name))
        return made[name]

    return get


def compared(model: Model, target: InProcessTarget, store: Path, prompts: str = "auto") -> Images:
    """The images' part of a comparison whose text reached what text does."""
    asked = NumericsOptions(prompts=prompts)
    question = Question(model.release, model.skeleton, RunStore(store), "", asked=asked)
    case = Case(
        skeleton=model.skeleton,
        checkpoint=model.release.checkpoint,
        dtype=target.spec.dtype or "bf16",
        store=question.store,
        target=target.describe().fingerprint.digest,
        options={},
    )
    nodes = [not_compared(node, NO_TEXT) for node in model.skeleton.nodes if not node.called]
    return with_images(question, case, target, Comparison(nodes, None, 0, 0.0, {}, 0))


def neighbours(tensor: torch.Tensor) -> torch.Tensor:
    """A fault by which each token sees the one before it."""
    return tensor + 0.3 * tensor.roll(1, -2)


def verdicts(images: Images) -> dict[str, str]:
    assert images.comparison is not None, images.facts
    return {facts.block.name: facts.block.verdict for facts in images.comparison.nodes}


@pytest.mark.parametrize("name", KINDS)
def test_a_clean_target_passes_at_every_node_of_tower_and_projector(
    model: Get, tmp_path: Path, name: str
) -> None:
    target = InProcessTarget("eager@cpu/bf16")
    images = compared(model(name), target, tmp_path)
    found = verdicts(images)
    shared = {name for name, verdict in found.items() if verdict == "unverified"}
    assert shared == ({"model.vision_model.class_embedding"} if name == "mllama" else set())
    assert {verdict for name, verdict in found.items() if name not in shared} == {"pass"}
    assert images.comparison is not None
    roles = [facts.block.role for facts in images.comparison.nodes]
    assert set(roles) == {"vision", "projector"}
    assert images.facts is not None
    assert {result.state for result in images.facts.results} == {"pass"}
    assert all(result.tokens and result.metrics for result in images.facts.results)
    assert not image_findings(images.facts, "t", "m")
    assert set(images.signatures) == set(found) - shared
    # What holds the tower's parameters is named once, as finely as it was compared.
    left = {facts.block.name for facts in images.text.nodes}
    assert not any(known == one or known.startswith(f"{one}.") for one in left for known in found)
    apart = {facts.block.name: facts.block.reason for facts in images.text.nodes}
    if name == "mllama":  # its layers that attend to an image need both at once
        assert apart.pop("model.language_model.layers.1") == NO_TEXT
    assert not apart


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("qwen2_5_vl", "model.visual.blocks.1"),
        pytest.param("qwen3_vl", "model.visual.deepstack_merger_list.0", marks=SLOW),
        ("llava", "model.multi_modal_projector"),
        pytest.param("gemma3", "model.vision_tower.encoder.layers.1", marks=SLOW),
        pytest.param("mistral3", "model.vision_tower.patch_conv", marks=SLOW),
    ],
)
def test_a_fault_of_one_node_is_named_there_and_seen_in_the_features(
    model: Get, tmp_path: Path, name: str, node: str
) -> None:
    images = compared(model(name), InProcessTarget("eager@cpu/bf16", {node: neighbours}), tmp_path)
    found = verdicts(images)
    assert [name for name, verdict in found.items() if verdict == "fail"] == [node]
    assert set(found.values()) <= {"pass", "inherited", "fail"}
    assert images.facts is not None
    assert images.facts.state == "fail"
    assert [finding.code for finding in image_findings(images.facts, "t", "m")] == ["NUM033"]


def test_an_epsilon_of_another_size_is_found_down_to_its_norm_in_fp32(model: Get, tmp_path: Path) -> None:
    node = "model.vision_tower.encoder.layers.1"
    target = InProcessTarget("eager@cpu/fp32")
    loaded = target._stack.loaded

    def changed(job: Any) -> Any:
        modules = loaded(job)
        if job.node == node:
            norm: Any = modules.module(node).get_submodule("layer_norm1")
            norm.eps = 1e-3
        return modules

    target._stack.loaded = changed  # type: ignore[method-assign]  # the seam of this test
    images = compared(model("gemma3"), target, tmp_path)
    assert [name for name, verdict in verdicts(images).items() if verdict == "fail"] == [node]
    assert images.comparison is not None
    fault = next(facts.fault for facts in images.comparison.nodes if facts.fault is not None)
    assert (fault.block, fault.fragment) == (node, f"{node}.layer_norm1")


def test_a_small_factor_that_later_norms_take_out_is_found_all_the_same(model: Get, tmp_path: Path) -> None:
    node = "model.visual.blocks.1"
    images = compared(model("qwen2_5_vl"), InProcessTarget("eager@cpu/bf16", {node: scaled(1.01)}), tmp_path)
    assert [name for name, verdict in verdicts(images).items() if verdict == "fail"] == [node]
    assert images.facts is not None
    assert images.facts.state == "pass"


def test_a_fault_that_shows_on_other_sizes_only_is_told_with_their_name(model: Get, tmp_path: Path) -> None:
    node, first = "model.visual.blocks.2", 8 * 12

    def over_the_end(tensor: torch.Tensor) -> torch.Tensor:
        """The second image of a call sees the first, as where the ends of images are not told."""
        return tensor if tensor.shape[0] == first else neighbours(tensor)

    target = InProcessTarget("eager@cpu/bf16", {node: over_the_end})
    images = compared(model("qwen2_5_vl"), target, tmp_path)
    assert images.comparison is not None
    facts = next(facts for facts in images.comparison.nodes if facts.block.name == node)
    assert facts.block.verdict == "fail"
    assert facts.block.reason.startswith("on image_aspect: ")
    assert set(facts.beyond) == {"image_aspect"}
    assert set(facts.ratios) == {"image", "image_aspect"}
    assert images.facts is not None
    one, other = images.facts.results
    assert (one.state, other.state) == ("pass", "fail")
    assert other.shown == "64 x 16 pixels, 16 x 4 patches and 16 x 48 pixels, 4 x 12 patches"
    assert other.tokens == (16 * 4 + 4 * 12) // 4


def test_a_target_that_dies_in_the_tower_keeps_the_rest(model: Get, tmp_path: Path) -> None:
    node = "model.vision_tower.encoder.layers.1"
    images = compared(model("llava"), InProcessTarget("eager@cpu/bf16", {node: dies}), tmp_path)
    found = verdicts(images)
    assert found.pop(node) == "fail"
    assert set(found.values()) == {"pass"}
    assert images.facts is not None
    assert [result.state for result in images.facts.results] == ["unverified"]


def test_finished_nodes_are_not_run_again(model: Get, tmp_path: Path) -> None:
    first, second = InProcessTarget("eager@cpu/bf16"), InProcessTarget("eager@cpu/bf16")
    before = compared(model("llava"), first, tmp_path)
    after = compared(model("llava"), second, tmp_path)
    assert first.runs
    assert not second.runs
    assert after.facts == before.facts
    assert [facts.block for facts in after.nodes] == [facts.block for facts in before.nodes]


def test_without_an_image_the_tower_says_why(model: Get, tmp_path: Path) -> None:
    images = compared(model("llava"), InProcessTarget("eager@cpu/bf16"), tmp_path, prompts="texts")
    assert images.comparison is None
    reasons = {facts.block.name: facts.block.reason for facts in images.text.nodes}
    assert set(reasons) == {"model.vision_tower", "model.multi_modal_projector"}
    assert set(reasons.values()) == {f"{NO_TEXT}, and no image ran: no image was asked for"}
    assert images.facts is not None
    assert images.facts.reason == "no image was asked for"


@SLOW
@pytest.mark.parametrize("name", ["qwen2_5_vl", "idefics3"])
def test_the_record_holds_images_and_text_and_the_text_is_as_without(
    model: Get, tmp_path: Path, name: str
) -> None:
    records = {}
    for prompts in ("image", "texts"):
        target = InProcessTarget("eager@cpu/bf16")
        one = model(name)
        question = Question(
            one.release, one.skeleton, RunStore(tmp_path / prompts), "", tokens=24,
            asked=NumericsOptions(prompts=prompts),
        )  # fmt: skip
        records[prompts] = measure_numerics(question, target, target.describe())
    facts = records["image"].facts
    assert {block.verdict for block in facts.blocks} == {"pass"}
    assert records["image"].verdict == "pass"
    tower = [block for block in facts.blocks if block.role in ("vision", "projector")]
    assert [*facts.blocks[: len(tower)]] == tower
    called = {node.name for node in model(name).skeleton.nodes if node.called}
    text = [block for block in records["texts"].facts.blocks if block.name in called]
    assert [*facts.blocks[len(tower) :]] == text
    assert facts.logits == records["texts"].facts.logits
    assert facts.manifest.expected == facts.manifest.seen == 2 * len(tower) + len(text)
    assert records["texts"].verdict == "unverified"

"""The reference's features against stock transformers' own, and what a wrong reading comes to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from day0.adapters.base.run_store import RunStore
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.image_arguments import image_arguments
from day0.adapters.models.image_features import feature_tensors
from day0.adapters.models.image_skeleton import build_image_skeleton
from day0.adapters.models.stock_features import StockFeatures
from day0.tasks.numerics.images import image_check
from day0.tasks.numerics.images.image_check import against_stock, check_images
from day0.tasks.numerics.images.image_findings import image_findings
from day0.tasks.numerics.images.image_passes import image_case
from day0.tasks.numerics.prompts.passes import MAIN
from day0.tasks.numerics.question import Question
from day0.tasks.numerics.record_parts import ImageFeatures
from day0.tasks.numerics.walk.case import Case
from day0.tasks.numerics.walk.forwards import REFERENCE
from day0.tasks.numerics.walk.lockstep import compare_model
from support.vision_models import save_vision

NAME = "transformers X from_pretrained fp32 eager"


def rows(count: int) -> torch.Tensor:
    return torch.randn((count, 8), generator=torch.Generator().manual_seed(count))


def test_one_wrong_row_is_enough() -> None:
    ours = [rows(6), rows(3)]
    assert against_stock(ours, StockFeatures(ours, "", NAME)).state == "pass"
    other = [ours[0].clone(), ours[1]]
    other[0][4] *= 1.001
    found = against_stock(ours, StockFeatures(other, "", NAME))
    assert found.state == "fail"
    assert float(found.value) == pytest.approx(0.001 / 1.001, rel=1e-3)
    findings = image_findings(ImageFeatures(reference_check=found), "t", "m")
    assert [finding.code for finding in findings] == ["NUM020"]


def test_features_that_are_not_finite_never_pass() -> None:
    ours, other = [rows(6)], [rows(6)]
    ours[0][2, 3] = float("nan")
    assert against_stock(ours, StockFeatures(other, "", NAME)).state == "fail"
    found = against_stock(ours, StockFeatures([ours[0].clone()], "", NAME))
    assert (found.state, found.value) == ("unverified", "NaN")
    assert "1 of 6 rows of features are not finite, neither its own nor those of" in found.detail


def test_other_shapes_and_no_answer_are_told() -> None:
    ours = [rows(6)]
    assert against_stock(ours, StockFeatures([rows(5)], "", NAME)).state == "fail"
    none = against_stock(ours, StockFeatures(None, "it takes too much", NAME))
    assert (none.state, none.method) == ("unverified", "none")
    assert none.detail == f"{NAME} was not run on the image: it takes too much"


@pytest.mark.slow
def test_a_real_tower_agrees_with_stock_and_the_answer_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = open_release(str(save_vision("qwen2_5_vl", tmp_path / "model")))
    found = build_image_skeleton(release)
    assert found.skeleton is not None
    case = Case(
        skeleton=found.skeleton, checkpoint=release.checkpoint, dtype="bf16",
        store=RunStore(tmp_path / "store"), target="", options={},
    )  # fmt: skip
    case = image_case(case, found.skeleton, found.calls)
    walked = compare_model(case, None)
    question = Question(release, found.skeleton, case.store, "")
    check = check_images(question, case, walked)
    assert (check.state, check.method) == ("pass", "from_pretrained"), check.detail
    assert 0 < float(check.value) < 1e-5
    monkeypatch.setattr(image_check, "stock_features", None)
    assert check_images(question, case, walked) == check

    given: Mapping[str, Any] = image_arguments(found.calls[0])
    model = transformers.AutoModelForImageTextToText.from_pretrained(release.model, dtype=torch.float32)
    with torch.no_grad():
        expected = model.eval().get_image_features(**given).pooler_output
    ours = feature_tensors(walked.outputs[MAIN][REFERENCE])
    torch.testing.assert_close(ours[0], expected[0], rtol=1e-4, atol=1e-5)

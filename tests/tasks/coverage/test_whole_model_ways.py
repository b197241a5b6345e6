"""Ways around that change the model itself: found without being named, judged on the target, chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from day0.adapters.base.operator_capture import Capture, CaptureRequest
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.models.capture_run import ask_capture
from day0.adapters.registries.registry import Registry
from day0.tasks.coverage.measure import measure_coverage
from day0.tasks.coverage.needs import request_of
from day0.tasks.coverage.question import Question
from day0.tasks.coverage.record import CoverageRecord
from support.simulated_target import OpenSimulated
from support.tiny_models import TINY

COMPLEX = "aten.polar.default aten.view_as_complex.default aten.view_as_real.default"


def _measured(
    open_simulated: OpenSimulated, config: Mapping[str, Any], missing: str, options: str = ""
) -> CoverageRecord:
    target = open_simulated(missing=missing)
    spec = TargetSpec.parse(f"{target.spec}{options}")

    def open_one(spec: TargetSpec) -> Any:
        ways = spec.options.get("with")
        return nullcontext(open_simulated(missing=missing, with_=ways) if ways else target)

    def capture_all(requests: Sequence[CaptureRequest]) -> Sequence[Capture]:
        return ask_capture(config, requests)

    (capture,) = capture_all([request_of(spec)])
    assert not capture.undecided
    return measure_coverage(
        Question(
            spec=spec,
            description=target.describe(),
            capture=capture,
            registry=Registry("simulated@cpu"),
            config=config,
            config_digest="c",
            open_target=open_one,
            capture_all=capture_all,
            budget=240.0,
        )
    )


@pytest.mark.slow
def test_complex_numbers_are_got_around_by_real_ones(open_simulated: OpenSimulated) -> None:
    sizes = dict(TINY["deepseek_v3"]) | {"num_key_value_heads": 4, "head_dim": 4}
    config = {"model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], "dtype": "bfloat16"}
    config |= {key: value for key, value in sizes.items() if key not in ("n_group", "topk_group")}
    record = _measured(open_simulated, config, COMPLEX)
    lacking = {gap.op for gap in record.facts.gaps if gap.status == "missing"}
    assert set(COMPLEX.split()) & lacking == lacking
    assert "aten.polar.default" in lacking
    assert [one.id for one in record.facts.chosen] == ["with=real_rotary"]
    chosen = next(one for one in record.facts.alternatives if one.chosen)
    assert not chosen.gaps
    assert {gap.workaround for gap in record.facts.gaps if gap.status == "missing"} == {"with=real_rotary"}
    assert record.verdict.value == "warn"


@pytest.mark.slow
def test_experts_one_after_the_other_get_around_a_grouped_product(open_simulated: OpenSimulated) -> None:
    config = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "dtype": "bfloat16"}
    named = "?attn=sdpa&experts=grouped_mm"  # what a person names stays, so only the model can be changed
    record = _measured(open_simulated, config | TINY["qwen3_moe"], "aten._grouped_mm.default", named)
    assert [gap.op for gap in record.facts.gaps] == ["aten._grouped_mm.default"]
    assert [one.id for one in record.facts.chosen] == ["with=loop_experts"]
    assert [list(one.gaps) for one in record.facts.alternatives] == [["aten._grouped_mm.default"], []]

"""The endpoint target against real servers: `transformers serve` and llama.cpp's Python server."""

from __future__ import annotations

from pathlib import Path

import pytest

from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.skeleton import build_skeleton
from day0.adapters.models.tokenizer import Tokenizer, load_tokenizer
from day0.adapters.targets.endpoint import EndpointTarget, Prompt
from day0.flows import demo_model
from day0.tasks.numerics.endpoint.endpoint_ask import Ask
from day0.tasks.numerics.endpoint.endpoint_compare import EndpointComparison, compare_endpoint
from day0.tasks.numerics.trust.following import Arms
from day0.tasks.numerics.trust.reference_check import streaming_arms
from support.real_servers import llama_cpp_server, transformers_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TEXTS = (
    "The capital of France is",
    "Water freezes at zero degrees Celsius and boils at one hundred degrees at sea level. The Earth goes",
    "def mean(values):\n    total = sum(values)\n    return",
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The demo model's folder and the GGUF that it was made from."""
    home = tmp_path_factory.mktemp("served")
    gguf = demo_model._gguf(home / "package")
    folder = demo_model.ensure_demo_model(home)
    return folder, gguf


def compared(folder: Path, url: str, model: str, arms: Arms | None = None) -> EndpointComparison:
    release = open_release(str(folder))
    tokenizer = load_tokenizer(release)
    assert isinstance(tokenizer, Tokenizer)
    arms = arms or streaming_arms(release, build_skeleton(release))
    asks = [Ask(text[:12], Prompt(text, tokenizer.encode(text, special=True))) for text in TEXTS]
    spec = TargetSpec.parse(f"endpoint/bf16?url={url}&model={model}")
    with EndpointTarget(spec, timeout=300.0) as target:
        return compare_endpoint(target, asks, tokenizer, arms, 8)


def test_greedy_tokens_of_transformers_serve_are_the_references(demo: tuple[Path, Path]) -> None:
    folder, _ = demo
    release = open_release(str(folder))
    skeleton = build_skeleton(release)
    other = skeleton.model_copy(update={"config": {**skeleton.config, "rope_theta": 500.0}})
    with transformers_server(folder) as url:
        found = compared(folder, url, str(folder))
        told = compared(folder, url, str(folder), streaming_arms(release, other))
    assert [finding.code for finding in found.findings] == ["NUM023"]  # it gives no log-probabilities
    assert "log-probabilities" in found.findings[0].message
    assert found.decode is not None
    assert found.decode.decisive == 0
    assert float(found.decode.top1) > 0.9
    assert found.says is not None
    assert found.says.target.startswith(" Paris")
    assert found.logits is None

    assert "NUM022" in [finding.code for finding in told.findings]
    assert told.decode is not None
    assert told.decode.decisive > 0


@pytest.mark.engine
def test_prompt_log_probabilities_of_llama_cpp_are_close_to_the_references(demo: tuple[Path, Path]) -> None:
    folder, gguf = demo
    with llama_cpp_server(gguf, "smollm2") as url:
        found = compared(folder, url, "smollm2")
    # Its weights are the release's, 4-bit, multiplied with 8-bit activations: near, and not the same.
    assert {finding.code for finding in found.findings} <= {"NUM025", "NUM022"}
    assert found.logits is not None
    assert found.logits.positions > 30
    assert float(found.logits.top1) > 0.85
    assert float(found.logits.top5) > 0.8
    assert 0 < float(found.logits.kl) < 0.05
    assert found.nats == pytest.approx(found.reference_nats, rel=0.05)
    assert found.decode is not None
    assert found.says is not None
    assert found.says.target.startswith(" Paris")

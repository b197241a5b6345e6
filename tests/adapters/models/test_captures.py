"""Captures by request: what the answer depends on, what is stored, and what a hostile config comes to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.base.operator_capture import Capture, CaptureRequest
from day0.adapters.base.release import Release
from day0.adapters.base.run_store import RunStore
from day0.adapters.models import capture_run
from day0.adapters.models.capture_model import capture_model
from day0.adapters.models.capture_run import ask_capture
from day0.adapters.models.captures import load_or_capture, load_or_capture_all
from support.layouts import make_release
from support.tiny_models import TINY

LLAMA = {"model_type": "llama", **TINY["llama"]}
MOE = {"model_type": "qwen3_moe", **TINY["qwen3_moe"]}


def asked(script: str, requests: int = 1, **more: Any) -> list[Capture]:
    wanted = [CaptureRequest(dtype=dtype) for dtype in ("bf16", "fp32", "fp16")[:requests]]
    return ask_capture(LLAMA, wanted, command=[sys.executable, "-c", script], **more)


def codes(capture: Capture) -> list[str]:
    return [anomaly.code for anomaly in capture.anomalies]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended with status -11"),
        ("raise MemoryError('no more')", "MemoryError: no more"),
        ("print('not json')", "ended with status 0"),
    ],
)
def test_a_process_that_dies_is_an_anomaly(script: str, said: str) -> None:
    (capture,) = asked(script)
    assert codes(capture) == ["capture_ended"]
    assert said in capture.anomalies[0].message
    assert capture.undecided == capture.anomalies


def test_one_that_hangs_is_ended_and_what_it_said_before_counts() -> None:
    script = (
        'import time; print(\'[0,{"kernels":[{"name":"hub:a/b","kind":"hub"}]}]\', flush=True);'
        'print(\'[1,{"captured_dtype":"fp32"}]\', flush=True); time.sleep(60)'
    )
    first, second, third = asked(script, requests=3, seconds=0.5)
    assert [kernel.name for kernel in first.kernels] == ["hub:a/b"]
    assert [codes(capture) for capture in (first, second, third)] == [
        [],
        ["capture_ended"],
        ["capture_ended"],
    ]
    assert "more than 1.5 s" in second.anomalies[0].message


def test_one_that_takes_too_much_memory_is_ended() -> None:
    (capture,) = asked("import time; x = b'x' * 300_000_000; time.sleep(60)", memory=100_000_000)
    assert "more than 100000000 bytes" in capture.anomalies[0].message


@pytest.mark.parametrize(
    ("config", "code", "said"),
    [
        ({"model_type": "never_heard_of"}, "E401", "is not known"),
        ({}, "E401", "no config"),
        ({"model_type": "own", "auto_map": {"AutoModel": "modeling.Own"}}, "E402", "repository's code"),
        ({"model_type": "llama", "hidden_size": "wide"}, "E403", "hidden_size"),
        ({"model_type": "llama", "num_hidden_layers": 10**9}, "E403", "more than 4096"),
    ],
)
def test_what_cannot_be_built_is_told_and_kernels_are_still_listed(
    config: dict[str, Any], code: str, said: str
) -> None:
    config = {**config, "quantization_config": {"quant_method": "mxfp4"}} if config else config
    capture = capture_model(config, CaptureRequest())
    assert [anomaly.evidence for anomaly in capture.undecided] == [code]
    assert said in capture.unbuilt
    names = {kernel.name for kernel in capture.kernels}
    assert ("hub:kernels-community/gpt-oss-triton-kernels" in names) == bool(config)
    if config.get("model_type") == "llama":
        assert any("LlamaRMSNorm" in kernel.required_by for kernel in capture.kernels)


def test_a_phase_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama import modeling_llama

    run = modeling_llama.LlamaModel.forward

    def forward(self: Any, input_ids: Any = None, **kwargs: Any) -> Any:
        if input_ids.shape[1] == 1:
            raise RuntimeError("no single tokens")
        return run(self, input_ids=input_ids, **kwargs)

    monkeypatch.setattr(modeling_llama.LlamaModel, "forward", forward)
    # The step is then tried with the whole sequence, which such a model may want.
    capture = capture_model(LLAMA, CaptureRequest())
    assert {call.phase for call in capture.calls} == {"prefill", "decode", "long_prefill", "sampling"}
    monkeypatch.setattr(modeling_llama.LlamaModel, "forward", lambda *_, **__: 1 / 0)
    capture = capture_model(LLAMA, CaptureRequest())
    assert {call.phase for call in capture.calls} == {"sampling"}
    assert [anomaly.subject for anomaly in capture.undecided] == ["prefill", "decode", "long_prefill"]


def test_implementations_are_those_that_are_asked_for() -> None:
    def ops(**asked: str) -> set[str]:
        return {call.op for call in capture_model(MOE, CaptureRequest(**asked)).calls}

    attention, grouped = "aten.scaled_dot_product_attention.default", "aten._grouped_mm.default"
    assert {attention, grouped} <= ops()
    assert not {attention, grouped} & ops(attn="eager", experts="batched_mm")
    assert "aten.index_add_.default" in ops(experts="eager")


def test_the_dtype_is_the_one_that_is_asked_for() -> None:
    capture = capture_model(MOE, CaptureRequest(dtype="fp32"))
    (experts, *_) = [call for call in capture.calls if call.op == "aten._grouped_mm.default"]
    assert list(experts.dtypes) == ["fp32", "fp32", "int32"]
    assert capture.captured_dtype == "fp32"
    assert not capture.anomalies
    assert capture_model(MOE, CaptureRequest(dtype="int8")).captured_dtype == "bf16"


def test_switch_points_are_counted_beside_the_operators() -> None:
    points = {
        (call.name, call.implementation): call.count
        for call in capture_model(MOE, CaptureRequest()).functions
        if call.phase == "prefill"
    }
    # three layers, the first dense: two norms and two of queries and keys a layer, and the last norm
    assert points["norm", "Qwen3MoeRMSNorm"] == 3 * 4 + 1
    assert points["attention", "sdpa"] == 3
    assert points["experts", "grouped_mm"] == 2
    assert points["linear", "linear"] == 3 * 4 + 3 + 2 + 1  # attention, one dense layer, two routers, head
    assert points["embedding", "embedding"] == 1


STORED = """
import sys
from day0.adapters.base.operator_capture import CaptureRequest
from day0.adapters.base.run_store import RunStore
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.captures import load_or_capture
capture = load_or_capture(open_release(sys.argv[1]), RunStore(sys.argv[2]), CaptureRequest())
print(len(capture.calls) > 100, sorted({"torch", "transformers"} & set(sys.modules)))
"""


def test_a_stored_capture_needs_neither_torch_nor_transformers(
    tiny_checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    for _ in range(2):
        answer = subprocess.run(
            [sys.executable, "-c", STORED, str(tiny_checkpoint("llama")), str(tmp_path)],
            capture_output=True, text=True, check=True, timeout=200,
        )  # fmt: skip
        assert answer.stdout.split() == ["True", "[]"]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[list[CaptureRequest]]:
    """The requests of each process that would be started."""
    seen: list[list[CaptureRequest]] = []

    def ask(config: Any, requests: Any, **_: Any) -> list[Capture]:
        seen.append(list(requests))
        return [Capture(request=request, captured_dtype="fp16") for request in requests]

    monkeypatch.setattr("day0.adapters.models.captures.ask_capture", ask)
    return seen


def test_each_request_and_config_is_taken_once(counted: list[list[CaptureRequest]], tmp_path: Path) -> None:
    store, plain, eager = RunStore(tmp_path), CaptureRequest(), CaptureRequest(attn="eager")
    release = make_release(LLAMA, {})
    load_or_capture(release, store, plain)
    found = load_or_capture_all(release, store, [eager, plain, CaptureRequest(device="npu")])
    assert [capture.request.attn for capture in found] == ["eager", "", ""]
    load_or_capture(make_release({**LLAMA, "num_hidden_layers": 2}, {}), store, plain)
    assert [[request.attn or request.device for request in asked] for asked in counted] == [
        ["cpu"],
        ["eager", "npu"],
        ["cpu"],
    ]
    (name, *_) = store.list("captures")
    store.write(f"captures/{name}", b"{")
    load_or_capture_all(release, store, [plain, eager])
    load_or_capture(make_release({**LLAMA, "num_hidden_layers": 2}, {}), store, plain)
    load_or_capture(release, store, CaptureRequest(device="npu"))
    assert len(counted) == 4


def test_what_was_cut_short_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_run, "SECONDS", 300.0)
    store, release = RunStore(tmp_path), make_release(LLAMA, {})
    monkeypatch.setattr(
        "day0.adapters.models.captures.ask_capture",
        lambda config, requests, **_: ask_capture(config, requests, command=[sys.executable, "-c", "1"]),
    )
    assert codes(load_or_capture(release, store, CaptureRequest())) == ["capture_ended"]
    assert not store.list("captures")


def test_a_releases_own_code_is_read_for_kernels(counted: list[list[CaptureRequest]], tmp_path: Path) -> None:
    from day0.adapters.checkpoints.release import open_release

    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"model_type": "own", "auto_map": {"AutoModel": "modeling_own.Own"}}'
    )
    code = folder / "modeling_own.py"
    code.write_text(
        "import triton\nfrom flash_attn import flash_attn_func\n\n@triton.jit\ndef gate(x): ...\n"
    )
    store = RunStore(tmp_path / "store")

    def kernels() -> dict[str, list[str]]:
        release: Release = open_release(str(folder))
        found = load_or_capture(release, store, CaptureRequest()).kernels
        return {kernel.name: list(kernel.required_by) for kernel in found if kernel.kind == "repository"}

    assert kernels() == {
        name: ["modeling_own.py"] for name in ("package:flash_attn", "package:triton", "triton:gate")
    }
    code.write_text("import triton\n")
    assert kernels() == {"package:triton": ["modeling_own.py"]}
    assert len(counted) == 2

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from day0.adapters.base.values import Anomaly
from day0.adapters.models.capture import capture_phases, long_prefill_tokens
from support.captured import calls_of, meta_model
from support.tiny_models import MORE, TINY, save_tiny


@pytest.mark.parametrize("model_type", ["llama", "qwen3_moe", "gpt_oss", "mamba2"])
def test_every_phase_is_captured(model_type: str) -> None:
    phases = {call.phase for call in calls_of(model_type)}
    assert phases == {"prefill", "decode", "long_prefill", "sampling"}


def test_counts_and_module_paths_are_the_models() -> None:
    (query,) = [
        call
        for call in calls_of("llama")
        if call.phase == "prefill" and call.op == "aten.mm.default" and list(call.shapes[1]) == [32, 32]
    ]
    # q_proj and o_proj of three layers are 32 by 32
    assert query.count == 6
    assert query.module == "model.layers.0.self_attn.q_proj"


def test_decode_reads_the_cache() -> None:
    attention = [
        call
        for call in calls_of("llama")
        if (call.phase, call.branch) == ("decode", "")
        and call.op == "aten.scaled_dot_product_attention.default"
    ]
    assert [list(map(list, call.shapes)) for call in attention] == [
        [[1, 4, 1, 8], [1, 2, 65, 8], [1, 2, 65, 8]]
    ]


def test_sampling_holds_what_generate_does() -> None:
    ops = {call.op for call in calls_of("llama") if call.phase == "sampling"}
    assert {
        "aten.argmax.default",
        "aten.topk.default",
        "aten.sort.default",
        "aten.multinomial.default",
    } <= ops


def test_a_phase_that_cannot_run_is_told_and_the_others_count() -> None:
    model = meta_model("llama")

    class NoCache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, **inputs: Any) -> Any:
            return {"logits": self.inner(**inputs).logits}

    told: list[Anomaly] = []
    calls = capture_phases(NoCache(), model.config, report=told.append)
    assert [(anomaly.code, anomaly.subject) for anomaly in told] == [
        ("decode_without_cache", "decode"),
        ("sampling_without_loop", "sampling"),  # a plain module has no `generate`
    ]
    assert {call.phase for call in calls} == {"prefill", "long_prefill", "sampling"}


@pytest.mark.parametrize(("device", "dtype"), [("cpu", "fp32"), ("cuda", "int32"), ("mps", "fp32")])
def test_model_code_is_told_the_device_that_is_claimed(device: str, dtype: str) -> None:
    # Grouped experts count tokens with histc: in float where the device is a CPU or Apple's, else in int.
    model = meta_model("qwen3_moe")
    counted = {
        call.dtypes[0]
        for call in capture_phases(model, model.config, device=device, report=_fail)
        if call.op == "aten.histc.default"
    }
    assert counted == {dtype}


def test_the_long_prefill_goes_beyond_the_window() -> None:
    from transformers import AutoConfig

    assert long_prefill_tokens(AutoConfig.for_model("llama", max_position_embeddings=128)) == 128
    assert long_prefill_tokens(AutoConfig.for_model("llama", max_position_embeddings=99999)) == 4096
    wide = AutoConfig.for_model("mistral", sliding_window=8000, max_position_embeddings=99999)
    assert long_prefill_tokens(wide) == 8001


@pytest.mark.slow
def test_a_671b_model_takes_seconds_and_little_memory() -> None:
    import subprocess
    import sys

    script = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from day0.adapters.base.values import Anomaly
from day0.adapters.models.capture import capture_phases
from support.peak import peak_resident_bytes
config = AutoConfig.for_model("deepseek_v3")
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
calls = capture_phases(model, config)
assert sum(p.numel() for p in model.parameters()) > 670e9
print(peak_resident_bytes())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(Path(__file__).parents[2])],
        capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip
    assert int(done.stdout.split()[-1]) < 800e6


def _fail(anomaly: Anomaly) -> None:
    raise AssertionError(anomaly.message)


class _Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base is untyped
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's base is untyped
        self.ops: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops.add(str(func))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def attention_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the one attention operator becomes on the CPU is the CPU's choice."""
    attention = torch.nn.functional.scaled_dot_product_attention

    def unseen(*args: Any, **kwargs: Any) -> torch.Tensor:
        with _disable_current_modes():
            return attention(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", unseen)


_HOST = {"aten.lift_fresh.default", "aten.detach.default", "prim.device.default"}
"""Bookkeeping of tensors that are on the host already."""

_FEW = ("llama", "mamba2")
_TWELVE = sorted(TINY | MORE)


@pytest.mark.parametrize(
    "model_type",
    [*_FEW, *(pytest.param(name, marks=pytest.mark.slow) for name in _TWELVE if name not in _FEW)],
)
@pytest.mark.usefixtures("attention_unseen")
def test_what_a_real_run_dispatches_was_captured(model_type: str, tmp_path: Any) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(save_tiny(model_type, tmp_path), dtype=torch.bfloat16)
    prompt, seen = torch.arange(20)[None], _Seen()
    with torch.no_grad(), seen:
        model.generate(prompt, max_new_tokens=3)
        model.generate(
            prompt, max_new_tokens=3, do_sample=True, top_k=50, top_p=0.9, temperature=0.7,
            repetition_penalty=1.1,
        )  # fmt: skip
    assert seen.ops - {call.op for call in calls_of(model_type)} <= _HOST


def test_twelve_architectures_are_run() -> None:
    assert len(_TWELVE) == 12

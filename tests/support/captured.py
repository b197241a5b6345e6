"""Operator calls of tiny models, and of single operators, for tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.models.capture import capture_phases
from day0.adapters.models.recorder import Recorder
from support.tiny_models import MORE, TINY


def meta_model(model_type: str, **changes: Any) -> torch.nn.Module:
    """A tiny model in bf16 on the meta device."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(model_type, **((TINY | MORE)[model_type] | changes))
    with torch.device("meta"):
        model: torch.nn.Module = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return model.eval()


@cache
def calls_of(model_type: str) -> tuple[OperatorCall, ...]:
    """All calls of a tiny model over all phases."""
    model = meta_model(model_type)
    return tuple(capture_phases(model, model.config, report=_fail))


def calls_in(run: Callable[[], Any], phase: str = "prefill") -> list[OperatorCall]:
    """What `run` dispatches on meta tensors."""
    recorder = Recorder(phase)
    with torch.no_grad(), recorder:
        run()
    return recorder.calls()


def call_of(function: Any, *args: Any, **kwargs: Any) -> OperatorCall:
    """One call of one overload on meta tensors."""
    return calls_in(lambda: function(*args, **kwargs))[0]


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A meta tensor."""
    return torch.empty(shape, dtype=dtype, device="meta")


def _fail(anomaly: Any) -> None:
    raise AssertionError(anomaly.message)

"""A model captured as asked, part by part: whatever one part comes to, the others are still answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from day0_worker.workarounds import announce

from ..base.errors import SkeletonError
from ..base.operator_call import OperatorCall
from ..base.operator_capture import Capture, CaptureRequest
from ..base.values import Anomaly
from ..workarounds.registry import references
from .architecture import BuiltModel, build_meta_model, declared_dtype
from .capture import phases_of
from .graph_capture import capture_graphs
from .image_capture import capture_image
from .merging import merged
from .static_kernels import kernels_of_config, kernels_of_model, kernels_of_type

CAPTURED = ("bf16", "fp16", "fp32", "fp64")
"""Dtypes in which transformers builds a model; others belong to weights alone."""
FALLBACK = "bf16"


def capture_model(config: Mapping[str, Any], request: CaptureRequest) -> Capture:
    """The whole capture; see `capture_parts`."""
    return merged(request, list(capture_parts(config, request)))


def capture_parts(config: Mapping[str, Any], request: CaptureRequest) -> Iterator[Capture]:
    """What a model asks of a stack, in parts that are to be merged; raises nothing for any config.

    Args:
        config: config.json as parsed.
        request: how to capture it.

    Yields:
        Kernels first, then one part a phase. A part whose `restarted` is set takes back all operators, calls
        of functions and anomalies before it.
    """
    yield Capture(request=request, kernels=kernels_of_config(config, request.attn, request.experts))
    dtype = _dtype(config, request)
    try:
        built = build_meta_model(config, dtype, _options(request))
    except SkeletonError as error:
        yield _not_built(config, request, str(error), error.code)
        return
    except Exception as error:  # a config is arbitrary input to third-party constructors
        text = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        yield _not_built(config, request, text, "E403")
        return
    yield Capture(request=request, kernels=kernels_of_model(built.model), captured_dtype=dtype)
    failed = False
    for part in _phases(built, request):
        failed = failed or any(anomaly.code == "phase_not_captured" for anomaly in part.anomalies)
        yield part
    if failed and dtype != FALLBACK:
        yield from _once_more(config, request, dtype)


def _phases(built: BuiltModel, request: CaptureRequest) -> Iterator[Capture]:
    anomalies: list[Anomaly] = []
    dtype = built.dtype
    if request.mode == "graph":
        graphs, anomalies = capture_graphs(built.model, request.device)
        yield Capture(request=request, calls=graphs.calls, anomalies=anomalies, captured_dtype=dtype)
        return
    plain: list[OperatorCall] = []
    for found in phases_of(built.model, built.model.config, device=request.device, report=anomalies.append):
        plain += [call for call in found.calls if call.phase == "prefill"]
        yield Capture(
            request=request,
            calls=found.calls,
            functions=found.functions,
            anomalies=anomalies[:],
            captured_dtype=dtype,
        )
        anomalies.clear()
    calls, functions, parts = capture_image(built.model, built.model.config, request.device, plain)
    yield Capture(
        request=request,
        calls=calls,
        functions=functions,
        anomalies=[*anomalies, *parts],
        captured_dtype=dtype,
    )


def _once_more(config: Mapping[str, Any], request: CaptureRequest, dtype: str) -> Iterator[Capture]:
    """In a dtype for which more meta kernels exist, where that gets further."""
    parts = list(_phases(build_meta_model(config, FALLBACK, _options(request)), request))
    if any(anomaly.code == "phase_not_captured" for part in parts for anomaly in part.anomalies):
        return
    told = Anomaly(
        code="captured_in_other_dtype",
        subject=dtype,
        message=f"operators were captured in {FALLBACK}, since {dtype} lacks meta kernels",
    )
    yield Capture(request=request, anomalies=[told], captured_dtype=FALLBACK, restarted=True)
    yield from parts


def _dtype(config: Mapping[str, Any], request: CaptureRequest) -> str:
    wanted = request.dtype or declared_dtype(config)
    return wanted if wanted in CAPTURED else FALLBACK


def _options(request: CaptureRequest) -> dict[str, str]:
    if request.ways:
        announce(references(), "")
    chosen = {"attn": request.attn, "experts": request.experts, "with": request.ways}
    return {name: value for name, value in chosen.items() if value}


def _not_built(config: Mapping[str, Any], request: CaptureRequest, text: str, code: str) -> Capture:
    """The reason, and the kernels of the model type's file as far as transformers has one."""
    anomaly = Anomaly(code="model_not_built", subject="config.json", message=text, evidence=code)
    model_type = config.get("model_type")
    kernels = kernels_of_type(model_type) if isinstance(model_type, str) else ()
    return Capture(request=request, anomalies=[anomaly], kernels=kernels)

"""A model captured as asked, part by part: whatever one part comes to, the others are still answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from day0_worker.workarounds import announce

from ..base.errors import SkeletonError, words_of
from ..base.operator_call import OperatorCall
from ..base.operator_capture import Capture, CaptureRequest
from ..base.values import Anomaly
from ..workarounds.registry import references
from .architecture import BuiltModel, build_meta_model, declared_dtype
from .capture import phases_of
from .config_remarks import remarks_of
from .graph_capture import capture_graphs
from .image_capture import capture_image
from .image_inputs import takes_images
from .merging import merged
from .static_kernels import kernels_of_config, kernels_of_model, kernels_of_type

CAPTURED = ("bf16", "fp16", "fp32", "fp64")
"""Dtypes in which transformers builds a model; others belong to weights alone."""
FALLBACK = "bf16"
PLAIN = "fp32"
"""In which models are tried that run in no other."""


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
    anomalies = remarks_of(config)
    try:
        built, config, told = _built(config, dtype, request)
    except SkeletonError as error:
        yield _not_built(config, request, str(error), error.code)
        return
    except Exception as error:  # a config is arbitrary input to third-party constructors
        text = words_of(error, 400)
        yield _not_built(config, request, text, "E403")
        return
    anomalies += told
    yield Capture(
        request=request, kernels=kernels_of_model(built.model), anomalies=anomalies, captured_dtype=dtype
    )
    failed = 0
    for part in _phases(built, request):
        failed += _failed(part)
        yield part
    if failed and (dtype != FALLBACK or not request.dtype):
        yield from _once_more(config, request, dtype, failed, anomalies)


def _built(
    config: Mapping[str, Any], dtype: str, request: CaptureRequest
) -> tuple[BuiltModel, Mapping[str, Any], list[Anomaly]]:
    """The model, or its text alone where a package is missing that only other parts need."""
    try:
        return build_meta_model(config, dtype, _options(request)), config, []
    except SkeletonError as error:
        text = config.get("text_config")
        if not (isinstance(error.__cause__, ImportError) and isinstance(text, Mapping)):
            raise
        why = f"only the text is captured: {error.message}"
        told = Anomaly(code="part_not_captured", subject="vision and audio", message=why)
        return build_meta_model(text, dtype, _options(request)), text, [told]


def _phases(built: BuiltModel, request: CaptureRequest) -> Iterator[Capture]:
    anomalies: list[Anomaly] = []
    dtype = built.dtype
    if request.mode == "graph":
        graphs, anomalies = capture_graphs(built.model, request.device)
        anomalies += _left_out(built.model)
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


def _left_out(model: Any) -> list[Anomaly]:
    """What graphs are not made of."""
    parts = ["decode steps", "sampling", *(["the vision part"] if takes_images(model) else [])]
    message = f"the graphs are those of a short prefill of text; none of {', '.join(parts)} is exported"
    return [Anomaly(code="graphs_of_prefill", subject="graphs", message=message)]


def _once_more(
    config: Mapping[str, Any], request: CaptureRequest, dtype: str, failed: int, anomalies: Sequence[Anomaly]
) -> Iterator[Capture]:
    """In a dtype that has more meta kernels, or that model code mixes with no other, where that helps."""
    other = FALLBACK if dtype != FALLBACK else PLAIN
    parts = list(_phases(build_meta_model(config, other, _options(request)), request))
    if sum(map(_failed, parts)) >= failed:
        return
    told = Anomaly(
        code="captured_in_other_dtype",
        subject=dtype,
        message=f"operators were captured in {other}, since the forward does not run in {dtype} on meta",
    )
    yield Capture(request=request, anomalies=[told, *anomalies], captured_dtype=other, restarted=True)
    yield from parts


def _failed(part: Capture) -> int:
    return sum(anomaly.code == "phase_not_captured" for anomaly in part.anomalies)


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

"""Kernels that torch's dispatcher does not show, as far as the config itself asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_BY_METHOD: Mapping[str, Sequence[str]] = {
    "fp8": ("hub:kernels-community/finegrained-fp8", "hub:kernels-community/deep-gemm"),
    "fbgemm_fp8": ("hub:kernels-community/fp8-fbgemm",),
    "mxfp4": ("hub:kernels-community/gpt-oss-triton-kernels",),
    "eetq": ("hub:kernels-community/quantization-eetq",),
}
"""Quantisation method -> kernels that transformers 5 fetches for it (transformers/integrations)."""


def kernels_of(config: Mapping[str, Any]) -> Sequence[str]:
    """Names of the kernels that loading the release as it is stored needs, sorted.

    Args:
        config: config.json as parsed.
    """
    method = _method(config) or _method(config.get("text_config"))
    return sorted(_BY_METHOD.get(method, ()))


def _method(config: Any) -> str:
    quantization = config.get("quantization_config") if isinstance(config, Mapping) else None
    return str(quantization.get("quant_method", "")) if isinstance(quantization, Mapping) else ""

"""Captures kept in the run store, so that neither torch nor transformers is imported for a known one."""

from __future__ import annotations

from ..base.operator_capture import Capture, CaptureRequest
from ..base.release import Release
from ..base.run_store import RunStore
from .skeleton_store import load_or_build_skeleton


def load_or_capture(release: Release, store: RunStore, request: CaptureRequest) -> Capture:
    """Everything the model asks of a stack, as stored or captured now and stored.

    Raises:
        SkeletonError: the structure cannot be built.
    """
    skeleton = load_or_build_skeleton(release, store)
    fallen_back = any(anomaly.code == "captured_in_other_dtype" for anomaly in skeleton.anomalies)
    return Capture(
        request=request,
        calls=skeleton.operators,
        anomalies=skeleton.anomalies,
        captured_dtype="bf16" if fallen_back else skeleton.dtype,
        builder=skeleton.builder,
    )

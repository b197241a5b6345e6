"""A release whose tensors cannot be read safely, or that has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from day0.adapters.base.checkpoint import IndexSummary, TensorFault, TensorInfo
from day0.adapters.base.errors import CheckpointError
from day0.adapters.base.values import Anomaly


class PlainCheckpoint:
    """No tensors.

    Args:
        format: `pickle` or `none`.
        shards: the files that were found.
        anomalies: why there are no tensors.
    """

    tensors: Mapping[str, TensorInfo] = {}
    header_bytes = 0
    faults: Sequence[TensorFault] = ()
    index: IndexSummary | None = None
    layout: Mapping[str, str] = {}

    def __init__(self, format: str, shards: Sequence[str] = (), anomalies: Sequence[Anomaly] = ()) -> None:
        self.format = format
        self.shards = tuple(shards)
        self.anomalies: Sequence[Anomaly] = tuple(anomalies)

    def identity(self, name: str) -> str:
        """There is no tensor.

        Raises:
            CheckpointError: E302, always.
        """
        raise self._no_tensor(name)

    def path(self, name: str) -> Path:
        """There is no tensor.

        Raises:
            CheckpointError: E302, always.
        """
        raise self._no_tensor(name)

    def read(self, name: str) -> bytes:
        """There is no tensor.

        Raises:
            CheckpointError: E302, always.
        """
        raise self._no_tensor(name)

    def _no_tensor(self, name: str) -> CheckpointError:
        return CheckpointError(
            f"tensor {name} cannot be read from a checkpoint of format {self.format}",
            code="E302",
            remedy="Give a release with safetensors or GGUF weights.",
        )


def pickle_checkpoint(files: Sequence[str], sizes: Mapping[str, int]) -> PlainCheckpoint:
    """Weights that only unpickling could read, which may run anything: named, never loaded."""
    held = sum(sizes[file] for file in files)
    message = f"the weights are {len(files)} pickles with {held} bytes; they may run any code and stay unread"
    anomaly = Anomaly(code="pickle_only", subject=files[0], message=message, evidence=", ".join(files[:5]))
    return PlainCheckpoint("pickle", files, [anomaly])


def no_checkpoint() -> PlainCheckpoint:
    """A release without weights."""
    message = "the release has no weights: no safetensors, GGUF or pickle files"
    return PlainCheckpoint("none", (), [Anomaly(code="no_weights", subject="release", message=message)])

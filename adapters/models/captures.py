"""Captures kept in the run store, so that neither torch nor transformers is imported for a known one."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError

from ..base.operator_capture import Capture, CaptureRequest
from ..base.progress import Progress, silent
from ..base.release import Release
from ..base.run_store import RunStore
from ..base.source import SourceFile
from ..base.values import digest
from .capture_run import ask_capture
from .capture_version import CAPTURE_VERSION
from .code_reading import MAX_BYTES
from .merging import builder, merged_kernels

MAX_CODE_FILES = 100


def load_or_capture(
    release: Release, store: RunStore, request: CaptureRequest, *, progress: Progress = silent
) -> Capture:
    """Everything the model asks of a stack, as stored or captured now; see `load_or_capture_all`."""
    return load_or_capture_all(release, store, [request], progress=progress)[0]


def load_or_capture_all(
    release: Release,
    store: RunStore,
    requests: Sequence[CaptureRequest],
    *,
    progress: Progress = silent,
) -> list[Capture]:
    """One capture a request, in order; those that are not stored are taken by one process of their own.

    Nothing about a config is an error: what could not be had is an anomaly of the capture (see
    `Capture.unbuilt` and `Capture.undecided`), and the rest is there. A capture whose process was ended or
    died is not stored, so that the next run tries again. The key holds the config, the request, the release's
    own code, and the versions of torch, transformers and of the capture itself.

    Args:
        release: config and, for its own code, the source.
        store: keeps captures under `captures/`.
        requests: how to capture; no release file is executed for any of them.
        progress: told while a process works.

    Raises:
        SourceError: the release's own code cannot be read.
    """
    names = [_name(release, request) for request in requests]
    known = {name: found for name in names if (found := _stored(store, name)) is not None}
    wanted = {name: request for name, request in zip(names, requests, strict=True) if name not in known}
    taken = ask_capture(release.config, list(wanted.values()), progress=progress) if wanted else []
    for name, capture in zip(wanted, taken, strict=True):
        known[name] = with_code(release, capture)
        if not any(anomaly.code == "capture_ended" for anomaly in capture.anomalies):
            store.write(name, known[name].model_dump_json(exclude_defaults=True).encode())
    return [known[name] for name in names]


def with_code(release: Release, capture: Capture) -> Capture:
    """The capture with the kernels that the release's own code asks for, which is read and never run."""
    files = _code(release)
    if not files or release.source is None:
        return capture
    from .static_kernels import kernels_of_code

    read = {file.path: release.source.read(file.path) for file in files}
    kernels = merged_kernels([*capture.kernels, *kernels_of_code(read)])
    return capture.model_copy(update={"kernels": kernels})


def _code(release: Release) -> list[SourceFile]:
    if release.source is None:
        return []
    files = [file for file in release.source.files() if file.path.endswith(".py") and file.size <= MAX_BYTES]
    return files[:MAX_CODE_FILES]


def _name(release: Release, request: CaptureRequest) -> str:
    try:
        versions = builder()
    except PackageNotFoundError:
        versions = {}
    key = {
        "config": release.config_digest,
        "request": request.model_dump(),
        "code": {file.path: file.identity for file in _code(release)},
        "builder": versions,
        "version": CAPTURE_VERSION,
    }
    return f"captures/{digest(key)}.json"


def _stored(store: RunStore, name: str) -> Capture | None:
    if not store.exists(name):
        return None
    try:
        return Capture.model_validate_json(store.read(name))
    except ValueError:
        store.remove(name)
        return None

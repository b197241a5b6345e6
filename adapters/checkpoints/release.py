"""Opens a release: its source, its config and its tensors."""

from __future__ import annotations

from pathlib import Path

from day0.adapters.base.errors import AccessError, InputError, SourceError
from day0.adapters.base.release import Release
from day0.adapters.base.source import Source
from day0.adapters.base.values import Anomaly
from day0.adapters.sources.local import existing_path
from day0.adapters.sources.resolve import open_source, split_revision

from .gguf import SUFFIX as GGUF
from .gguf_config import gguf_config
from .gguf_header import GgufError, read_gguf_header
from .listing import listing_checkpoint
from .naming import families, pickle_files
from .open import open_checkpoint
from .plain import no_checkpoint
from .release_config import MAX_CONFIG_BYTES, parse_config

CONFIG = "config.json"
SAFETENSORS = ".safetensors"
# Files that tell what a repository without a config is.
_KINDS = {
    "adapter_config.json": "is an adapter (adapter_config.json), as LoRA makes them, without its base model",
    "model_index.json": "is a pipeline of diffusers (model_index.json), whose parts have folders and configs "
    "of their own",
}
# Vendors' own configs, read where there is no config.json: names and shapes are worth an inventory.
VENDOR_CONFIGS = ("params.json",)


def open_release(model: str, revision: str | None = None) -> Release:
    """What every stage is given of the model.

    Where a source lists files that this account may not read, config and tensors stay empty and the
    checkpoint remarks `listing_only`. Weights without a config are opened with an empty one and the remark
    `no_config`.

    Args:
        model: a folder, a hub id, what a source plugin knows, or a bare config.json; `NAME@REV` pins.
        revision: commit, tag or branch.

    Raises:
        InputError: the model as named cannot be used: E101 to E109 and E131 to E133.
    """
    name, pinned = split_revision(model, revision)
    bare = named_file(name, pinned)
    if bare is not None and bare.suffix == ".json":
        if bare.stat().st_size > MAX_CONFIG_BYTES:
            raise InputError(
                f"{name} has more than the {MAX_CONFIG_BYTES} bytes a config may have", code="E103"
            )
        return Release(name, None, parse_config(bare.read_bytes(), name), no_checkpoint())
    source = open_source(model, revision)
    try:
        file = config_file(source)
        if not has_config(source) and has_weights(source):
            checkpoint = open_checkpoint(source)
            checkpoint.anomalies = (*checkpoint.anomalies, _no_config(source))
            return Release(name, source, {}, checkpoint, file)
        return Release(name, source, read_config(source), open_checkpoint(source), file)
    except AccessError as refusal:  # what the listing says is worth a record
        checkpoint = listing_checkpoint(source, refusal)
        checkpoint.anomalies = (*source.anomalies, *checkpoint.anomalies)
        return Release(name, source, {}, checkpoint)
    except SourceError as error:
        raise InputError(error.message, code=error.code, remedy=error.remedy) from error


def named_file(name: str, revision: str | None) -> Path | None:
    """The file of that name, a bare config; None where the name is not one of a file.

    Raises:
        InputError: E135, a revision is asked of a file.
    """
    place = existing_path(name)
    if place is None or not place.is_file():
        return None
    if revision is not None:
        raise InputError(
            f"{name} was given with the revision {revision!r}, but a file has none",
            code="E135",
            remedy="Leave the revision out.",
        )
    return place


def has_config(source: Source) -> bool:
    """Whether a file is there that states the model's numbers."""
    name = config_file(source)
    return any(file.path == name for file in source.files())


def has_weights(source: Source) -> bool:
    """Whether the release holds tensor files of any format, or an index that announces some."""
    sizes = {file.path: file.size for file in source.files()}
    ends = (SAFETENSORS, GGUF, f"{SAFETENSORS}.index.json")
    return bool(pickle_files(sizes)) or any(path.endswith(ends) for path in sizes)


def _no_config(source: Source) -> Anomaly:
    paths = {file.path for file in source.files()}
    kind = next((said for name, said in _KINDS.items() if name in paths), "has weights and no " + CONFIG)
    message = f"{source.name} {kind}: names, dtypes and shapes are all that is known"
    return Anomaly(code="no_config", subject="release", message=message, evidence=CONFIG)


def config_file(source: Source) -> str:
    """config.json; where there is none the vendor's own config, or the GGUF file whose header says it all."""
    paths = {file.path for file in source.files()}
    if CONFIG in paths:
        return CONFIG
    vendor = next((name for name in VENDOR_CONFIGS if name in paths), None)
    if vendor is not None:
        return vendor
    sets = families(paths, GGUF) if not any(path.endswith(SAFETENSORS) for path in paths) else []
    return sets[0].files[0] if sets else CONFIG


def read_config(source: Source) -> dict[str, object]:
    """What `config_file` names, parsed.

    Raises:
        AccessError: it is there, but this account may not read it.
        InputError: E102, there is none; E103, it is not usable as one; what reading it met.
    """
    name = config_file(source)
    size = next((file.size for file in source.files() if file.path == name), None)
    if size is None:
        raise InputError(
            f"{source.name} has no {CONFIG}",
            code="E102",
            remedy="Give a folder or repository in Hugging Face format, with config.json at its top, "
            "or one of GGUF files.",
        )
    if name.endswith(GGUF):
        return _read_gguf_config(source, name, size)
    if size > MAX_CONFIG_BYTES:
        raise InputError(
            f"{name} of {source.name} has {size} bytes, a config may have {MAX_CONFIG_BYTES}",
            code="E103",
        )
    try:
        return parse_config(source.read(name), f"{name} of {source.name}")
    except SourceError as error:
        raise InputError(error.message, code=error.code, remedy=error.remedy) from error


def _read_gguf_config(source: Source, name: str, size: int) -> dict[str, object]:
    try:
        return gguf_config(read_gguf_header(lambda start, stop: source.read(name, start, stop), size).values)
    except GgufError:
        return {}  # the checkpoint says what is wrong with the file
    except SourceError as error:
        raise InputError(error.message, code=error.code, remedy=error.remedy) from error

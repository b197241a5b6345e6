"""A reference bundle: everything that comparing a target needs of the reference, in one file.

A zip archive of stored (not compressed) parts: `bundle.json` with structure, tokens, fingerprints and the
list of calls; `calls/N` with the tensors of call N, as units are packed: the reference's inputs in the
target's dtypes, its outputs, the noise arm's, what routers chose. Nothing in it is executed, and reading it
needs neither transformers nor the machine it was made on.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import ValidationError

from day0.adapters.base.errors import InputError
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.values import Value

from ..spread.span import SpanPass
from ..walk.units import DamagedUnit, Unit, packed, unpacked

FORMAT = 1
_HEAD = "bundle.json"
_LARGEST_HEAD = 512 * 2**20
_LARGEST_CALL = 16 * 2**30


class BundleCall(Value):
    """One call of a node.

    Attributes:
        node: its name.
        passes: names of the passes that it was made in.
        links: pass -> tensor of its inputs -> (number of the call, tensor of that call's output) that it is.
        open: passes in which an input of the node is made by the model's own code from what other nodes gave,
            so that nobody without that code can make it from other outputs.
    """

    node: str
    passes: Sequence[str]
    links: Mapping[str, Mapping[str, tuple[int, str]]] = {}
    open: Sequence[str] = ()


class BundleHead(Value):
    """What a bundle says of itself.

    Attributes:
        format: of the file.
        model: as it was named.
        revision: pinned; empty for a folder.
        config_digest: of config.json.
        structure: digest over name, dtype and shape of every tensor of the checkpoint.
        contents: tensor -> digest of its bytes, of all that the reference read.
        skeleton: of the model.
        reference: what the reference was, e.g. `transformers 5.24.0 cpu fp32`.
        reference_dtype: short name.
        dtype: short name of the precision of weights and activations, which the inputs have.
        precision: of the target where its products are in a narrower one; empty: `dtype`.
        noise: what the noise arm was then; empty: the reference in `dtype`.
        options: of the target that change the reference's own graph (`attn`).
        dtypes: kind -> parameter -> dtype in which a model in that precision holds it.
        prompt: that was continued.
        prompt_tokens: how many of the main pass's tokens are the prompt; 0 where there was no tokenizer.
        said: how many after these are the reference's continuation.
        passes: every forward.
        left_out: prompt -> why it is not in the bundle.
        calls: in order.
        check: whether the reference itself was found right, as JSON of a `ReferenceCheck`.
        attention: with which the reference ran, e.g. `sdpa`; empty in a bundle that does not say.
        own_attention: with which it runs for a target that names none; likewise.
    """

    format: int
    model: str
    revision: str
    config_digest: str
    structure: str
    contents: Mapping[str, str]
    skeleton: Skeleton
    reference: str
    reference_dtype: str
    dtype: str
    options: Mapping[str, str]
    dtypes: Mapping[str, Mapping[str, str]]
    prompt: str
    prompt_tokens: int
    said: int
    passes: Sequence[SpanPass]
    left_out: Mapping[str, str]
    calls: Sequence[BundleCall]
    check: Mapping[str, Any] = {}
    precision: str = ""
    noise: str = ""
    attention: str = ""
    own_attention: str = ""

    @property
    def computes_in(self) -> str:
        """Short name of the precision of the targets that it is for."""
        return self.precision or self.dtype


class BundleWriter:
    """Writes calls as they come and the head at the end; the file appears only when it is whole.

    Args:
        path: of the file, which is replaced.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._partial = path, path.with_name(f"{path.name}.partial")
        self._zip = zipfile.ZipFile(self._partial, "w", zipfile.ZIP_STORED, allowZip64=True)
        self.calls: list[BundleCall] = []

    def add(self, call: BundleCall, unit: Unit) -> None:
        """Adds the next call with its tensors."""
        with self._zip.open(_member(len(self.calls)), "w", force_zip64=True) as part:
            part.write(packed(unit))
        self.calls.append(call)

    def finish(self, head: BundleHead) -> None:
        """Writes the head; then the file is there."""
        self._zip.writestr(_HEAD, head.model_dump_json())
        self._zip.close()
        self._partial.replace(self._path)

    def give_up(self) -> None:
        """Removes what was written."""
        self._zip.close()
        self._partial.unlink(missing_ok=True)


class Bundle:
    """An opened bundle; use it as a context manager.

    Args:
        path: of the file.

    Raises:
        InputError: E191, the file is no bundle or a damaged one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
            self.head = _head(self._zip)
        except (zipfile.BadZipFile, KeyError, ValueError, ValidationError, OSError, RecursionError) as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise InputError(
                f"{path} is no reference bundle that can be read: {reason}",
                code="E191",
                remedy="Write it anew with day0 reference capture.",
            ) from error

    def unit(self, number: int) -> Unit:
        """The tensors of one call.

        Raises:
            InputError: E191, they are not there or damaged.
        """
        name = _member(number)
        try:
            info = self._zip.getinfo(name)
            if info.file_size > _LARGEST_CALL or info.compress_type != zipfile.ZIP_STORED:
                raise DamagedUnit(f"{name} claims {info.file_size} bytes")
            return unpacked(self._zip.read(info))
        except (KeyError, zipfile.BadZipFile, DamagedUnit, EOFError) as error:
            raise InputError(
                f"{self.path} is damaged at {name}: {error}",
                code="E191",
                remedy="Write it anew with day0 reference capture.",
            ) from error

    def __enter__(self) -> Bundle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()


def _head(archive: zipfile.ZipFile) -> BundleHead:
    info = archive.getinfo(_HEAD)
    if info.file_size > _LARGEST_HEAD or info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{_HEAD} claims {info.file_size} bytes")
    content = json.loads(archive.read(info))
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else None
        raise ValueError(f"its format is {found!r}, this version reads {FORMAT}")
    return BundleHead.model_validate(content)


def _member(number: int) -> str:
    return f"calls/{number:06d}"

"""Stored bytes of a checkpoint's tensors: views of files that are here, or ranges fetched into memory.

A release from afar whose weights are few is staged on the disk, node by node; a large one is never written
there: its ranges are read side by side into memory and dropped with whatever they were read for.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from day0_worker.dtypes import torch_dtype

from ..base.checkpoint import Checkpoint, fetch_tensors, tensor_blocks
from ..base.errors import CheckpointError, SourceError
from .buffers import Buffers
from .range_requests import Key, requests
from .weights import is_leaf, leaf_of, tensors_in

STAGED_BYTES = 8 * 2**30
"""Weights of a release from afar up to which they are kept on the disk, for the stages to come."""

_STREAMS = 4  # requests at a time; one of them takes about one core at 1 GB/s


@dataclass(frozen=True, eq=False)
class Held:
    """Bytes that are in memory, or on their way.

    Attributes:
        tensor: of uint8, to be read after `wait`.
        jobs: that fill it.
    """

    tensor: torch.Tensor
    jobs: Sequence[Future[None]]

    def wait(self) -> torch.Tensor:
        """The bytes, once all are there.

        Raises:
            SourceError: they cannot be read.
            CheckpointError: E301, the file ends before.
        """
        for job in self.jobs:
            job.result()
        return self.tensor


class RawTensors:
    """The tensors of one checkpoint as stored. Use `close` at the end.

    Args:
        checkpoint: whose tensors.
        budget: bytes that may lie ready, or be kept for another time, beside those in use.
        buffers: for what is fetched.

    Attributes:
        bytes_read: of the checkpoint so far.
    """

    def __init__(self, checkpoint: Checkpoint, budget: int, buffers: Buffers) -> None:
        self.bytes_read = 0
        self._checkpoint, self._budget, self._buffers = checkpoint, budget, buffers
        self._pool = ThreadPoolExecutor(_STREAMS, thread_name_prefix="day0-weights")
        self._lock = threading.Lock()
        self._ready: OrderedDict[Key, Held] = OrderedDict()  # used before, and perhaps again
        self._ahead: dict[str, dict[Key, Held]] = {}  # to be used, by what they are for
        self._staging: dict[str, Future[None]] = {}
        self._remote: dict[str, bool] = {}
        self._staged = _is_small(checkpoint)

    def leaf(self, name: str) -> dict[str, Any]:
        """Where a tensor's bytes are: `file` is a path here, or with `remote` one of the release.

        Raises:
            CheckpointError: E330, the checkpoint has no such tensor.
        """
        info = self._checkpoint.tensors.get(name)
        if info is not None and self._is_remote(info.file) and not self._staged:
            place = {"file": info.file, "offset": info.offset}
            return {**place, "dtype": info.dtype, "shape": list(info.shape), "remote": True}
        return leaf_of(name, self._checkpoint)

    def stage(self, names: Iterable[str]) -> None:
        """Brings tensors to the disk side by side, where they belong there and are not there yet.

        Raises:
            SourceError: they cannot be fetched.
        """
        known = [name for name in names if name in self._checkpoint.tensors]
        for job in dict.fromkeys(self._staging.pop(name) for name in known if name in self._staging):
            job.result()
        self._stage(known)

    def _stage(self, names: Sequence[str]) -> None:
        if not self._staged:
            return
        try:
            fetch_tensors(self._checkpoint, names)
        except SourceError as error:
            if error.code != "E210":
                raise
            self._staged = False  # there is no room: read into memory as those of a large release

    def hold(self, expressions: Iterable[Any]) -> dict[Key, Held]:
        """Bytes of all remote leaves of these expressions, asked for side by side; of local ones none."""
        keys = [_key(leaf) for leaf in leaves_in(list(expressions)) if leaf.get("remote")]
        found = self._known(keys)
        found |= self._ask([key for key in dict.fromkeys(keys) if key not in found])
        for batch in self._ahead.values():
            for key in found:
                batch.pop(key, None)
        self._ready |= found
        for key in found:
            self._ready.move_to_end(key)
        self._trim()
        return found

    def prefetch(self, recipes: Sequence[Any]) -> None:
        """Begins to stage or to read what is next, without waiting; see `read_ahead`.

        Args:
            recipes: expressions of a skeleton.
        """
        names = [name for name in tensors_in(list(recipes)) if name in self._checkpoint.tensors]
        if self._staged and any(self._is_remote(self._checkpoint.tensors[name].file) for name in names):
            self._staging |= dict.fromkeys(names, self._pool.submit(self._stage, names))
            return
        self.read_ahead([self.leaf(name) for name in names], "node")

    def read_ahead(self, expressions: Iterable[Any], what: str) -> None:
        """Begins to read these, as far as the budget goes; what was begun under the same word is dropped.

        Args:
            expressions: that are to come next.
            what: they are for.
        """
        self._ahead.pop(what, None)
        room = self._budget - sum(key[2] for batch in self._ahead.values() for key in batch)
        chosen: list[Mapping[str, Any]] = []
        for leaf in leaves_in(list(expressions)):
            room -= _key(leaf)[2]
            if room < 0:
                break
            chosen.append(leaf)
        keys = dict.fromkeys(_key(leaf) for leaf in chosen if leaf.get("remote"))
        known = self._known(list(keys))
        self._ahead[what] = known | self._ask([key for key in keys if key not in known])
        self._trim()
        self._pool.submit(_announce, [_key(leaf) for leaf in chosen if not leaf.get("remote")])

    def count(self, expression: Any) -> None:
        """Counts the bytes of local leaves as read; remote ones are counted as they come."""
        self.bytes_read += sum(_key(leaf)[2] for leaf in leaves_in(expression) if not leaf.get("remote"))

    def close(self) -> None:
        """Ends what is on its way and drops what is kept."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._ready.clear()
        self._ahead.clear()

    def _is_remote(self, file: str) -> bool:
        """Whether the file is not here, and this checkpoint can be read without its being here."""
        if file not in self._remote:
            here = getattr(self._checkpoint, "here", None)
            self._remote[file] = here is not None and here(file) is None
        return self._remote[file]

    def _ask(self, keys: Sequence[Key]) -> dict[Key, Held]:
        tensors = {key: self._buffers.take([key[2]], torch.uint8) for key in keys}
        jobs: dict[Key, list[Future[None]]] = {key: [] for key in keys}
        for file, start, pieces in requests(sorted(keys)):
            parts = [_bytes_of(tensors[key], first, last) if key else memoryview(bytearray(last - first))
                     for key, first, last in pieces]  # fmt: skip
            job = self._pool.submit(self._read, file, start, parts)
            for key, _, _ in pieces:
                if key:
                    jobs[key].append(job)
        return {key: Held(tensors[key], jobs[key]) for key in keys}

    def _read(self, file: str, start: int, parts: Sequence[memoryview]) -> None:
        reader: Any = self._checkpoint
        reader.read_into(file, start, parts)
        with self._lock:
            self.bytes_read += sum(map(len, parts))

    def _known(self, keys: Sequence[Key]) -> dict[Key, Held]:
        places = [self._ready, *self._ahead.values()]
        return {key: place[key] for place in places for key in keys if key in place}

    def _trim(self) -> None:
        """Lets go of what was used longest ago, until what is kept and what is to come fits the budget."""
        held = sum(key[2] for place in (self._ready, *self._ahead.values()) for key in place)
        while self._ready and held > self._budget:
            key, _ = self._ready.popitem(last=False)
            held -= key[2]


def located(held: Mapping[Key, Held], expression: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """The expression for `day0_worker.weights.evaluate`, with the values of its remote leaves."""
    values: dict[str, torch.Tensor] = {}

    def placed(part: Any) -> Any:
        if isinstance(part, list):
            return [placed(item) for item in part]
        if not isinstance(part, Mapping):
            return part
        if not is_leaf(part):
            return {key: placed(value) for key, value in part.items()}
        if not part.get("remote"):
            return part
        key = _key(part)
        name = f"{key[0]}:{key[1]}:{key[2]}"
        values[name] = _shaped(held[key].wait(), part)
        return {"value": name}

    return placed(expression), values


def remote_keys(expression: Any) -> set[Key]:
    """What `RawTensors.hold` asks for, for an expression."""
    return {_key(leaf) for leaf in leaves_in(expression) if leaf.get("remote")}


def leaves_in(expression: Any) -> Iterator[Mapping[str, Any]]:
    """All leaves of an expression, or of several."""
    if isinstance(expression, list):
        for part in expression:
            yield from leaves_in(part)
    elif isinstance(expression, Mapping):
        if is_leaf(expression):
            yield expression
        else:
            yield from leaves_in(list(expression.values()))


def _shaped(raw: torch.Tensor, leaf: Mapping[str, Any]) -> torch.Tensor:
    try:
        return raw.view(torch_dtype(leaf["dtype"])).reshape(leaf["shape"])
    except (ValueError, RuntimeError) as error:
        raise CheckpointError(f"bytes of {leaf['file']} are no tensor: {error}", code="E301") from error


def _key(leaf: Mapping[str, Any]) -> Key:
    size = torch_dtype(leaf["dtype"]).itemsize
    for dim in leaf["shape"]:
        size *= dim
    return leaf["file"], leaf["offset"], size


def _bytes_of(tensor: torch.Tensor, first: int, last: int) -> memoryview:
    return tensor.numpy().data[first:last]  # holds the memory


def _is_small(checkpoint: Checkpoint) -> bool:
    held = sum(kind.bytes for block in tensor_blocks(checkpoint.tensors) for kind in block.kinds)
    return held <= STAGED_BYTES


def _announce(keys: Iterable[Key]) -> None:
    """Tells the kernel which parts of files are read next."""
    with suppress(OSError, AttributeError):  # only a hint, which not every system takes
        for file, offset, size in keys:
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(descriptor)

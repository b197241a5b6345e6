"""A hub that makes the weights of `numerics_release` as they are asked for; a process of its own.

    python benchmarks/numerics_server.py FOLDER

Says where it listens; then, for each line on its input, what it did so far as JSON: `data` and `other`, bytes
of tensors and of everything else, `cpu`, seconds of this process, and `requests` for ranges of weights.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
from bisect import bisect_right
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from numerics_release import MODEL, Blocks, Piece, pieces_of

from support.local_hub import Handler, LocalHub


class Weights:
    """What stands in the files, and how much of it was sent.

    Attributes:
        data: bytes of tensors.
        other: bytes of headers.
        requests: for parts of files.
    """

    def __init__(self, folder: Path) -> None:
        self.data = self.other = self.requests = 0
        self._lock = threading.Lock()
        self._pieces = {file: pieces_of(file) for file in folder.glob("*.safetensors")}
        self._starts = {file: [piece.start for piece in pieces] for file, pieces in self._pieces.items()}
        self._blocks = Blocks()
        kinds = {piece.kind for pieces in self._pieces.values() for piece in pieces if piece.kind}
        self._blocks.prepare(sorted(kinds))

    def knows(self, file: Path) -> bool:
        """Whether the file is one of weights."""
        return file in self._pieces

    def send(self, file: Path, start: int, stop: int, socket: int) -> None:
        """Sends these bytes of a file without copying them."""
        data = other = 0
        place = bisect_right(self._starts[file], start) - 1
        while start < stop:
            piece = self._pieces[file][place]
            last = min(stop, piece.stop)
            self._send_piece(file, piece, start, last, socket)
            if piece.kind is None:
                other += last - start
            else:
                data += last - start
            start, place = last, place + 1
        with self._lock:
            self.data += data
            self.other += other
            self.requests += 1

    def _send_piece(self, file: Path, piece: Piece, start: int, stop: int, socket: int) -> None:
        if piece.kind is None:
            with file.open("rb") as opened:
                _send_all(socket, opened.fileno(), start, stop - start)
            return
        ahead = _phase(file, piece) - piece.start
        for descriptor, offset, size in self._blocks.spans(piece.kind, start + ahead, stop + ahead):
            _send_all(socket, descriptor, offset, size)


def _phase(file: Path, piece: Piece) -> int:
    """Where in its block a tensor begins: elsewhere for each, on a whole element."""
    return (piece.start * 3 + len(file.name) * 1_000_003 + sum(file.name.encode()) * 7_919) // 8 * 8


def _send_all(socket: int, descriptor: int, offset: int, size: int) -> None:
    while size:
        sent = os.sendfile(socket, descriptor, offset, size)
        offset, size = offset + sent, size - sent


def _handler(weights: Weights) -> type[Handler]:
    class Answers(Handler):
        def send_body(self, data: bytes | tuple[Path, int, int], length: int) -> None:
            if isinstance(data, bytes) or not weights.knows(data[0]):
                super().send_body(data, length)
                return
            self.wfile.flush()
            weights.send(data[0], data[1], data[1] + length, self.connection.fileno())

    return Answers


def main() -> None:
    folder = Path(sys.argv[1])
    weights = Weights(folder)
    hub = LocalHub(_handler(weights))
    hub.add(MODEL, folder)
    print(hub.url, flush=True)
    for _ in sys.stdin:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        said: dict[str, Any] = {
            "data": weights.data,
            "other": weights.other + hub.bytes_of("*"),
            "cpu": usage.ru_utime + usage.ru_stime,
            "requests": weights.requests,
        }
        print(json.dumps(said), flush=True)
    hub.close()


if __name__ == "__main__":
    main()

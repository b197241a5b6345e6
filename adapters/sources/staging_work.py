"""Works off what is to be staged: many streams, units that no two of them share, whole files verified."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from day0.adapters.base.errors import SourceError
from day0.adapters.base.progress import Progress, silent

from .ranges import Range, RangeSet, units
from .staging_claims import Claim
from .staging_file import LANDING, PartFile, WrongContentError
from .staging_parts import Parts
from .staging_probe import free_bytes, probe_folder

STREAMS = 8  # requests in flight of one release, whatever is staged at once
SMALL = 256 * 2**10  # a file up to this size is fetched as a whole and never by halves
SPARE = 64 * 2**20  # bytes that stay free for everything else on the disk
_IDLE_SECONDS = 0.05  # between two looks at what another process works on
_SHOW_SECONDS = 0.25


@dataclass(frozen=True)
class Wanted:
    """A file, or ranges of one.

    Attributes:
        path: in the release.
        ranges: in the order in which they should come; None for the whole file, verified.
    """

    path: str
    ranges: Sequence[Range] | None = None


@dataclass(frozen=True)
class Staged:
    """What staging did.

    Attributes:
        files: wanted.
        bytes: wanted, of all files.
        fetched: of these, by this process now.
        seconds: it took.
    """

    files: int
    bytes: int
    fetched: int
    seconds: float


@dataclass
class _Work:
    """What is left to do for one file.

    Attributes:
        part: the file.
        at_once: whether it is small and fetched as a whole.
        is_whole: whether all of it is wanted.
        left: units that are not done.
        rejected: times that its hash was wrong.
        plain: held by the one stream that reads it from its first byte on.
    """

    part: PartFile
    at_once: bool = False
    is_whole: bool = False
    left: int = 0
    rejected: int = 0
    plain: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class _Shared:
    """A claim and how many streams work under it."""

    claim: Claim
    users: int = 0


@dataclass
class _Meter:
    """Bytes so far, shown now and then."""

    step: str
    total: int
    progress: Progress
    bytes: int = 0
    began: float = field(default_factory=time.monotonic)
    shown: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, path: str, count: int) -> None:
        with self.lock:
            self.bytes += count
            now = time.monotonic()
            if now - self.shown >= _SHOW_SECONDS:
                self.shown = now
                self.show(path)

    def show(self, note: str) -> None:
        seconds = max(time.monotonic() - self.began, 1e-9)
        done, total = self.bytes // 10**6, -(-self.total // 10**6)
        self.progress(self.step, min(done, total), total, f"{self.bytes / seconds / 1e9:.2f} GB/s, {note}")


class StagingWork:
    """A queue of units that as many threads as streams work off.

    Args:
        parts: the release.
        wanted: files and ranges, in order.
        unit: bytes of one request at most.
        slots: bounds the requests in flight, over all such queues of the release.
        progress: told megabytes.

    Raises:
        SourceError: E201, E212; E210, what is missing does not fit on the disk.
    """

    def __init__(
        self,
        parts: Parts,
        wanted: Sequence[Wanted],
        *,
        unit: int,
        slots: threading.Semaphore,
        progress: Progress = silent,
    ) -> None:
        self._parts, self._unit, self._slots = parts, unit, slots
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._queue: deque[tuple[_Work, Range]] = deque()
        self._busy: deque[tuple[_Work, Range]] = deque()
        self._works: dict[str, _Work] = {}
        self._claims: dict[tuple[str, int], _Shared] = {}
        self._rangeless = False  # whether the source was met to ignore ranges
        self._files, self._bytes = self._plan(wanted)
        missing = sum(stop - start for _, (start, stop) in self._queue)
        self._check_space(missing)
        self._meter = _Meter(f"staging {parts.name} (MB)", missing, progress)

    def run(self) -> Staged:
        """Works it off.

        Raises:
            SourceError: see `Stager.ensure`; the first one ends it.
        """
        if self._queue:
            self._work_all()
        meter = self._meter
        if meter.total:
            meter.progress(meter.step, -(-meter.total // 10**6), -(-meter.total // 10**6), self._summary())
        return Staged(self._files, self._bytes, meter.bytes, time.monotonic() - meter.began)

    def _summary(self) -> str:
        seconds = max(time.monotonic() - self._meter.began, 1e-9)
        return f"{self._meter.bytes / seconds / 1e9:.2f} GB/s, {self._files} files"

    def _plan(self, wanted: Sequence[Wanted]) -> tuple[int, int]:
        """Fills the queue with what is missing; no byte is listed twice."""
        listed: dict[str, int] = {}
        planned: dict[str, RangeSet] = {}
        for item in wanted:
            file = self._parts.file(item.path)
            ranges = [(0, file.size)] if item.ranges is None else inside(item.ranges, file.size)
            listed[item.path] = max(listed.get(item.path, 0), sum(stop - start for start, stop in ranges))
            if self._parts.whole(item.path) is not None:
                continue
            part = self._parts.part(item.path)
            part.journal.refresh()
            if item.path not in self._works:
                at_once = item.ranges is None and file.size <= SMALL and not part.journal.held
                self._works[item.path] = _Work(part, at_once=at_once)
            work = self._works[item.path]
            work.is_whole |= item.ranges is None
            for start, stop in ranges:
                self._enqueue(work, start, stop, planned.setdefault(item.path, RangeSet()))
        for work in self._works.values():
            size = work.part.file.size
            if work.left == 0 and (work.is_whole or work.part.complete):  # all here, but not verified
                work.left = 1
                self._queue.append((work, (size, size)))
        return len(listed), sum(listed.values())

    def _enqueue(self, work: _Work, start: int, stop: int, planned: RangeSet) -> None:
        for gap in work.part.journal.missing(start, stop):
            for rest in planned.missing(*gap):
                planned.add(*rest)
                for unit in units(*rest, self._unit):
                    self._queue.append((work, unit))
                    work.left += 1

    def _check_space(self, missing: int) -> None:
        folder = self._parts.place.folder
        if not missing:
            return
        probe_folder(folder)
        free = free_bytes(folder)
        if missing + SPARE > free:
            raise SourceError(
                f"staging {self._parts.name} takes {missing} more bytes and leaves {SPARE} free, but "
                f"{folder} has only {free} ({missing + SPARE - free} too few); nothing was fetched",
                code="E210",
                remedy="Free some space, or put the cache on a larger disk: HF_HUB_CACHE for the hub, "
                "XDG_CACHE_HOME for other sources.",
            )

    def _work_all(self) -> None:
        threads = min(STREAMS, len(self._queue))
        if threads == 1:
            self._work()
            return
        with ThreadPoolExecutor(threads, thread_name_prefix="staging") as pool:
            running = [pool.submit(self._work) for _ in range(threads)]
            try:
                for future in running:
                    future.result()
            finally:
                self._stop.set()

    def _work(self) -> None:
        is_done = False
        try:
            while not self._stop.is_set() and self._next():
                pass
            is_done = True
        finally:
            if not is_done:  # one stream's error, or an interrupt, ends all
                self._stop.set()

    def _next(self) -> bool:
        """Does one unit that nobody else works on; False where there is none left."""
        with self._lock:
            if not self._queue:
                if not self._busy:
                    return False
                self._queue, self._busy = self._busy, deque()
                waiting = True
            else:
                waiting = False
            work, wanted = self._queue.popleft()
        if waiting:
            self._meter.show(f"waiting for another process, {work.part.file.path}")
            time.sleep(_IDLE_SECONDS)
        with self._slots:
            unit = wanted[0] // self._unit
            claim = self._take(work.part, unit)
            if claim is None:
                with self._lock:
                    self._busy.append((work, wanted))
                return True
            try:
                arrived = partial(self._meter.add, work.part.file.path)
                if work.at_once:
                    self._fetch_small(work.part, arrived)
                else:
                    self._fetch(work, wanted, claim, arrived)
            finally:
                self._release(work.part, unit)
        with self._lock:
            work.left -= 1
            done = work.left == 0
        if work.at_once or not done or self._stop.is_set():
            return True
        if work.is_whole or work.part.complete:
            self._land(work)
        return True

    def _fetch(self, work: _Work, wanted: Range, claim: Claim, arrived: Callable[[int], None]) -> None:
        """A unit by its range; from a source without ranges the whole file by one plain stream."""
        if not self._rangeless:
            try:
                work.part.fetch(wanted, claim, arrived, self._stop.is_set)
                return
            except SourceError as error:
                if error.code != "E205":
                    raise
                self._rangeless = True
        with work.plain:  # the other units of the file wait, and then find it complete
            if work.part.whole is None and not self._stop.is_set():
                everything = (0, work.part.file.size)
                work.part.fetch(everything, claim, arrived, self._stop.is_set, plain=True)

    def _take(self, part: PartFile, unit: int) -> Claim | None:
        """The claim to a unit; streams of one queue share it, because no two of them want the same byte."""
        key = (part.file.path, unit)
        with self._lock:
            if key not in self._claims:
                claim = part.take(unit)
                if claim is None:
                    return None
                self._claims[key] = _Shared(claim)
            self._claims[key].users += 1
            return self._claims[key].claim

    def _release(self, part: PartFile, unit: int) -> None:
        key = (part.file.path, unit)
        with self._lock:
            shared = self._claims[key]
            shared.users -= 1
            if not shared.users:
                del self._claims[key]
                shared.claim.release()

    def _fetch_small(self, part: PartFile, arrived: Callable[[int], None]) -> None:
        for attempt in (1, 2):
            try:
                if part.whole is None:
                    part.fetch_small()
                    arrived(part.file.size)
                return
            except WrongContentError as wrong:
                if attempt == 2:
                    raise self._wrong(part, wrong) from wrong

    def _land(self, work: _Work) -> None:
        """Puts the complete file into its place; one that was rejected, by whomever, is fetched once more."""
        part = work.part
        while (claim := part.take(LANDING)) is None:
            if self._stop.wait(_IDLE_SECONDS):
                return
        try:
            part.journal.refresh()
            if part.whole is not None:
                return
            if part.complete:
                part.land()
                return
            wrong = WrongContentError("another one, as another process found")
        except WrongContentError as found:
            wrong = found
        finally:
            claim.release()
        work.rejected += 1
        if work.rejected == 2:
            raise self._wrong(part, wrong) from wrong
        with self._lock:
            for unit in units(0, part.file.size, self._unit):
                self._queue.append((work, unit))
                work.left += 1

    def _wrong(self, part: PartFile, wrong: WrongContentError) -> SourceError:
        return SourceError(
            f"file {part.file.path} of {self._parts.name} came twice with wrong content: its hash should be "
            f"{part.file.sha256 or part.file.identity} and is {wrong}",
            code="E211",
            remedy="The server or something on the way damages the file; use another mirror, or wait and try "
            "again. The bytes were not used.",
        )


def inside(ranges: Sequence[Range], size: int) -> list[Range]:
    """The ranges as far as the file has them."""
    cut = [(max(0, start), min(stop, size)) for start, stop in ranges]
    return [(start, stop) for start, stop in cut if start < stop]

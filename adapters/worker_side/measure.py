"""Seconds and peak bytes of one call: on the device where there is one, else of this process."""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from typing import Any, Iterator, List


class Measure:
    """Seconds and bytes of the last measured span.

    Attributes:
        seconds: wall time, device synchronised at both ends.
        peak_bytes: highest growth of the device's allocations, or of the resident set on a CPU; 0 if unknown.
        spans: how many were measured.
    """

    def __init__(self) -> None:
        self._open: List[_Span] = []
        self._zero()

    @contextlib.contextmanager
    def span(self, device: str) -> Iterator[None]:
        """Measures what runs inside; a second span in one call adds its seconds."""
        own = _Span(_accelerator(device))
        self._open.append(own)
        try:
            yield
        finally:
            self._open.remove(own)
            self._add(own)

    def interrupt(self) -> None:
        """Adds what open spans came to so far: the run in them stands still."""
        for span in self._open:
            self._add(span)

    def go_on(self) -> None:
        """Starts at nothing, and open spans with it: the run in them goes on in another call."""
        self._zero()
        for span in self._open:
            span.begin()

    def _zero(self) -> None:
        self.seconds, self.peak_bytes, self.spans = 0.0, 0, 0

    def _add(self, span: _Span) -> None:
        if span.accelerator is not None:
            span.accelerator.synchronize()
        self.seconds += time.perf_counter() - span.began
        self.peak_bytes = max(self.peak_bytes, _peak(span.accelerator) - span.before)
        self.spans += 1


class _Span:
    def __init__(self, accelerator: Any) -> None:
        self.accelerator = accelerator
        self.begin()

    def begin(self) -> None:
        self.before = _begin(self.accelerator)
        self.began = time.perf_counter()


def resident_bytes() -> int:
    """Resident set of this process; 0 where the system does not say."""
    return _status("VmRSS")


def _accelerator(device: str) -> Any:
    """`torch.accelerator` where it stands for that device, else None."""
    torch = sys.modules.get("torch")
    if torch is None or device == "cpu":
        return None
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None or not accelerator.is_available():
        return None
    if accelerator.current_accelerator().type != device:
        return None
    try:
        accelerator.synchronize()
    except RuntimeError:  # a backend in the making: the host's clock is all there is
        return None
    return accelerator


def _begin(accelerator: Any) -> int:
    if accelerator is not None:
        accelerator.synchronize()
        if hasattr(accelerator, "reset_peak_memory_stats"):
            accelerator.reset_peak_memory_stats()
            return int(accelerator.memory_allocated())
        return 0
    # Linux: writing 5 sets the high-water mark of the resident set back to its present size
    # (proc_pid_clear_refs(5)).
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as mark:
        mark.write("5")
    return _status("VmRSS") or _max_resident()


def _peak(accelerator: Any) -> int:
    if accelerator is not None:
        known = hasattr(accelerator, "max_memory_allocated")
        return int(accelerator.max_memory_allocated()) if known else 0
    return _status("VmHWM") or _max_resident()


def _status(field: str) -> int:
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 0


def _max_resident() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

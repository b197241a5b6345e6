"""The largest resident set of this process, without what it inherited.

`getrusage` counts a process's peak from its parent's memory at the fork (Linux carries `maxrss` over
an exec), so a script started by a large test run would report that run's memory.
"""

from __future__ import annotations

from pathlib import Path


def peak_resident_bytes() -> int:
    """Bytes, since this program was started; Linux only, like the machines that run the tests."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024

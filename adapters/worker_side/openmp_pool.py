"""Threads that OpenMP keeps ready for a thread of ours, given back while that thread waits.

libgomp counts the threads that stand by for all others. Once there are more than CPUs, whoever computes puts
its own to sleep after each operator instead of letting them wait for the next: four hundred thousand wake-ups
a layer where some thirty runs stood still, a quarter of the time in which experts were dequantised.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from typing import Any, Callable, Optional

_SOFT = 1  # omp_pause_soft of OpenMP 5.0: what threads have set stays


def release_threads() -> None:
    """Ends those that stand by for the calling thread; its next operator makes them anew.

    Does nothing where torch does not compute with libgomp, whose call concerns the calling thread alone.
    """
    pause = _pause()
    if pause is not None:
        pause()


@lru_cache(maxsize=1)
def _pause() -> Optional[Callable[[], Any]]:
    try:
        # Only where it is loaded: a second runtime beside torch's would have threads of its own.
        library = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD)
        host, pause = library.omp_get_initial_device(), library.omp_pause_resource
    except (OSError, AttributeError):
        return None
    return lambda: pause(_SOFT, host)

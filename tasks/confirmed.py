"""A worker's death is believed when it happens twice: it may have been killed from outside."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from day0.adapters.base.errors import WorkerCrashed

Result = TypeVar("Result")
_LOGGER = logging.getLogger("day0.worker")


def confirmed(attempt: Callable[[], Result]) -> Result:
    """What the attempt gives; where its worker dies, it is made once more, in a fresh worker.

    Args:
        attempt: everything that a fresh worker has to be told, too.

    Raises:
        WorkerCrashed: the fresh worker died as well.
    """
    try:
        return attempt()
    except WorkerCrashed as error:
        _LOGGER.warning("%s; once more in a fresh worker", error.message)
        return attempt()

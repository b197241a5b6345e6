"""Several operators asked at once; when the worker dies of one, the others are asked again without it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from day0.adapters.base.errors import RemoteError, WorkerError, WorkerUnusable
from day0.adapters.base.target import Answer
from day0_worker.batches import STEP

AskMany = Callable[[Sequence[int]], Mapping[int, Answer | WorkerError]]
"""Asks for the calls of these places in one request."""
AskOne = Callable[[int], Answer]
"""Asks for the call of this place alone."""


def ask_in_batches(
    count: int, many: AskMany, one: AskOne, log: Callable[[], Sequence[str]]
) -> list[Answer | WorkerError]:
    """Every call's answer or error, each in its place.

    A worker that dies during a request takes all its answers with it. Its log names what it was doing: that
    alone is cut in halves or asked for singly, in fresh workers, and the rest once more together.

    Args:
        count: of calls.
        many: see `AskMany`.
        one: see `AskOne`.
        log: last lines of the worker that lives or died last.

    Raises:
        WorkerUnusable: no worker starts at all.
    """
    answers: dict[int, Answer | WorkerError] = {}
    waiting = [list(range(count))] if count else []
    while waiting:
        part = waiting.pop(0)
        if len(part) == 1:
            answers[part[0]] = _alone(part[0], one)
            continue
        try:
            answers.update(many(part))
        except WorkerUnusable:
            raise
        except RemoteError:  # the worker lives and does not know the request
            waiting += [[place] for place in part]
        except WorkerError:
            waiting += _cut(part, in_work(log()))
    return [answers[place] for place in range(count)]


def in_work(log: Sequence[str]) -> list[int]:
    """Places within the last request that the worker said it was running when its log ended."""
    for line in reversed(log):
        found = re.match(rf"{re.escape(STEP)} ([0-9 ]+):", line)
        if found:
            return [int(place) for place in found.group(1).split()]
    return []


def _cut(part: Sequence[int], running: Sequence[int]) -> list[list[int]]:
    suspects = [part[index] for index in running if index < len(part)] or list(part)
    rest = [place for place in part if place not in suspects]
    middle = (len(suspects) + 1) // 2
    return [half for half in (suspects[:middle], suspects[middle:], rest) if half]


def _alone(place: int, one: AskOne) -> Answer | WorkerError:
    try:
        return one(place)
    except WorkerUnusable:
        raise
    except WorkerError as error:
        return error

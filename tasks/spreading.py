"""Independent pieces of work side by side: on threads, on processes of this machine, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, TypeVar

from day0.adapters.base.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")
WAYS = ("threads", "processes", "dask")


@dataclass(frozen=True)
class Spread:
    """How work is spread.

    Attributes:
        way: out of `WAYS`.
        count: workers; of a Dask cluster that is there already it is how many pieces the work is cut into.
        address: of the Dask scheduler; empty for another way.
    """

    way: str
    count: int
    address: str = ""


def parse_spread(text: str) -> Spread | None:
    """`threads:2`, `processes:4`, `dask:tcp://host:8786`; None for an empty text.

    Raises:
        InputError: E189, it is none of these.
    """
    if not text:
        return None
    way, _, rest = text.partition(":")
    if way == "dask" and rest:
        return Spread("dask", 2, rest)
    if way in ("threads", "processes") and rest.isdecimal() and 0 < int(rest) <= 256:
        return Spread(way, int(rest))
    raise InputError(
        f"work cannot be spread over {text!r}",
        code="E189",
        remedy="Give threads:N, processes:N or dask:SCHEDULER, e.g. dask:tcp://127.0.0.1:8786.",
    )


def spread(function: Callable[[Item], Result], items: Sequence[Item], how: Spread) -> Iterator[Result]:
    """The function's results in the order of the items.

    Args:
        function: of a module, so that another process can import it.
        items: small and picklable.
        how: see `Spread`.

    Raises:
        InputError: E156, Dask is not installed, or its scheduler does not answer.
    """
    if how.way == "dask":
        with _dask(how.address) as client:
            yield from client.gather(client.map(function, items, pure=False))
        return
    with _pool(how) as pool:
        yield from pool.map(function, items)


def _pool(how: Spread) -> Executor:
    if how.way == "threads":
        return ThreadPoolExecutor(how.count, thread_name_prefix="day0-span")
    # Not by fork: a process with torch's threads in it must not be copied.
    return ProcessPoolExecutor(how.count, mp_context=get_context("spawn"))


@contextmanager
def _dask(address: str) -> Iterator[Any]:
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError(
            "spreading work over Dask needs the package distributed",
            code="E156",
            remedy="Install it with: pip install 'day0[dask]'.",
        ) from error
    try:
        client: Any = Client(address, timeout="30s", set_as_default=False)  # type: ignore[no-untyped-call]  # it is untyped
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler answers at {address}: {error}", code="E156") from error
    with client:
        yield client


def pieces(items: Sequence[Item], count: int) -> list[Sequence[Item]]:
    """The items in at most `count` runs of about equal length, in order; no empty one."""
    size = max(1, -(-len(items) // max(1, count)))
    return [items[start : start + size] for start in range(0, len(items), size)]

"""A flow called from the command line: on the configured Prefect server, or on an embedded one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from .embedded_server import prefect_server
from .prefect_setup import set_prefect_defaults
from .settings import PREFIX, Settings


@contextmanager
def prefect_ready(settings: Settings) -> Iterator[None]:
    """Within the block Prefect may be imported and flows called; an embedded server ends with it."""
    set_prefect_defaults(quiet=True)
    os.environ[f"{PREFIX}RUNNER"] = settings.runner
    os.environ[f"{PREFIX}DASK_ADDRESS"] = settings.dask_address
    with prefect_server() as server:
        if server is not None:
            os.environ["PREFECT_API_URL"] = server.address()
            import prefect.main  # noqa: F401 - takes 3 s, which the server needs anyway

            server.wait()
        try:
            yield
        finally:
            _send_last_lines()
            if server is not None:
                del os.environ["PREFECT_API_URL"]


def _send_last_lines() -> None:
    """What the flow logged last must arrive before its server ends; Prefect sends it from a thread."""
    from prefect.logging.handlers import APILogHandler

    APILogHandler().flush()

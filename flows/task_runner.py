"""What carries the tasks of a flow: threads of this process, or a Dask cluster."""

from __future__ import annotations

import os
from typing import Any

from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from day0.adapters.base.errors import InputError

VARIABLE = "DAY0_RUNNER"
DASK_ADDRESS = "DAY0_DASK_ADDRESS"


def chosen_runner(name: str | None = None) -> TaskRunner[Any]:
    """The task runner of that name.

    Args:
        name: `threads` or `dask`; None: what `DAY0_RUNNER` says, so that a worker of a pool can be told.

    Raises:
        InputError: E156 for another name or where the extra is not installed.
    """
    name = name or os.environ.get(VARIABLE) or "threads"
    if name == "threads":
        return ThreadPoolTaskRunner()
    if name != "dask":
        raise InputError(f"task runner {name!r} is neither threads nor dask", code="E156")
    try:
        from prefect_dask.task_runners import DaskTaskRunner
    except ImportError as error:
        raise InputError(
            "the task runner dask needs the package prefect-dask",
            code="E156",
            remedy="Install it with: pip install 'day0[dask]'.",
        ) from error
    address = os.environ.get(DASK_ADDRESS)
    if address:
        return DaskTaskRunner(address=address)
    # Stages are heavy and hold the interpreter: a process each.
    return DaskTaskRunner(cluster_kwargs={"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None})

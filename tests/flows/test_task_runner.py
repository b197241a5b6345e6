from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from day0.adapters.base.errors import InputError


def test_the_runner_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from day0.flows.task_runner import chosen_runner

    assert type(chosen_runner("threads")).__name__ == "ThreadPoolTaskRunner"
    assert type(chosen_runner("dask")).__name__ == "DaskTaskRunner"
    monkeypatch.setenv("DAY0_RUNNER", "dask")
    assert type(chosen_runner()).__name__ == "DaskTaskRunner"
    with pytest.raises(InputError, match="rockets"):
        chosen_runner("rockets")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("prefect_server")
def test_a_dask_cluster_carries_the_stages(tmp_path: Path, tiny_checkpoint: Callable[[str], Path]) -> None:
    from prefect.settings import get_current_settings

    url = str(get_current_settings().api.url)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "day0.flows.cli", "adapt", str(tiny_checkpoint("llama"))),
            *("--target", "eager@cpu/fp32", "--json"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PREFECT_API_URL": url, "DAY0_RUNNER": "dask"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    shape = json.loads(done.stdout)
    assert shape["stages"]["numerics"]["verdict"] == "pass"
    assert all(stage["ran"] for stage in shape["stages"].values())

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

COMMAND = Path(__file__).parents[1] / "support" / "stand_in_command.py"
EAGER, BLOCKED = "eager@cpu/bf16", "numerics eager@cpu/bf16"
ALL = ["inventory", "plan", *(f"{stage} {EAGER}" for stage in ("coverage", "minimal", "numerics", "scale"))]

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    from prefect.settings import get_current_settings

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    url = str(get_current_settings().api.url)
    return {**os.environ, "PREFECT_API_URL": url, "STAND_IN_LOG": str(tmp_path / "log")}


@contextmanager
def adapt(folder: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, str(COMMAND), "adapt", "model", "--target", EAGER, "--json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, cwd=folder, env=environment, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def log(folder: Path) -> list[str]:
    path = folder / "log"
    return path.read_text().splitlines() if path.exists() else []


def wait_until_blocked(folder: Path) -> int:
    """The id of the child that the blocked stage has started."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        for line in log(folder):
            if line.startswith("blocked "):
                return int(line.split()[1])
        time.sleep(0.1)
    raise AssertionError(f"never blocked: {log(folder)}")


def gone(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def latest_state() -> str:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.sorting import FlowRunSort

    with get_client(sync_client=True) as client:
        (run,) = client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1)
    return str(run.state_type)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_the_same_command_goes_on_after_any_end(
    tmp_path: Path, environment: dict[str, str], number: signal.Signals
) -> None:
    with adapt(tmp_path, environment | {"STAND_IN_BLOCKS": BLOCKED}) as first:
        child = wait_until_blocked(tmp_path)
        first.send_signal(number)
        out, err = first.communicate(timeout=20)
    assert out == ""
    assert gone(child, 2)
    if number is not signal.SIGKILL:
        assert first.returncode == 130
        assert err.endswith("day0: interrupted; the same command goes on from the last finished unit\n")
        assert "CRASHED" in latest_state()
    done = [line for line in log(tmp_path) if not line.startswith("blocked")]
    assert BLOCKED not in done

    with adapt(tmp_path, environment) as second:
        out, err = second.communicate(timeout=90)
    assert second.returncode == 0, err
    assert json.loads(out)["verdict"] == "pass"
    computed = [line for line in log(tmp_path) if not line.startswith("blocked")]
    assert sorted(computed) == sorted(ALL)

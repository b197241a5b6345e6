from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

WAITS = """
import sys, time
from day0.flows.embedded_server import prefect_server
with prefect_server() as server:
    address = server.address()
    print(server._process.pid, address, flush=True)
    if "up" in sys.argv:
        server.wait()
        print("up", flush=True)
    time.sleep(300)
"""


def start(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path)}
    environment.pop("PREFECT_API_URL", None)
    return subprocess.Popen(
        [sys.executable, "-c", WAITS, *words],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def ends(pid: int, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.1)
    return False


def test_the_server_dies_with_a_killed_parent(tmp_path: Path) -> None:
    with start(tmp_path) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline().split()[0])
        assert psutil.pid_exists(pid)
        parent.kill()
    assert ends(pid)


@pytest.mark.slow
def test_two_first_starts_on_one_home_wait_for_each_other(tmp_path: Path) -> None:
    with start(tmp_path, "up") as first, start(tmp_path, "up") as second:
        try:
            for parent in (first, second):
                assert parent.stdout is not None
                assert parent.stdout.readline()
                assert parent.stdout.readline() == "up\n"
        finally:
            first.kill()
            second.kill()


def test_a_configured_server_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from day0.flows.embedded_server import prefect_server

    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4200/api")
    with prefect_server() as server:
        assert server is None

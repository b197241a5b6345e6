from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from day0.flows.device_lock import device

HOLD = """
import time
from day0.flows.device_lock import device
with device("d"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_threads_hold_a_device_one_after_the_other() -> None:
    inside, most = [0], [0]

    def job() -> None:
        with device("d"):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.02)
            inside[0] -= 1

    threads = [threading.Thread(target=job) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_two_devices_do_not_wait_for_each_other() -> None:
    with device("d"), device("e"):
        pass


def test_a_killed_holder_gives_the_device_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "day0.device")
    other = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        got = threading.Event()

        def take() -> None:
            with device("d"):
                got.set()

        taker = threading.Thread(target=take)
        taker.start()
        assert not got.wait(0.3)
    finally:
        other.kill()
        other.communicate()
    taker.join(10)
    assert got.is_set()
    assert f"waiting for d, which another run (process {other.pid}) holds" in caplog.text

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from day0.adapters.base.errors import (
    RemoteError,
    WorkerCrashed,
    WorkerError,
    WorkerOutOfMemory,
    WorkerTimeout,
    WorkerUnusable,
)
from day0.adapters.base.worker import Worker, WorkerPlan
from day0.adapters.base.worker_sources import find_module, pack_sources

pytestmark = pytest.mark.usefixtures("faulty_stack")
LIGHT = "day0_faulty.light:LightStack"
ASK = {"tokens": [[1]], "new_tokens": 2}


def plan(fault: str = "", **settings: Any) -> WorkerPlan:
    hello = {"stack": LIGHT, "device": "cpu", "count": 1, "dtype": None, "options": {"fault": fault}}
    return WorkerPlan(hello=hello, sources=pack_sources("day0_faulty.light"), **settings)


@contextlib.contextmanager
def started(fault: str = "", **settings: Any) -> Iterator[Worker]:
    worker = Worker(plan(fault, **settings), start_seconds=60)
    tree = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
    try:
        yield worker
    finally:
        worker.close()
    assert not [process for process in tree if lives(process)]


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def generate(worker: Worker, timeout: float = 60) -> Any:
    return worker.call("generate", ASK, timeout=timeout)[0]["result"]


def test_a_worker_answers_and_is_gone_after_close() -> None:
    with started() as worker:
        home = Path(worker._home)
        assert generate(worker)["tokens"] == [[7, 7]]
        assert worker.call("ping", {}, timeout=10)[0]["result"] == {}
        assert worker.alive
    assert not worker.alive
    assert not home.exists()
    assert worker.pid not in [child.pid for child in psutil.Process().children()]


def test_a_crash_names_the_signal_and_shows_the_last_lines() -> None:
    with (
        started("segfault") as worker,
        pytest.raises(WorkerCrashed, match=r"during generate by signal SIGSEGV") as caught,
    ):
        generate(worker)
    assert any("Segmentation fault" in line for line in caught.value.log)
    assert any("actions.py" in line for line in caught.value.log)


def test_an_exit_names_the_status() -> None:
    with started("exit") as worker, pytest.raises(WorkerCrashed, match=r"with exit status 3"):
        generate(worker)


def test_a_kill_from_outside_names_the_signal() -> None:
    with started("hang") as worker:
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerCrashed, match=r"SIGKILL"):
            generate(worker)


@pytest.mark.timeout(60)  # the stack itself hangs for good
@pytest.mark.parametrize("fault", ["hang", "hang_holding_the_lock"])
def test_a_hang_ends_at_the_deadline(fault: str) -> None:
    with started(fault) as worker, pytest.raises(WorkerTimeout, match=r"longer than 0\.5 s"):
        generate(worker, timeout=0.5)


def test_memory_beyond_the_limit_ends_it() -> None:
    with started("oom", memory_limit=200 * 2**20) as worker:
        with pytest.raises(WorkerOutOfMemory, match=r"its limit is 0\.20 GiB"):
            generate(worker)
        assert worker.peak_bytes > 200 * 2**20


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("garbage", "the length of the message is"),
        ("huge", "1152921504606846976 bytes"),
    ],
)
def test_garbage_on_the_pipe_is_an_error_not_a_hang(fault: str, text: str) -> None:
    with started(fault) as worker, pytest.raises(WorkerError, match=text) as caught:
        generate(worker)
    assert caught.value.code == "E606"


def test_half_an_answer_is_a_crash() -> None:
    with started("half") as worker, pytest.raises(WorkerCrashed, match=r"exit status 0"):
        generate(worker)


def test_prints_and_reads_do_not_disturb_the_protocol() -> None:
    with started("print") as worker:
        assert generate(worker)["tokens"] == [[7, 7]]
        time.sleep(0.2)
        assert "and past Python, too" in worker.log.tail()


@pytest.mark.parametrize(("fault", "kind"), [("no_json", "runtime"), ("not_finite", "runtime")])
def test_an_answer_that_is_no_json_is_an_error_of_the_stack(fault: str, kind: str) -> None:
    with started(fault) as worker:
        with pytest.raises(RemoteError) as caught:
            generate(worker)
        assert caught.value.kind == kind
        assert worker.alive


def test_the_log_goes_to_a_file_and_its_tail_stays_small(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    with started("many_lines", log=log) as worker:
        generate(worker)
        worker.close()
        assert len(worker.log.tail(10_000)) == 200
        assert worker.log.tail(1)[0].startswith("line 99999 ")
    assert log.read_bytes().count(b"\n") >= 100_000


def test_a_process_that_left_the_group_is_ended_too() -> None:
    with started("escape") as worker:
        generate(worker)
        below = psutil.Process(worker.pid).children(recursive=True)
        escaped = [process for process in below if process.name() == "sleep"]
        assert escaped
    assert not [process for process in escaped if lives(process)]


def test_what_a_dead_worker_left_in_its_session_is_ended_too() -> None:
    with started("own_group") as worker:
        generate(worker)
        below = psutil.Process(worker.pid).children(recursive=True)
        assert "sleep" in {process.name() for process in below}
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerCrashed, match=r"SIGKILL"):
            generate(worker)
    assert not [process for process in below if lives(process)]


def test_secrets_of_the_parent_stay_there() -> None:
    parent = {
        **os.environ,
        "HF_TOKEN": "s1", "GITHUB_TOKEN": "s2", "OPENAI_API_KEY": "s3", "AWS_REGION": "s4",
        "MY_SECRET_THING": "s5", "PREFECT_API_URL": "s6", "DB_PASSWORD": "s7",
        "https_proxy": "http://user:s8@proxy:1", "HARMLESS": "kept",
    }  # fmt: skip
    with started("environment", environment=parent) as worker:
        said = generate(worker)
        assert said["directory"] == worker._home
    assert said["environment"]["HARMLESS"] == "kept"
    assert not {f"s{number}" for number in range(1, 9)} & set(said["environment"].values())
    assert "s8" not in said["environment"].get("https_proxy", "")


@pytest.mark.parametrize("fault", ["hang", "hang_holding_the_lock"])
def test_the_worker_dies_with_its_parent(fault: str, faulty_stack: Path, tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(faulty_stack)!r})
        from day0.adapters.base.worker import Worker, WorkerPlan
        from day0.adapters.base.worker_sources import pack_sources
        hello = dict(stack={LIGHT!r}, device="cpu", count=1, dtype=None, options=dict(fault={fault!r}))
        worker = Worker(WorkerPlan(hello=hello, sources=pack_sources("day0_faulty.light")))
        print(worker.pid, worker._home, flush=True)
        worker.call("generate", dict(tokens=[[1]], new_tokens=1), timeout=600)
    """)
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert parent.stdout is not None
    pid, home = parent.stdout.readline().split()
    worker = psutil.Process(int(pid))
    tree = [worker, *worker.children(recursive=True)]
    time.sleep(0.3)
    assert all(lives(process) for process in tree)
    parent.kill()
    parent.communicate()
    until = time.monotonic() + 10
    while time.monotonic() < until and (any(lives(process) for process in tree) or Path(home).exists()):
        time.sleep(0.05)
    assert not [process for process in tree if lives(process)]
    assert not Path(home).exists()


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["/no/such/python"], "cannot be started: No such file"),
        (["false"], "ended while it started"),
        ([sys.executable, "-c", "print('I am no worker')"], "worker"),
    ],
)
def test_a_command_that_gives_no_worker_is_unusable(command: list[str], text: str) -> None:
    with pytest.raises(WorkerError, match=text):
        Worker(plan(command=command), start_seconds=20)


def test_a_stack_that_cannot_be_imported_is_named_with_what_it_lacks() -> None:
    hello = {
        "stack": "day0_faulty.broken:BrokenStack",
        "device": "cpu",
        "count": 1,
        "dtype": None,
        "options": {},
    }
    broken = WorkerPlan(hello=hello, sources=pack_sources("day0_faulty.broken"))
    with pytest.raises(WorkerUnusable, match=r"No module named 'package_that_is_nowhere'") as caught:
        Worker(broken)
    assert any("broken.py" in line for line in caught.value.log)


def test_a_module_is_found_without_being_imported() -> None:
    before = set(sys.modules)
    spec = find_module("day0_faulty.broken")
    assert spec is not None
    assert spec.origin is not None
    assert spec.origin.endswith("broken.py")
    assert not [name for name in set(sys.modules) - before if name.startswith("day0_faulty")]
    assert find_module("day0_faulty.nowhere") is None


def test_words_that_no_file_takes_are_made_writable() -> None:
    with started("half_character") as worker, pytest.raises(RemoteError) as told:
        worker.call("generate", ASK, timeout=20)
    assert "no kernel for ?" in told.value.message
    for line in told.value.log:
        line.encode("utf-8")

"""Ranks: processes below the worker that run one job together; who dies or hangs is named."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NoReturn, Optional

from day0_worker.rank_jobs import COLLECTIVES, COMPUTE, DTYPES, Rank, run_job
from day0_worker.stack import StackError

if TYPE_CHECKING:
    from day0_worker.stack import Stack

__all__ = ["COLLECTIVES", "COMPUTE", "DTYPES", "Rank", "backend_of", "launch", "run_job", "thread_count"]

_POLL_SECONDS = 0.02
_GRACE_SECONDS = 5.0
_MAX_RANKS = 256


def backend_of(device: str) -> str:
    """torch.distributed's own backend for a device type, e.g. `gloo` for `cpu`; empty where there is none."""
    import torch.distributed as dist

    if not dist.is_available():
        return ""
    try:
        return str(dist.get_default_backend_for_device(device))
    except (ValueError, RuntimeError, AttributeError):
        return ""


def launch(world_size: int, job: Mapping[str, Any], stack: "Stack") -> List[Dict[str, Any]]:
    """Runs a job on that many ranks; takes at most the job's `timeout` (seconds, default 120).

    On a CPU the ranks are forked (0.1 s) out of this process while it has no more threads than right after
    its imports (OpenBLAS starts some, and knows about forks), else out of a fresh one: a fork of a process
    with OpenMP threads hangs in its first parallel loop. On other devices each rank is a fresh process,
    since a device context does not survive a fork.

    Args:
        world_size: number of ranks.
        job: see `rank_jobs.run_job`; also `timeout` and `interface` (network interface, loopback by default).
        stack: whose `join` makes each rank ready.

    Returns:
        Of each rank: `rank`, `outcome` (`finished`, `error`, `died`, `hung`, or `stopped`: it waited for
        another that failed), `detail`, `device` and `checks`, what its job returned.

    Raises:
        StackError: the job is unknown, or the number of ranks is out of bounds.
    """
    if job.get("job") not in ("collectives", "compute"):
        raise StackError(
            f"there is no job {job.get('job')!r}; there are collectives and compute", "unsupported"
        )
    if not 1 <= world_size <= _MAX_RANKS:
        raise StackError(f"{world_size} ranks were asked for; from 1 to {_MAX_RANKS} can be started")
    folder = tempfile.mkdtemp(prefix="ranks-", dir=os.getcwd())
    order = {
        "folder": folder, "world_size": world_size, "job": dict(job), "stack": stack.reference,
        "sources": stack.sources, "device": stack.device, "count": stack.count, "dtype": stack.dtype,
        "options": stack.options, "path": sys.path, "timeout": float(job.get("timeout", 120.0)),
    }  # fmt: skip
    try:
        return _launch(order, stack)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _launch(order: Dict[str, Any], stack: "Stack") -> List[Dict[str, Any]]:
    deadline = time.monotonic() + order["timeout"]
    if stack.device != "cpu":
        return _wait(order, [_fresh(order, rank) for rank in range(order["world_size"])], deadline)
    if 0 < thread_count() <= stack.threads:
        return _wait(order, [_forked(order, stack, rank) for rank in range(order["world_size"])], deadline)
    nursery = _fresh(order, -1)
    try:
        nursery.wait(order["timeout"] + 2 * _GRACE_SECONDS)
        with open(os.path.join(order["folder"], "all.json"), encoding="utf-8") as file:
            answers: List[Dict[str, Any]] = json.load(file)
            return answers
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        nursery.kill()
        nursery.wait()
        raise StackError(f"the process that forks the ranks did not answer: {error}") from error


def enter(path: str, rank: int) -> NoReturn:
    """What a fresh process does: be one rank, or for -1 fork all of them."""
    with open(path, encoding="utf-8") as file:
        order = json.load(file)
    from day0_worker.serve import load_stack

    stack: Stack = load_stack(order["stack"], order["sources"])(
        order["device"], order["count"], order["dtype"], order["options"]
    )
    stack.reference, stack.sources = order["stack"], order["sources"]
    if rank >= 0:
        _be_rank(order, stack, rank)
    deadline = time.monotonic() + order["timeout"]
    ranks = [_forked(order, stack, number) for number in range(order["world_size"])]
    _write(order["folder"], "all.json", _wait(order, ranks, deadline))
    os._exit(0)


class _Forked:
    """A forked rank with the part of `subprocess.Popen` that is needed here."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: Optional[int] = None

    def poll(self) -> Optional[int]:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.returncode = -os.WTERMSIG(os.waitpid(self.pid, 0)[1])


def thread_count() -> int:
    """Threads of this process; 0 where the system does not say."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


def _forked(order: Dict[str, Any], stack: "Stack", rank: int) -> Any:
    pid = os.fork()
    if pid:
        return _Forked(pid)
    os.closerange(3, 4096)  # the worker's pipes: a rank must not keep them open
    _be_rank(order, stack, rank)


def _fresh(order: Dict[str, Any], rank: int) -> Any:
    path = os.path.join(order["folder"], "order.json")
    if not os.path.exists(path):
        _write(order["folder"], "order.json", order)
    code = (
        "import json, sys\n"
        f"sys.path[:] = json.load(open({path!r}, encoding='utf-8'))['path']\n"
        "from day0_worker.ranks import enter\n"
        f"enter({path!r}, {rank})\n"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, close_fds=True)


def _be_rank(order: Dict[str, Any], stack: "Stack", rank: int) -> NoReturn:
    """Runs the job and leaves; every error is in the answer."""
    answer: Dict[str, Any] = {"rank": rank, "outcome": "error", "detail": "", "device": "", "checks": []}
    try:
        answer["device"] = stack.join(rank, order["world_size"])
        answer["checks"] = _work(order, stack, rank, answer["device"])
        answer["outcome"] = "finished"
    except Exception as error:  # the boundary of the rank's process: what it says is all that is known of it
        answer["detail"] = f"{type(error).__name__}: {error}"[:1000]
        traceback.print_exc()
    _write(order["folder"], f"rank-{rank}.json", answer)
    sys.stderr.flush()
    os._exit(0)


def _work(order: Dict[str, Any], stack: "Stack", rank: int, device: str) -> List[Dict[str, Any]]:
    import datetime

    import torch.distributed as dist

    folder, world_size, job = order["folder"], order["world_size"], order["job"]
    steps: List[str] = []

    def mark(step: str) -> None:
        steps.append(step)
        _write(folder, f"step-{rank}.json", [len(steps), step])

    if job["job"] == "compute":
        return run_job(job, Rank(rank, world_size, device, mark))
    interface = str(job.get("interface") or ("lo0" if sys.platform == "darwin" else "lo"))
    for library in ("GLOO", "NCCL", "HCCL"):
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", interface)
    mark("process group")
    store = dist.FileStore(os.path.join(folder, "store"), world_size)  # type: ignore[attr-defined]  # public, but not declared so
    dist.init_process_group(
        backend_of(stack.device),
        store=store,
        rank=rank,
        world_size=world_size,
        timeout=datetime.timedelta(seconds=order["timeout"]),
    )
    checks = run_job(job, Rank(rank, world_size, device, mark))
    dist.barrier()
    dist.destroy_process_group()
    return checks


def _wait(order: Dict[str, Any], ranks: List[Any], deadline: float) -> List[Dict[str, Any]]:
    """Waits for all; once one has failed or the time is over, the others are ended."""
    late = False
    while any(rank.poll() is None for rank in ranks) and not late:
        time.sleep(_POLL_SECONDS)
        late = time.monotonic() > deadline
        if any(rank.returncode for rank in ranks):
            deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
            order["failed"] = True
    running = [number for number, rank in enumerate(ranks) if rank.poll() is None]
    steps = {number: _step(order["folder"], number) for number in running}
    for rank in ranks:
        rank.kill()
    answers = [_answer(order, number, rank.poll(), steps) for number, rank in enumerate(ranks)]
    if any(answer["outcome"] in ("died", "hung") for answer in answers):
        for answer in answers:
            if answer["outcome"] == "error":  # most often a connection that the failed rank dropped
                answer["outcome"], answer["detail"] = "stopped", f"it lost a rank: {answer['detail']}"
    return answers


def _answer(
    order: Dict[str, Any], rank: int, status: Optional[int], steps: Mapping[int, Any]
) -> Dict[str, Any]:
    try:
        with open(os.path.join(order["folder"], f"rank-{rank}.json"), encoding="utf-8") as file:
            answer: Dict[str, Any] = json.load(file)
            return answer
    except (OSError, ValueError):
        pass
    outcome, detail = "died", _how(status)
    if rank in steps:
        index, name = steps[rank]
        behind = index == min(step[0] for step in steps.values()) and not order.get("failed")
        outcome = "hung" if behind else "stopped"
        detail = (
            f"it was in step {name!r} when the time was over" if behind else f"it waited in step {name!r}"
        )
    return {"rank": rank, "outcome": outcome, "detail": detail, "device": "", "checks": []}


def _how(status: Optional[int]) -> str:
    if status is None or status >= 0:
        return f"it left with exit status {status} and no answer"
    try:
        return f"it died by signal {signal.Signals(-status).name}"
    except ValueError:
        return f"it died by signal {-status}"


def _step(folder: str, rank: int) -> Any:
    try:
        with open(os.path.join(folder, f"step-{rank}.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return [0, "start"]


def _write(folder: str, name: str, value: Any) -> None:
    partial = os.path.join(folder, f".{name}.{os.getpid()}")
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(partial, os.path.join(folder, name))

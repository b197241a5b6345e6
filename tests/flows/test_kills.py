from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from day0.adapters.base.run_store import RunStore
from day0.reports.model import Report
from day0.reports.records import stage_records
from day0.reports.store import list_runs, read_report
from support.local_hub import LocalHub

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(1500)]

# What the worker is doing when it, or the flow, is killed: one call in each stage that has a target.
HOLDS = {
    "coverage": "run_op aten.mm.default",
    "minimal": "load",
    "numerics": "run model.layers.2",
    "scale": "launch",
}


class Bench:
    """A model on a local hub, a counting stack, and `day0 adapt` on both as a process of its own."""

    def __init__(self, folder: Path, plugin: Path) -> None:
        from prefect.settings import get_current_settings

        self.folder, self.log, self.hold = folder, folder / "worker.log", folder / "hold"
        folder.mkdir()
        self.target = f"counted@cpu/fp32?hold={self.hold}&log={self.log}"
        url = str(get_current_settings().api.url)
        self.environment = {**os.environ, "PYTHONPATH": str(plugin), "PREFECT_API_URL": url}

    @contextmanager
    def adapt(self) -> Iterator[subprocess.Popen[str]]:
        words = [
            "-m",
            "day0.flows.cli",
            "adapt",
            "org/tiny",
            "--target",
            self.target,
            "--probe-budget",
            "600",
        ]
        with (self.folder / "stderr").open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                env=self.environment,
                stdout=errors,
                stderr=errors,
                text=True,
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def finish(self) -> Report:
        with self.adapt() as process:
            assert process.wait(900) in (0, 1, 3), (self.folder / "stderr").read_text()[-3000:]
        return self.report()

    def report(self) -> Report:
        store = RunStore(self.folder / ".day0")
        return read_report(store, list_runs(store)[0].run)

    def calls(self) -> Counter[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return Counter(line for line in lines if not line.startswith("holding"))

    def held(self, times: int, seconds: float = 600) -> int:
        """The worker that waits to be killed, once that many have waited."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            lines = self.log.read_text().splitlines() if self.log.exists() else []
            holding = [line for line in lines if line.startswith("holding")]
            if len(holding) == times:
                return int(holding[-1].split()[1])
            time.sleep(0.1)
        raise AssertionError(f"no call was held: {(self.folder / 'stderr').read_text()[-2000:]}")


def facts(report: Report, bench: Bench) -> dict[str, Any]:
    """Facts of all stages, the folder's name in the target taken out."""
    records = {"inventory": report.inventory, **stage_records(report.targets[0].stages)}
    found = {stage: record.facts.model_dump(mode="json") for stage, record in records.items() if record}
    return dict(json.loads(json.dumps(found).replace(str(bench.folder), "FOLDER")))


def nothing_left(bench: Bench) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any(_is_ours(process, bench) for process in psutil.process_iter()):
            return True
        time.sleep(0.2)
    return False


def _is_ours(process: psutil.Process, bench: Bench) -> bool:
    try:
        return process.environ().get("PWD_OF_TEST") == str(bench.folder)
    except (psutil.Error, OSError):
        return False


@pytest.fixture(scope="module")
def make_bench(tmp_path_factory: pytest.TempPathFactory, faulty_stack: Path) -> Callable[[str], Bench]:
    root = tmp_path_factory.mktemp("kills")

    def make(name: str) -> Bench:
        bench = Bench(root / name, faulty_stack)
        bench.environment["PWD_OF_TEST"] = str(bench.folder)
        return bench

    return make


@pytest.fixture
def hub(local_hub: LocalHub, tiny_checkpoint: Callable[[str], Path]) -> LocalHub:
    local_hub.add("org/tiny", tiny_checkpoint("llama"))
    return local_hub


def test_killed_flows_and_workers_end_with_the_facts_of_an_undisturbed_run(
    hub: LocalHub, make_bench: Callable[[str], Bench]
) -> None:
    undisturbed = make_bench("undisturbed")
    expected = facts(undisturbed.finish(), undisturbed)
    weights = hub.bytes_of("*.safetensors")
    assert set(expected) == {"inventory", "coverage", "minimal", "numerics", "plan", "scale"}

    flow = make_bench("flow")
    hub.forget()
    for times, call in enumerate(HOLDS.values(), 1):
        flow.hold.write_text(call)
        with flow.adapt() as process:
            flow.held(times)
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert nothing_left(flow)
    flow.hold.unlink()
    assert facts(flow.finish(), flow) == expected
    _assert_nothing_repeated(flow, undisturbed, of_stage=2)
    assert hub.bytes_of("*.safetensors") <= weights * 1.5

    worker = make_bench("worker")
    worker.hold.write_text(HOLDS["coverage"])
    with worker.adapt() as process:
        for times, following in enumerate([*list(HOLDS.values())[1:], ""], 1):
            pid = worker.held(times)
            worker.hold.write_text(following) if following else worker.hold.unlink()
            os.kill(pid, signal.SIGKILL)
        assert process.wait(900) in (0, 1, 3)
    assert facts(worker.report(), worker) == expected
    _assert_nothing_repeated(worker, undisturbed)

    before = worker.calls()
    again = worker.finish()
    assert facts(again, worker) == expected
    assert worker.calls() == before
    assert set(again.reused.values()) == {True}
    assert nothing_left(worker)


def _assert_nothing_repeated(killed: Bench, undisturbed: Bench, of_stage: int = 0) -> None:
    """Only the call under way comes twice, and what a fresh worker must be told again.

    Args:
        killed: bench of the run that was killed.
        undisturbed: bench of the one that was not.
        of_stage: calls of one node that belong to a stage which is one unit (the minimal run: both phases).
    """
    more = killed.calls() - undisturbed.calls()
    held = {line for line in more if any(line.startswith(call) for call in HOLDS.values())}
    for line, count in more.items():
        if line.split()[0] in ("prepare", "load"):
            continue
        assert count <= (1 if line in held else of_stage), (line, count)

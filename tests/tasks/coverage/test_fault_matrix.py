"""The coverage of coverage: every kind of fault is found as what it is, and nothing else is reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from day0.adapters.base.run_store import RunStore
from day0.adapters.targets.target import WorkerTarget
from day0.tasks.coverage.probe import probe
from day0.tasks.verdict import Verdict
from support.captured import calls_of
from support.fault_matrix import SEEDED, Seeded, fault_matrix
from support.simulated_accelerator import FAULTS
from support.simulated_target import OpenSimulated
from support.subtle_faults import SUBTLE
from support.tiny_models import TINY

_KILLS = ("crash", "hang")


def _check(
    model_types: list[str],
    open_simulated: OpenSimulated,
    folder: Path,
    *,
    seeds: Sequence[Seeded] = SEEDED,
    faulty_alone: bool = False,
) -> set[str]:
    def opened(faults: Mapping[str, str]) -> WorkerTarget:
        # `dtype` is the target's own, so that of a fault ends in an underscore.
        named = {f"{name}_": entries for name, entries in faults.items()}
        # Only a hang waits for its end; what is merely slow must not reach it on a busy machine.
        return open_simulated(timeout=5.0 if "hang" in faults else 30.0, device="npu", **named)

    matrix = fault_matrix(model_types, opened, folder, seeds=seeds, faulty_alone=faulty_alone)
    missed = [cell for cell in matrix.cells if cell.found != cell.seeded.status]
    assert not missed
    assert matrix.false == ()
    return {cell.seeded.fault for cell in matrix.cells}


def test_every_seeded_fault_is_found_and_nothing_else(open_simulated: OpenSimulated, tmp_path: Path) -> None:
    assert {seeded.fault for seeded in SEEDED} == set(FAULTS) - set(SUBTLE)
    harmless = [seeded for seeded in SEEDED if seeded.fault not in _KILLS]
    found = _check(["gpt_oss"], open_simulated, tmp_path, seeds=harmless, faulty_alone=True)
    assert found == {seeded.fault for seeded in harmless} - {"clamp"}


@pytest.mark.slow
@pytest.mark.timeout(900)  # a crash and a hang are each believed the second time only
def test_faults_that_end_the_worker_are_found_too(open_simulated: OpenSimulated, tmp_path: Path) -> None:
    """One family; benchmarks/fault_matrix.py goes through all of them."""
    assert _check(["gpt_oss"], open_simulated, tmp_path, faulty_alone=True) == {
        seeded.fault for seeded in SEEDED
    } - {"clamp"}


@pytest.mark.slow
@pytest.mark.parametrize("model_type", TINY)
def test_a_sound_device_gives_no_finding(
    model_type: str, open_simulated: OpenSimulated, tmp_path: Path
) -> None:
    calls = [call for call in calls_of(model_type) if call.branch != "cpu"]
    found = probe(calls, open_simulated(device="npu"), RunStore(str(tmp_path)))
    assert [f"{gap.op} {gap.status} {gap.evidence}" for gap in found.gaps] == []
    assert (found.verdict, found.left) == (Verdict.PASS, 0)

"""The ladder of tiers: what stops it, what does not, what becomes a finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from day0.adapters.base.errors import RemoteError, WorkerCrashed, WorkerTimeout
from day0.adapters.base.target import Generation
from day0.adapters.base.target_spec import TargetSpec
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from day0.tasks.minimal.record import CutRelease
from day0.tasks.scale.health import check_health
from day0.tasks.scale.record import Bandwidth, ScaleRecord
from day0.tasks.scale.tiers import compare_bandwidths, node_ranks
from day0.tasks.scale.verdicts import TierResult
from day0.tasks.verdict import Verdict
from support.canned_target import CannedTarget, Job, finished_rank
from support.layouts import make_release
from support.small_releases import MIXTRAL, SMOLLM2, mixtral_tensors, smollm2_tensors

CUT = CutRelease(layers=[0], tensors=12, bytes=63_705_664, config_changes=[])


@pytest.fixture(scope="module")
def smollm2() -> InventoryRecord:
    return take_inventory(make_release(SMOLLM2, smollm2_tensors()))


def climb(inventory: InventoryRecord, target: Any, **changes: Any) -> ScaleRecord:
    options: dict[str, Any] = {"cut_folder": "cut", "cut": CUT, **changes}
    return check_health(inventory, target, **options)


def outcomes(record: ScaleRecord) -> list[str]:
    return [tier.outcome for tier in record.facts.tiers]


def codes(record: ScaleRecord) -> list[str]:
    return [finding.code for finding in record.findings]


def test_healthy_target_passes_all_tiers(smollm2: InventoryRecord) -> None:
    target = CannedTarget()
    record = climb(smollm2, target)
    assert outcomes(record) == ["passed"] * 4
    assert record.verdict is Verdict.PASS
    assert [world for world, _ in target.launched] == [1, 2, 4]
    assert target.generated == [(1, 4), (1, 64), (1, 256), (4, 64), (4, 256)]
    assert record.observations.device_flops == pytest.approx(1e9)


def test_facts_hold_no_times(smollm2: InventoryRecord) -> None:
    def slowly(tokens: Sequence[Sequence[int]], new_tokens: int) -> Generation:
        return Generation([[1] * new_tokens] * len(tokens), 0.02, 0.09, 2**19)

    fast, slow = climb(smollm2, CannedTarget()), climb(smollm2, CannedTarget(on_generate=slowly))
    assert fast.facts_digest == slow.facts_digest
    assert fast.observations != slow.observations


def test_wrong_answer_of_the_device_stops_the_ladder(smollm2: InventoryRecord) -> None:
    def wrong(world: int, job: Job) -> Sequence[Any]:
        answer = finished_rank(0, world, job)
        answer["checks"][0] |= {"passed": False, "detail": "relative error 0.5, allowed 0"}
        return [answer]

    target = CannedTarget(on_launch=wrong)
    record = climb(smollm2, target)
    assert outcomes(record) == ["failed", "not_reached", "not_reached", "not_reached"]
    assert codes(record) == ["SCL001"]
    assert record.verdict is Verdict.FAIL
    assert len(target.launched) == 1


def test_device_that_does_not_repeat_itself(smollm2: InventoryRecord) -> None:
    def unsteady(world: int, job: Job) -> Sequence[Any]:
        answer = finished_rank(0, world, job)
        answer["checks"][1]["repeatable"] = False
        return [answer]

    assert codes(climb(smollm2, CannedTarget(on_launch=unsteady))) == ["SCL002"]


def test_wrong_data_names_collective_and_rank(smollm2: InventoryRecord) -> None:
    def wrong(world: int, job: Job) -> Sequence[Any]:
        answers = [finished_rank(rank, world, job) for rank in range(world)]
        if world == 4:
            answers[2]["checks"][0] |= {"passed": False, "detail": "3 of 576 values are wrong"}
        return answers

    record = climb(smollm2, CannedTarget(on_launch=wrong))
    assert outcomes(record) == ["passed", "passed", "failed", "not_reached"]
    (finding,) = record.findings
    assert finding.code == "SCL003"
    assert finding.subject.rank == 2
    assert "all_reduce bf16 576 world 4, rank 2: 3 of 576 values are wrong" in finding.message


def test_lost_rank_is_named_and_the_waiting_ones_are_not(smollm2: InventoryRecord) -> None:
    def killed(world: int, job: Job) -> Sequence[Any]:
        answers = [finished_rank(rank, world, job) for rank in range(world)]
        if world == 2:
            answers[1] |= {"outcome": "died", "detail": "it died by signal SIGKILL", "checks": []}
            answers[0] |= {"outcome": "stopped", "detail": "it waited in step 'all_reduce'", "checks": []}
        return answers

    record = climb(smollm2, CannedTarget(on_launch=killed))
    (finding,) = record.findings
    assert (finding.code, finding.subject.rank) == ("SCL004", 1)
    assert "SIGKILL" in finding.message


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (WorkerCrashed("it died by signal SIGSEGV", log=["line one", "Segmentation fault"]), "SIGSEGV"),
        (WorkerTimeout("it passed 60 s", log=["waiting"]), "60 s"),
    ],
)
def test_lost_worker_fails_its_tier_with_log(smollm2: InventoryRecord, error: Exception, word: str) -> None:
    def lost(world: int, job: Job) -> Sequence[Any]:
        raise error

    record = climb(smollm2, CannedTarget(on_launch=lost))
    (finding,) = record.findings
    assert finding.code == "SCL009"
    assert word in finding.message
    assert record.observations.worker_log[-1] in finding.evidence
    assert outcomes(record)[0] == "failed"


def test_lacking_capability_is_unverified_and_stops_nothing(smollm2: InventoryRecord) -> None:
    def whole(world: int, job: Job) -> Sequence[Any]:
        raise AssertionError("nothing may be launched")

    target = CannedTarget(capabilities=("model", "generate"), on_launch=whole)
    record = climb(smollm2, target)
    assert outcomes(record) == ["could_not_run"] * 3 + ["passed"]
    assert codes(record) == ["SCL006"] * 3
    assert record.verdict is Verdict.UNVERIFIED


def test_stack_that_does_not_generate(smollm2: InventoryRecord) -> None:
    record = climb(smollm2, CannedTarget(capabilities=("collectives",)))
    assert outcomes(record) == ["passed"] * 3 + ["could_not_run"]
    assert codes(record) == ["SCL006"]


def test_failed_numerics_hold_back_the_model_tier_only(smollm2: InventoryRecord) -> None:
    record = climb(smollm2, CannedTarget(), numerics_failed=True)
    assert outcomes(record) == ["passed"] * 3 + ["could_not_run"]
    assert codes(record) == ["SCL007"]
    assert record.verdict is Verdict.BLOCKED


def test_no_cut_down_release(smollm2: InventoryRecord) -> None:
    record = climb(smollm2, CannedTarget(), cut=None, cut_folder=None)
    assert codes(record) == ["SCL008"]
    assert record.verdict is Verdict.BLOCKED


def test_one_accelerator_has_no_collectives(smollm2: InventoryRecord) -> None:
    target = CannedTarget(spec=TargetSpec.parse("canned@cuda/bf16"))
    record = climb(smollm2, target)
    assert outcomes(record) == ["passed", "could_not_run", "could_not_run", "passed"]
    assert set(codes(record)) == {"SCL016"}
    assert record.verdict is Verdict.PASS


def test_bandwidth_that_drops_with_all_devices() -> None:
    def measured(world: int, rate: float) -> TierResult:
        name = f"all_reduce bf16 576 world {world}"
        bandwidth = Bandwidth(
            name=name, world_size=world, bytes=1152, seconds=0.1, bus_bytes_per_second=rate, samples=5
        )
        return TierResult(bandwidths=[bandwidth])

    two, sound, slow = measured(2, 1e9), measured(8, 3e8), measured(8, 1e8)
    for node in (sound, slow):
        compare_bandwidths("cuda", two, node)
    assert sound.findings == []
    assert [finding.code for finding in slow.findings] == ["SCL015"]
    shared = measured(4, 1e6)
    compare_bandwidths("cpu", two, shared)
    assert shared.findings == []


@pytest.mark.parametrize(
    ("device", "devices", "expected"), [("cpu", 1, (2, 4)), ("cuda", 1, (0, 0)), ("npu", 2, (2, 2))]
)
def test_ranks_of_a_node(device: str, devices: int, expected: tuple[int, int]) -> None:
    assert node_ranks(device, devices) == expected


def test_memory_far_beyond_the_expectation(smollm2: InventoryRecord) -> None:
    def greedy(tokens: Sequence[Sequence[int]], new_tokens: int) -> Generation:
        return Generation([[1] * new_tokens] * len(tokens), 0.01, 0.08, 2**30)

    record = climb(smollm2, CannedTarget(on_generate=greedy))
    assert set(codes(record)) == {"SCL010"}
    assert record.verdict is Verdict.WARN


def test_slow_first_token(smollm2: InventoryRecord) -> None:
    def lazy(tokens: Sequence[Sequence[int]], new_tokens: int) -> Generation:
        return Generation([[1] * new_tokens] * len(tokens), 500.0, 501.0, 2**20)

    assert set(codes(climb(smollm2, CannedTarget(on_generate=lazy)))) == {"SCL011"}


def test_missing_tokens(smollm2: InventoryRecord) -> None:
    def short(tokens: Sequence[Sequence[int]], new_tokens: int) -> Generation:
        return Generation([[1] * new_tokens] * (len(tokens) - 1) + [[1]], 0.01, 0.08, 2**20)

    record = climb(smollm2, CannedTarget(on_generate=short))
    assert outcomes(record)[3] == "failed"
    assert set(codes(record)) == {"SCL014"}


def test_refusal_of_the_stack_is_classified(smollm2: InventoryRecord) -> None:
    def refuse(tokens: Sequence[Sequence[int]], new_tokens: int) -> Generation:
        raise RemoteError("no kernel for bf16", kind="dtype", type_name="RuntimeError", log=["frame"])

    record = climb(smollm2, CannedTarget(on_generate=refuse))
    (finding,) = record.findings
    assert finding.code == "SCL013"
    assert finding.message.endswith("(load, dtype): no kernel for bf16")


def test_growth_stops_before_the_memory_limit(smollm2: InventoryRecord) -> None:
    target = CannedTarget(weight_bytes=CUT.bytes)
    # A worker's own gibibyte, the weights, the fixed slack, and 20 MB: enough for the first point only.
    limit = 2**30 + CUT.bytes + 96 * 2**20 + 20_000_000
    record = climb(smollm2, target, memory_limit=limit)
    assert codes(record) == ["SCL012"]
    assert target.generated[1:] == [(1, 64), (1, 256), (4, 64)]
    assert record.verdict is Verdict.PASS


def test_weights_beyond_the_memory_limit_are_not_loaded(smollm2: InventoryRecord) -> None:
    target = CannedTarget()
    record = climb(smollm2, target, memory_limit=2**30 + 2**20)
    assert outcomes(record)[3] == "could_not_run"
    assert target.generated == []


def test_experts_are_dispatched_at_their_own_size() -> None:
    target = CannedTarget()
    climb(take_inventory(make_release(MIXTRAL, mixtral_tensors())), target)
    compute, two = target.launched[0][1], target.launched[1][1]
    assert two["elements"] == [32, 32 * 256 * 2]
    assert {"operation": "topk", "shape": [256, 4, 2], "dtype": "fp32"} in compute["cases"]

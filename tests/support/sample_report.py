"""A report as a run on SmolLM2-135M might leave it: one target passes, the other has one wrong layer."""

from __future__ import annotations

from datetime import UTC, datetime

from day0.reports.assemble import assemble
from day0.reports.model import Report, Stages
from day0.tasks.finding import Subject, Waiver, make_finding
from day0.tasks.minimal.record import (
    CutRelease,
    LoadFact,
    MinimalFacts,
    MinimalObservations,
    MinimalRecord,
    NodeRunFact,
)
from day0.tasks.plan.record import Config, PlanFacts, PlanRecord, RuleCheck
from day0.tasks.scale.record import (
    Bandwidth,
    Check,
    Growth,
    ScaleFacts,
    ScaleObservations,
    ScaleRecord,
    Tier,
)
from support.sample_numerics import optional_parts, sample_numerics
from support.sample_records import (
    BAD_LAYER,
    EAGER,
    MODEL,
    ORT,
    REVISION,
    any_code,
    fingerprint,
    sample_coverage,
    sample_inventory,
)


def sample_minimal(target: str) -> MinimalRecord:
    names = [
        ("model.embed_tokens", "embedding", "e1"),
        ("model.layers.0", "layer", "a7"),
        ("model.norm", "norm", "b2"),
        ("lm_head", "head", "c9"),
    ]
    return MinimalRecord.conclude(
        findings=[],
        target=target,
        key="3d1f" * 8,
        facts=MinimalFacts(
            fingerprint=fingerprint(target.split("@")[0]),
            tokens=[[504, 3575, 282, 4649, 314]],
            nodes=[
                NodeRunFact(name=name, kind=kind * 16, role=role, phase=phase, outcome="ran")
                for phase in ("prefill", "decode")
                for name, role, kind in names
            ],
            cut=CutRelease(
                layers=[0], tensors=11, bytes=63_706_752, config_changes=["num_hidden_layers: 30 -> 1"]
            ),
            load=LoadFact(outcome="loaded"),
            generated=[[7042, 30, 198]],
        ),
        observations=MinimalObservations(seconds=4.1, load_seconds=0.8, peak_bytes=512_000_000),
        sources={"": "measured in the worker"},
    )


def sample_plan() -> PlanRecord:
    def config(chip: str, memory: int, devices: int, fits: str, rule: bool) -> Config:
        return Config(
            chip=chip,
            devices=devices,
            tensor_parallel=devices,
            expert_parallel=1,
            pipeline_parallel=1,
            weight_dtype="bf16",
            kv_dtype="bf16",
            memory_bytes=memory,
            weight_bytes=269_030_016 // devices,
            kv_bytes_per_token=23_040 // devices,
            state_bytes_per_sequence=0,
            reserve_bytes=memory // 10,
            max_context=8192,
            concurrency=int(memory * 0.85 / (23_040 * 8192)),
            fits=fits,
            limited_by="cache: 8,192 tokens are the model's maximum",
            rules=[RuleCheck(rule="r1", holds=rule, arithmetic=f"9 heads % {devices} = {9 % devices}")],
            command=f"vllm serve {MODEL} --revision {REVISION} --dtype bfloat16 "
            f"--tensor-parallel-size {devices} --max-model-len 8192 --gpu-memory-utilization 0.90"
            if rule
            else "",
        )

    return PlanRecord.conclude(
        findings=[],
        key="5f3b" * 8,
        facts=PlanFacts(
            recommended=[
                config("H100-80GB", 80_000_000_000, 1, "fits", True),
                config("H200-141GB", 141_000_000_000, 1, "fits", True),
                config("A10-24GB", 24_000_000_000, 1, "fits", True),
                config("MI300X-192GB", 192_000_000_000, 1, "fits", True),
                config("910B-64GB", 64_000_000_000, 1, "tight", True),
            ],
            rejected=[config("H100-80GB", 80_000_000_000, 2, "no", False)],
        ),
        sources={"": "computed: weights and cache bytes of inventory over the profile's memory"},
    )


def sample_scale(target: str, *, blocked: bool) -> ScaleRecord:
    findings = []
    if blocked:
        findings = [
            make_finding(
                any_code("SCL", "warning", undecided="blocked"),
                Subject(kind="tier", name="4"),
                "Batch and length growth was held back: numerics failed at model.layers.17.",
            )
        ]
    tiers = [
        Tier(
            number=1,
            name="device compute",
            outcome="passed",
            checks=[Check(name="matmul fp32 1024", outcome="passed", detail="max. error 3.1e-05")],
        ),
        Tier(
            number=2,
            name="two processes",
            outcome="passed",
            checks=[
                Check(name=f"{name} fp32 world 2", outcome="passed", detail="data checked")
                for name in ("all_reduce", "all_gather", "all_to_all")
            ],
        ),
        Tier(number=3, name="all devices of the node", outcome="could_not_run", checks=[]),
        Tier(number=4, name="batch and length", outcome="not_reached" if blocked else "passed"),
    ]
    growth = [
        Growth(
            batch=batch,
            length=length,
            new_tokens=16,
            first_token_seconds=0.002 * batch * length / 16,
            tokens_per_second=38.0 * batch / (1 + batch / 9),
            memory_bytes=int(batch * (length + 16) * 768 * 1.12 + 40_000),
            expected_memory_bytes=batch * (length + 16) * 768,
            layers=1,
        )
        for batch, length in ((1, 16), (1, 64), (2, 64), (4, 64), (4, 256), (8, 256))
    ]
    return ScaleRecord.conclude(
        findings=findings,
        target=target,
        key="6a4c" * 8,
        facts=ScaleFacts(fingerprint=fingerprint(target.split("@")[0]), tiers=tiers),
        observations=ScaleObservations(
            seconds=9.0,
            device_flops=41e9,
            growth=() if blocked else growth,
            bandwidths=[
                Bandwidth(
                    name="all_reduce",
                    world_size=2,
                    bytes=4 * 2**20,
                    seconds=0.0021,
                    bus_bytes_per_second=2.0e9,
                    samples=5,
                )
            ],
        ),
        sources={"": "measured in the worker"},
    )


def sample_report(
    *, layers: int = 30, bad: int | None = BAD_LAYER, waivers: tuple[Waiver, ...] = ()
) -> Report:
    """One target that passes, one with a wrong layer (none where `bad` is None)."""
    failing = bad is not None
    return assemble(
        "20261129-172244-smollm2",
        MODEL,
        sample_inventory(layers),
        {
            EAGER: Stages(
                coverage=sample_coverage(EAGER, gaps=False),
                minimal=sample_minimal(EAGER),
                numerics=sample_numerics(EAGER, layers=layers, **optional_parts()),
                plan=sample_plan(),
                scale=sample_scale(EAGER, blocked=False),
            ),
            ORT: Stages(
                coverage=sample_coverage(ORT, gaps=failing),
                minimal=sample_minimal(ORT),
                numerics=sample_numerics(ORT, layers=layers, bad=bad),
                plan=sample_plan(),
                scale=sample_scale(ORT, blocked=failing),
            ),
        },
        waivers=waivers,
        created=datetime(2026, 11, 29, 17, 22, 44, tzinfo=UTC),
        command=f"day0 adapt {MODEL} --target {EAGER} --target {ORT}",
        environment={
            "python": "3.11.7",
            "system": "Linux 6.1",
            "cores": 2,
            "memory_bytes": 24_000_000_000,
            "packages": {"day0": "0.1.0", "torch": "2.13.0", "transformers": "5.24.0"},
        },
        reused={"inventory": True, f"coverage {EAGER}": True},
    )

"""Tiers one to three: one device, two processes, all devices of the node."""

from __future__ import annotations

import os

from day0.adapters.base.progress import Progress
from day0.adapters.base.target import Target, TargetDescription

from ..finding import Subject, make_finding
from ..inventory.record import InventoryFacts
from ..thresholds import SCALE_BUS_SHARE
from .model_shapes import SAMPLES, compute_cases, exchange_sizes
from .op_compute import compute_by_operators
from .record import Bandwidth
from .verdicts import TierResult, judge_collectives, judge_compute, judge_ranks

CPU_RANKS = 4
_SECONDS = 60.0


def check_device(
    facts: InventoryFacts, dtype: str, target: Target, description: TargetDescription, progress: Progress
) -> TierResult:
    """Tier 1: known answers at the model's own shapes, twice; by a rank of its own or by single operators."""
    result = TierResult()
    cases = compute_cases(facts, target.spec.device, dtype)
    progress("scale device", 0, len(cases))
    if "collectives" in description.capabilities:
        job = {"job": "compute", "cases": [case.job for case in cases], "samples": 3, "timeout": _SECONDS}
        answers = target.launch(1, job)
        if not judge_ranks(answers, result):
            return result
        checks = answers[0]["checks"]
    elif "op" in description.capabilities:
        checks = compute_by_operators(cases, target)
    else:
        result.could_not_run = "the target claims neither collectives nor op"
        return result
    judge_compute(checks, [case.capped for case in cases], result)
    return result


def check_collectives(
    facts: InventoryFacts,
    dtype: str,
    target: Target,
    description: TargetDescription,
    world: int,
    progress: Progress,
) -> TierResult:
    """Tiers 2 and 3: every collective among that many ranks, its data checked on each of them."""
    result = TierResult()
    if "collectives" not in description.capabilities:
        result.could_not_run = "the target does not claim collectives"
        return result
    exchange = exchange_sizes(facts, target.spec.device, dtype, description.dtypes.get("collectives", ()))
    progress("scale collectives", 0, world, f"{world} ranks")
    # More than two processes of one CPU share its cores: one dtype shows all that they can show.
    few = target.spec.device == "cpu" and world > 2
    job = {
        "job": "collectives",
        "dtypes": list(exchange.dtypes[:1] if few else exchange.dtypes),
        "elements": list(exchange.elements),
        "samples": SAMPLES,
        "timeout": _SECONDS,
    }
    answers = target.launch(world, job)
    if judge_ranks(answers, result):
        judge_collectives(answers, exchange.notes, result)
    return result


def node_ranks(device: str, devices: int) -> tuple[int, int]:
    """Ranks of tiers 2 and 3; 0 where the device type has too few devices for the tier."""
    if device == "cpu":
        return 2, CPU_RANKS
    most = min(devices, os.cpu_count() or devices)
    return (2, most) if most >= 2 else (0, 0)


def compare_bandwidths(device: str, two: TierResult, all_of_them: TierResult) -> None:
    """Finds collectives whose bus bandwidth falls to a small part of two devices' once all take part."""
    if device == "cpu":
        return
    pairs = {_key(bandwidth): bandwidth for bandwidth in two.bandwidths}
    for bandwidth in all_of_them.bandwidths:
        pair = pairs.get(_key(bandwidth))
        if pair and bandwidth.bus_bytes_per_second < pair.bus_bytes_per_second * SCALE_BUS_SHARE:
            sentence = (
                f"{bandwidth.name} reaches {bandwidth.bus_bytes_per_second / 1e9:.2f} GB/s of bus bandwidth, "
                f"two devices {pair.bus_bytes_per_second / 1e9:.2f} GB/s"
            )
            subject = Subject(kind="tier", name=bandwidth.name)
            all_of_them.findings.append(make_finding("SCL015", subject, sentence))


def _key(bandwidth: Bandwidth) -> str:
    return bandwidth.name.rpartition(" world ")[0]

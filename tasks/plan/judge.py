"""One layout on one chip: does it keep the rules, what does each device hold, how long may a sequence be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from ..inventory.record import InventoryFacts
from ..thresholds import PLAN_LOAD_OVERHEAD, PLAN_MIN_CONTEXT, PLAN_UTILISATION
from .chips import Profile
from .commands import engine_commands
from .memory import Stage, heads_of, reserve_bytes, stages_of
from .record import Config, RuleCheck
from .rules import block_weights, check_r1, check_r2, check_r3
from .sharding import Layout

_FP8_SCALE = 0.5  # bytes of an fp8 KV element over those of bf16


@dataclass(frozen=True)
class Room:
    """What a layout leaves for sequences.

    Attributes:
        fits: `fits`, `tight` or `no`.
        context: tokens that one sequence can hold.
        concurrency: sequences of that length at once.
        stage: the pipeline stage that gives out first.
        left: bytes per device beside weights and reserve on that stage.
    """

    fits: str
    context: int
    concurrency: int
    stage: Stage
    left: int


def judge(facts: InventoryFacts, profile: Profile, layout: Layout) -> Config:
    """The configuration with its arithmetic, whether it works or not."""
    converted = facts.quantization.scheme not in profile.takes
    usable = int(profile.memory_bytes * PLAN_UTILISATION)
    reserve = reserve_bytes(facts.architecture, layout)
    limit = facts.architecture.max_positions or PLAN_MIN_CONTEXT
    stages = stages_of(facts, layout, bf16_weights=converted)
    room = find_room(stages, usable - reserve, limit)
    rules = check_rules(facts, layout, converted=converted)
    works = room.fits != "no" and all(rule.holds for rule in rules)
    commands = {}
    stored = facts.basis != "implied"  # else there is nothing to serve yet
    if works and stored and not converted:  # an engine cannot load as bf16 what is stored in another
        commands = engine_commands(facts.identity, profile, layout, room.context, reserve)
    return Config(
        chip=profile.name,
        devices=layout.devices,
        tensor_parallel=layout.tensor,
        expert_parallel=layout.expert,
        pipeline_parallel=layout.pipeline,
        weight_dtype=_weight_dtype(facts, converted),
        kv_dtype="bf16",
        memory_bytes=usable,
        weight_bytes=max(stage.weights for stage in stages),
        kv_bytes_per_token=room.stage.kv_per_token,
        state_bytes_per_sequence=room.stage.state,
        reserve_bytes=reserve,
        max_context=room.context,
        concurrency=room.concurrency,
        fits=room.fits,
        limited_by=_limit(room, usable, reserve, limit, rules),
        rules=rules,
        command=commands.get("vllm", ""),
        sequence_bytes=room.stage.sequence_bytes(room.context) if room.context else 0,
        commands={engine: text for engine, text in commands.items() if engine != "vllm"},
        notes=_notes(facts, profile, layout, room, usable - reserve, limit, converted),
    )


def check_rules(facts: InventoryFacts, layout: Layout, *, converted: bool = False) -> tuple[RuleCheck, ...]:
    """r1, r2 and r3 on a layout; weights converted to bf16 have no blocks."""
    heads = heads_of(facts)
    weights = () if converted else block_weights(facts.patterns, facts.quantization)
    return (
        check_r1(heads.query, layout.tensor),
        check_r2(heads, layout.tensor),
        check_r3(weights, facts.quantization, layout, heads),
    )


def find_room(stages: Sequence[Stage], available: int, limit: int) -> Room:
    """What remains for sequences, with weights as stored and with what loading may add.

    `fits`: one sequence of the model's full length even if loading adds its share; `no`: not even a short one
    without that; `tight`: between.

    Args:
        stages: what each stage's fullest rank holds.
        available: bytes per device for weights and cache.
        limit: the model's longest sequence.
    """
    least = min(PLAN_MIN_CONTEXT, limit)
    careful = _room(stages, available, limit, 1 + PLAN_LOAD_OVERHEAD)
    bold = _room(stages, available, limit, 1.0)
    if bold.context < least:
        return Room("no", bold.context, 0, bold.stage, bold.left)
    if careful.context >= limit:
        return careful
    chosen = careful if careful.context >= least else bold
    return Room("tight", chosen.context, chosen.concurrency, chosen.stage, chosen.left)


def _room(stages: Sequence[Stage], available: int, limit: int, factor: float) -> Room:
    lefts = [available - ceil(stage.weights * factor) for stage in stages]
    contexts = [stage.longest(left, limit) for stage, left in zip(stages, lefts, strict=True)]
    context = min(contexts)
    counts = [
        max(0, left) // max(1, stage.sequence_bytes(context)) if context else 0
        for stage, left in zip(stages, lefts, strict=True)
    ]
    scarce = min(range(len(stages)), key=lambda number: (contexts[number], counts[number], lefts[number]))
    return Room("fits", context, counts[scarce], stages[scarce], lefts[scarce])


def _limit(room: Room, usable: int, reserve: int, limit: int, rules: Sequence[RuleCheck]) -> str:
    """What gives out first, in words."""
    for rule in rules:
        if not rule.holds:
            return f"rule {rule.rule}: {rule.arithmetic}"
    held = f"weights {_gb(room.stage.weights)} and reserve {_gb(reserve)} of {_gb(usable)} usable"
    if room.left <= 0:
        return held
    need = room.stage.sequence_bytes(limit)
    if room.context < limit:
        left = f"{_gb(room.left)} are left after {held}"
        return f"KV cache: a sequence of {limit} tokens needs {_gb(need)}, {left}"
    return f"KV cache: {room.concurrency} sequences of {limit} tokens in {_gb(room.left)} left after {held}"


def _notes(
    facts: InventoryFacts,
    profile: Profile,
    layout: Layout,
    room: Room,
    available: int,
    limit: int,
    converted: bool,
) -> tuple[str, ...]:
    notes = []
    if converted:
        notes.append(
            f"{profile.name} does not take {facts.quantization.scheme}: counted as converted to bf16"
        )
    if layout.tensor > profile.devices_per_node:
        notes.append(f"tensor parallelism crosses nodes of {profile.devices_per_node} devices")
    if room.fits == "tight" and room.context < limit:
        stages = stages_of(facts, layout, bf16_weights=converted, kv_scale=_FP8_SCALE)
        smaller = find_room(stages, available, limit)
        notes.append(f"an fp8 KV cache would hold {smaller.context} tokens instead of {room.context}")
    if profile.nominal:
        notes.append("memory is the vendor's nominal figure")
    return tuple(notes)


def _weight_dtype(facts: InventoryFacts, converted: bool) -> str:
    if converted:
        return "bf16"
    scheme = facts.quantization.scheme
    return scheme if scheme != "none" else facts.architecture.dtype or "bf16"


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"

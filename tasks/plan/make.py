"""The plan: every candidate on every chip, judged; the best of each chip first."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from ..finding import Finding, Subject, make_finding
from ..inventory.record import InventoryFacts, InventoryRecord
from .chips import Profile, load_profiles
from .judge import judge
from .layouts import DEVICE_COUNTS, best, candidates, short_name
from .memory import HEADLESS_KINDS
from .record import Config, PlanFacts, PlanObservations, PlanRecord
from .sharding import Layout

_SOURCES = {
    "/recommended": "computed:tasks/plan from header bytes, config and chip profiles; not measured",
    "/alternatives": "computed:tasks/plan from header bytes, config and chip profiles; not measured",
    "/rejected": "computed:tasks/plan from header bytes, config and chip profiles; not measured",
    "/chips": "tasks/plan/chips.toml, see each field's provenance",
    "/estimate": "computed:constant",
}


def make_plan(inventory: InventoryRecord, profiles: Sequence[Profile] | None = None) -> PlanRecord:
    """Which configuration fits where.

    Args:
        inventory: of the release; its tensor patterns and layers give exact bytes.
        profiles: chips to plan for; the shipped ones where left out.
    """
    start = time.monotonic()
    facts = _with_patterns(inventory.facts)
    chips = load_profiles() if profiles is None else tuple(profiles)
    configs = _all_configs(facts, chips) if can_plan(facts) else []
    recommended = [found for chip in chips if (found := best(_kept(configs, chip))) is not None]
    working = [config for config in configs if config.fits != "no" and _keeps_rules(config)]
    plan = PlanFacts(
        recommended=tuple(recommended),
        alternatives=tuple(config for config in working if config not in recommended),
        rejected=tuple(config for config in configs if config not in working),
        chips=tuple(profile.chip for profile in chips),
    )
    findings = _findings(facts, plan) if can_plan(facts) else [_nothing_to_plan(facts)]
    observed = PlanObservations(seconds=time.monotonic() - start)
    sources = _SOURCES
    if facts.basis == "implied":
        sources = {
            place: source.replace("header bytes", "the bytes that the config implies")
            for place, source in _SOURCES.items()
        }
    return PlanRecord.conclude(findings=findings, facts=plan, observations=observed, sources=sources)


def _with_patterns(facts: InventoryFacts) -> InventoryFacts:
    """The facts with the tensors to plan with: of a bare config those that it implies."""
    if facts.basis != "implied" or not can_plan(facts):
        return facts
    return facts.model_copy(update={"patterns": facts.implied.patterns})


def can_plan(facts: InventoryFacts) -> bool:
    """Whether there are bytes and layers to plan with; a config alone must state its layers itself."""
    implied = facts.basis == "implied" and facts.architecture.layers > 0
    return bool((facts.patterns or implied) and facts.layers and facts.totals.data_bytes)


def _all_configs(facts: InventoryFacts, chips: Iterable[Profile]) -> list[Config]:
    return [
        judge(facts, chip, layout)
        for chip in chips
        for layout in candidates(chip.devices_per_node, len(facts.layers), facts.architecture.experts)
    ]


def _kept(configs: Iterable[Config], chip: Profile) -> list[Config]:
    return [config for config in configs if config.chip == chip.name and _keeps_rules(config)]


def _keeps_rules(config: Config) -> bool:
    return all(rule.holds for rule in config.rules)


def _findings(facts: InventoryFacts, plan: PlanFacts) -> list[Finding]:
    model = Subject(kind="model", name=facts.identity.model)
    found = []
    if facts.basis == "implied":
        held = f"{facts.totals.data_bytes} bytes in {facts.totals.tensors} tensors"
        message = f"nothing is stored: planned with {held} that the config implies ({facts.implied.by})"
        found.append(make_finding("PLN008", model, message))
    if not plan.recommended:
        held = f"the model's {facts.totals.data_bytes} bytes on {max(DEVICE_COUNTS)} devices or fewer"
        message = f"none of {len(plan.chips)} chips holds {held}"
        found.append(make_finding("PLN002", model, message))
    chosen = {config.chip: config for config in plan.recommended}
    for chip in plan.chips:
        subject = Subject(kind="config", name=chip.name)
        if chip.name not in chosen:
            tried = [config for config in plan.rejected if config.chip == chip.name]
            evidence = [f"{short_name(_layout(config))}: {config.limited_by}" for config in tried]
            found.append(
                make_finding("PLN004", subject, f"no layout on {chip.name} works", evidence=evidence)
            )
        elif chosen[chip.name].fits == "tight":
            config = chosen[chip.name]
            message = f"on {config.devices} x {chip.name} it fits only tightly: {config.limited_by}"
            found.append(make_finding("PLN003", subject, message))
    found += _unknown_counts(facts)
    found += _broken_rules([*plan.recommended, *plan.alternatives, *plan.rejected])
    if facts.unknown_tensors:
        message = f"{len(facts.unknown_tensors)} kinds of tensors without a known role count on every device"
        found.append(make_finding("PLN006", model, message, evidence=tuple(facts.unknown_tensors[:20])))
    return found


def _unknown_counts(facts: InventoryFacts) -> list[Finding]:
    """Counts that the arithmetic needs and the config does not give; without attention there are no heads."""
    attends = any(layer.kind not in ("", *HEADLESS_KINDS) for layer in facts.layers)
    needed = {"layers": facts.architecture.layers}
    if attends:
        needed["attention heads"] = facts.architecture.heads
    lacking = [name for name, number in needed.items() if number <= 0]
    if not lacking:
        return []
    message = (
        f"the config gives no usable number of {' and '.join(lacking)}; "
        "rules and cache were computed without it"
    )
    return [make_finding("PLN007", Subject(kind="model", name=facts.identity.model), message)]


def _broken_rules(configs: Iterable[Config]) -> list[Finding]:
    """One finding a rule, with the layouts that break it, whatever the chip: rules do not depend on it."""
    broken: dict[str, dict[str, str]] = {}
    for config in configs:
        for check in config.rules:
            if not check.holds:
                broken.setdefault(check.rule, {}).setdefault(short_name(_layout(config)), check.arithmetic)
    found = []
    for rule, layouts in sorted(broken.items()):
        first = next(iter(layouts.values()))
        found.append(
            make_finding(
                "PLN005",
                Subject(kind="config", name=rule),
                f"{', '.join(layouts)} would break rule {rule}: {first}",
                evidence=[f"{layout}: {arithmetic}" for layout, arithmetic in layouts.items()],
            )
        )
    return found


def _layout(config: Config) -> Layout:
    return Layout(config.tensor_parallel, config.pipeline_parallel, config.expert_parallel)


def _nothing_to_plan(facts: InventoryFacts) -> Finding:
    message = (
        f"a release of format {facts.format} without readable tensors or layers gives nothing to plan with"
    )
    return make_finding("PLN001", Subject(kind="model", name=facts.identity.model), message)

"""The first screen: what was adapted, how it ended, and the three questions of every target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from day0.tasks.plan.record import Config

from ..headline import headline
from ..model import Question, Report, TargetResult
from ..records import stage_records, stage_verdict
from ..words import bytes_text, count_text, plural
from .blocks import target_slug
from .limitations import Limitation, is_note
from .parts import Quote
from .plan import config_facts, name_of

ANSWER_LOOK = {"yes": "pass", "partly": "warn", "no": "fail", "unverified": "unverified"}


@dataclass(frozen=True)
class StageLink:
    """One stage of a target: its name, its verdict, where it stands."""

    name: str
    verdict: str
    href: str


@dataclass(frozen=True)
class Answered:
    """One question as shown: with the look of its answer and where its evidence stands."""

    question: Question
    look: str
    href: str


@dataclass(frozen=True)
class TargetCard:
    """One target on the first screen."""

    id: str
    target: str
    verdict: str
    answers: Sequence[Answered]
    stages: Sequence[StageLink]
    quotes: Sequence[Quote]


@dataclass(frozen=True)
class Recommended:
    """One recommended configuration: where, its deciding facts, command to copy, and other engines."""

    name: str
    look: str
    fits: str
    facts: Sequence[tuple[str, str]]
    command: str
    others: Sequence[tuple[str, str]]
    notes: Sequence[str]


@dataclass(frozen=True)
class Overview:
    """What a person decides from."""

    headline: str
    subtitle: Sequence[str]
    counts: str
    cards: Sequence[TargetCard]
    recommended: Sequence[Recommended]


def overview(report: Report, found: Sequence[Limitation]) -> Overview:
    """The first screen of a report."""
    return Overview(
        headline=headline(report),
        subtitle=_subtitle(report),
        counts=_counts(found, report),
        cards=[_card(result) for result in report.targets],
        recommended=[_recommended(config) for config in _configs(report)],
    )


def _subtitle(report: Report) -> Sequence[str]:
    facts = report.inventory.facts
    said = facts.architecture
    parts = [said.architecture or said.model_type or "unknown architecture"]
    if facts.totals.logical_params:
        implied = " implied" if facts.basis == "implied" else ""
        parts.append(f"{count_text(facts.totals.logical_params)} parameters{implied}")
    if said.experts:
        parts.append(f"{said.experts} experts, top {said.top_k}")
    if facts.layers or said.layers:
        parts.append(plural(len(facts.layers) or said.layers, "layer"))
    if facts.totals.data_bytes:
        held = "implied, nothing stored" if facts.basis == "implied" else facts.format
        parts.append(f"{bytes_text(facts.totals.data_bytes)} {held}")
    return parts


def _counts(found: Sequence[Limitation], report: Report) -> str:
    acting = [item for item in found if not is_note(item)]
    absent = sum(
        record is None for result in report.targets for record in stage_records(result.stages).values()
    )
    if not acting and not absent:
        return "Nothing to act on."
    words = {"fail": "failure", "blocked": "blocked", "unverified": "unverified", "warn": "warning"}
    parts = []
    for verdict, noun in words.items():
        count = sum(item.verdict == verdict and not item.accepted for item in acting)
        if count:
            parts.append(f"{count} {noun}" if noun in ("blocked", "unverified") else plural(count, noun))
    if absent:
        parts.append(f"{plural(absent, 'stage')} without a record")
    accepted = sum(bool(item.accepted) for item in acting)
    return ", ".join([*parts, *([f"{accepted} accepted"] if accepted else [])])


def _card(result: TargetResult) -> TargetCard:
    slug = target_slug(result)
    stage_of = {"weights": "minimal", "graph": "minimal", "results": "numerics"}
    says = result.stages.numerics.facts.says if result.stages.numerics else None
    return TargetCard(
        id=f"target--{slug}",
        target=result.target,
        verdict=result.verdict,
        answers=[
            Answered(
                question, ANSWER_LOOK.get(question.answer, "unverified"), f"{stage_of[question.id]}--{slug}"
            )
            for question in result.questions
            if question.id in stage_of
        ],
        stages=[
            StageLink(stage, stage_verdict(record), "stage-plan" if stage == "plan" else f"{stage}--{slug}")
            for stage, record in stage_records(result.stages).items()
        ],
        quotes=(
            Quote("Prompt", says.prompt),
            Quote("reference", says.reference),
            Quote("target", says.target),
        )
        if says
        else (),
    )


def _configs(report: Report) -> Sequence[Config]:
    plan = next((result.stages.plan for result in report.targets if result.stages.plan), None)
    return plan.facts.recommended if plan else ()


def _recommended(config: Config) -> Recommended:
    return Recommended(
        name=name_of(config),
        look={"fits": "pass", "tight": "warn", "no": "fail"}.get(config.fits, "unverified"),
        fits={"fits": "fits", "tight": "tight", "no": "does not fit"}.get(config.fits, config.fits),
        facts=config_facts(config),
        command=config.command,
        others=[item for item in config.commands.items() if item[1] != config.command],
        notes=config.notes,
    )

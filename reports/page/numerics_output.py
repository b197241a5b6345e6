"""The output: agreement on each prompt, in prefill and step by step with a cache; a task on both sides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from day0.tasks.numerics.record import Logits, NumericsRecord, PromptResult
from day0.tasks.numerics.record_parts import TaskMetric

from ..words import exact_text, number_text, percent_text, plural, sentence
from .ledger import Ledger
from .parts import Cell, Column, Group, Row, Stat, Table, settle

_DECISIVE = "NUM007"
_DASH = "\N{EN DASH}"
_PHASES = (("logits", "prefill"), ("decode", "decode"))


def output_group(ledger: Ledger, record: NumericsRecord, slug: str, rest: str, limit: int) -> Group | None:
    """Prompt by prompt, prefill beside decode, and the task; None where nothing reached the output."""
    facts = record.facts
    rows = list(_rows(ledger, record))
    if not rows and facts.task is None:
        return None
    table = Table(
        id=f"numerics--{slug}--prompts",
        caption="Agreement at the output, prompt by prompt",
        columns=[
            Column("Prompt"),
            Column("Phase"),
            Column("Tokens", True, "Positions compared, padding not counted."),
            Column(
                "KL", True, "Kullback-Leibler divergence of the target from the reference, nats a position."
            ),
            Column("Top-1", True, "Positions whose most likely token is the same."),
            Column("Top-5", True, "Mean overlap of the five most likely tokens."),
            Column(
                "Decisive", True, "Positions that differ although the reference's margin exceeds the noise."
            ),
            Column("Worst node", help="Node furthest beyond its tolerance on this prompt."),
        ],
        rows=rows[:limit],
        total=len(rows),
        rest=f"{rest}/logits/prompts",
    )
    return Group(
        id=f"numerics--{slug}--output",
        title="Output",
        lead=_lead(record),
        look=_look(record),
        stats=_task_stats(ledger, facts.task) if facts.task else (),
        tables=[settle(table)] if rows else (),
    )


def _look(record: NumericsRecord) -> str:
    facts = record.facts
    prompts = [prompt for _, prompt in _prompts(record)]
    if any(prompt.worst_block for prompt in prompts):
        return "fail"
    if facts.logits is None:
        return "unverified"
    return "warn" if any(finding.code == _DECISIVE for finding in record.findings) else "pass"


def _lead(record: NumericsRecord) -> str:
    facts, parts = record.facts, []
    if facts.logits is not None:
        parts.append(f"{_agreement(facts.logits)} in prefill")
    if facts.decode is not None:
        parts.append(f"{_agreement(facts.decode)} step by step with a cache")
    told = sentence(", ".join(parts)) or "The output could not be compared."
    if facts.logits is not None and facts.decode is None:
        told += " Decoding with a cache was not compared."
    idle = [prompt for _, prompt in _prompts(record) if _idle(prompt)]
    if idle:
        told += f" {sentence(plural(len(idle), 'prompt') + ' did not run')}"
    return f"{told} {_task_sentence(facts.task)}".strip() if facts.task else told


def _agreement(logits: Logits) -> str:
    return f"the same next token at {percent_text(logits.top1)} of {plural(logits.positions, 'position')}"


def _prompts(record: NumericsRecord) -> Iterator[tuple[str, PromptResult]]:
    for name, _ in _PHASES:
        logits: Logits | None = getattr(record.facts, name)
        for place, prompt in enumerate(logits.prompts if logits else ()):
            yield f"/{name}/prompts/{place}", prompt


def _idle(prompt: PromptResult) -> bool:
    return bool(prompt.reason) or prompt.tokens == 0


def _rows(ledger: Ledger, record: NumericsRecord) -> Iterator[Row]:
    for name, phase in _PHASES:
        logits: Logits | None = getattr(record.facts, name)
        if logits is None:
            continue
        whole = [
            Cell("main prompt" if phase == "prefill" else "decoding"),
            Cell(phase, whole=True),
            ledger.cell(f"/{name}/positions", "exact"),
            *_agreements(ledger, f"/{name}"),
            Cell(""),
        ]
        yield Row(whole)
        for place, prompt in enumerate(logits.prompts):
            yield _row(ledger, f"/{name}/prompts/{place}", prompt, phase)


def _row(ledger: Ledger, base: str, prompt: PromptResult, phase: str) -> Row:
    look = "unverified" if _idle(prompt) else "fail" if prompt.worst_block else "pass"
    why = f"did not run: {prompt.reason or 'no reason given'}"
    name = Cell(prompt.name, status=look, below=why if _idle(prompt) else prompt.purpose)
    if _idle(prompt):
        numbers: Sequence[Cell] = [Cell(_DASH, numeric=True, title="did not run")] * 5
    else:
        numbers = [ledger.cell(f"{base}/tokens", "exact"), *_agreements(ledger, base)]
    worst = Cell(prompt.worst_block, code=True) if prompt.worst_block else Cell("")
    return Row([name, Cell(phase, whole=True), *numbers, worst], status=look)


def _agreements(ledger: Ledger, base: str) -> Sequence[Cell]:
    forms = (("kl", "number"), ("top1", "percent"), ("top5", "percent"), ("decisive", "exact"))
    return [ledger.cell(f"{base}/{name}", form) for name, form in forms]


def _task_stats(ledger: Ledger, task: TaskMetric) -> Sequence[Stat]:
    if task.items == 0 or task.reason:
        return ()
    points = ledger.derived(
        _points(task.difference), "text", "target less reference", "/task/difference", numeric=True
    )
    return (
        Stat("Task", ledger.cell("/task/items", "exact"), f"items of {task.name}"),
        Stat("Reference", ledger.cell("/task/reference", "percent"), "answered rightly"),
        Stat("Target", ledger.cell("/task/target", "percent"), "answered rightly"),
        Stat("Difference", points, f"95 % interval {_points(task.low)} to {_points(task.high)}"),
    )


def _task_sentence(task: TaskMetric) -> str:
    if task.items == 0 or task.reason:
        named = f"The task {task.name}" if task.name else "The task"
        return f"{named} was not done: {task.reason or 'no reason given'}."
    low, high = float(task.low), float(task.high)
    if math.isnan(low) or math.isnan(high):
        return f"Of the task {task.name} no interval is known."
    if high < 0:
        return f"On the task {task.name} the target is worse, beyond chance."
    if low > 0:
        return f"On the task {task.name} the target is better, beyond chance."
    return f"On the task {task.name}, {exact_text(task.items)} items, chance explains the difference."


def _points(share: float | int | str) -> str:
    """A difference of shares in percentage points, with its sign."""
    number = float(share)
    if not math.isfinite(number):
        return number_text(number)
    return f"{number * 100:+.1f} points"
